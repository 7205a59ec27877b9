//! A limit on all memory of a process, page cache included, enforced by a Linux control group.
//!
//! A version 1 memory controller is used if one is mounted, else version 2. The new group is a child of this
//! process's group or, in version 2, of the nearest ancestor that delegates memory. Nothing else on the
//! machine is affected.
//!
//! **Invariants**
//! - A group is removed when dropped; its process has ended by then.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use testudo::{Error, Result};

/// File names of a control group version.
struct Version {
    limit: &'static str,
    peak: &'static str,
    events: &'static str,
}

const VERSION_1: Version = Version {
    limit: "memory.limit_in_bytes",
    peak: "memory.max_usage_in_bytes",
    events: "memory.oom_control",
};
const VERSION_2: Version = Version { limit: "memory.max", peak: "memory.peak", events: "memory.events" };

/// A group with a limit; empty until a process joins it.
pub(crate) struct MemoryLimit {
    dir: PathBuf,
    version: &'static Version,
}

impl MemoryLimit {
    /// Creates a group called `name`; returns the reason if the machine does not allow it.
    pub(crate) fn new(name: &str, bytes: u64) -> std::result::Result<Self, String> {
        let (version, own) = own_group().ok_or("no control groups with a memory controller are mounted")?;
        let dir = own.join(name);
        fs::create_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let made = Self { dir, version };
        let limit = made.dir.join(version.limit);
        match fs::write(&limit, bytes.to_string()) {
            Ok(()) => Ok(made),
            Err(error) => Err(format!("{}: {error}", limit.display())),
        }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the peak memory usage, page cache included.
    pub(crate) fn peak_bytes(&self) -> Option<u64> {
        fs::read_to_string(self.dir.join(self.version.peak)).ok()?.trim().parse().ok()
    }

    /// Returns the number of processes killed for exceeding the limit.
    pub(crate) fn kills(&self) -> u64 {
        let text = fs::read_to_string(self.dir.join(self.version.events)).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.dir) {
            eprintln!("warning: {} could not be removed: {error}", self.dir.display());
        }
    }
}

/// Moves this process into the group in `dir`.
pub(crate) fn join(dir: &Path) -> Result<()> {
    let place = dir.join("cgroup.procs");
    let refused = |error: io::Error| Error::io(place.display().to_string(), error);
    fs::write(&place, std::process::id().to_string()).map_err(refused)
}

/// Returns the group of this process, as a directory.
fn own_group() -> Option<(&'static Version, PathBuf)> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    own_group_of(&groups, &mounts, |dir| {
        let controllers = fs::read_to_string(dir.join("cgroup.subtree_control")).unwrap_or_default();
        controllers.split_whitespace().any(|name| name == "memory")
    })
}

/// As [`own_group`], from the contents of the `/proc` files; `delegates` says whether children of a group may
/// limit memory.
fn own_group_of(
    groups: &str,
    mounts: &str,
    delegates: impl Fn(&Path) -> bool,
) -> Option<(&'static Version, PathBuf)> {
    let mount_of = |kind: &str, option: &str| {
        mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (place, found, options) = (fields.next()?, fields.next()?, fields.next()?);
            let has = option.is_empty() || options.split(',').any(|word| word == option);
            (found == kind && has).then(|| PathBuf::from(place))
        })
    };
    let group_of = |controller: &str| {
        groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            controllers
                .split(',')
                .any(|name| name == controller)
                .then(|| path.trim_start_matches('/').to_owned())
        })
    };
    if let (Some(mount), Some(group)) = (mount_of("cgroup", "memory"), group_of("memory")) {
        return Some((&VERSION_1, mount.join(group)));
    }
    // A group that contains processes cannot delegate; an ancestor may.
    let own = mount_of("cgroup2", "")?.join(group_of("")?);
    let found = own.ancestors().find(|dir| delegates(dir))?.to_owned();
    Some((&VERSION_2, found))
}

#[cfg(test)]
mod tests;
