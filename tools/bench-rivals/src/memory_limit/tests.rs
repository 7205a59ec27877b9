use std::path::Path;

use super::own_group_of;

const MOUNTS_1: &str = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
    cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\n\
    cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n\
    cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n";

#[test]
fn version_1_is_used_where_it_controls_memory() {
    let groups = "9:cpu:/\n4:memory:/some/group\n0::/\n";
    let (version, dir) = own_group_of(groups, MOUNTS_1, |_| false).unwrap();
    assert_eq!(dir, Path::new("/sys/fs/cgroup/memory/some/group"));
    assert_eq!(version.limit, "memory.limit_in_bytes");
}

#[test]
fn version_2_uses_the_nearest_delegating_group() {
    let mounts = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
    let groups = "0::/user.slice/session.scope\n";
    let delegates = |dir: &Path| dir == Path::new("/sys/fs/cgroup/user.slice");
    let (version, dir) = own_group_of(groups, mounts, delegates).unwrap();
    assert_eq!(dir, Path::new("/sys/fs/cgroup/user.slice"));
    assert_eq!(version.limit, "memory.max");
    assert!(own_group_of(groups, mounts, |_| false).is_none());
}

#[test]
fn no_group_without_mounts() {
    assert!(own_group_of("0::/\n", "proc /proc proc rw 0 0\n", |_| true).is_none());
}
