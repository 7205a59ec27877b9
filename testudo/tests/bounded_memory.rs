//! Peak memory of whole processes under the minimum budget, in child processes of this test: it includes
//! memory that no counter covers.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
};

use testudo::{Db, DbBuilder, ErrorKind, Keyspace, KeyspaceOptions, SalvageOptions, VerifyLevel, salvage};

const MIB: u64 = 1 << 20;
/// Allowance of a process beyond its budget and its code: its stacks, and memory that its allocator retains.
const PROCESS_BYTES: u64 = 17 * MIB;
/// One child at a time: other load on the machine affects the progress of background work.
static ALONE: Mutex<()> = Mutex::new(());
/// The case that a child runs, and its directory.
const CASE: &str = "TESTUDO_BOUNDED_MEMORY_CASE";
const PLACE: &str = "TESTUDO_BOUNDED_MEMORY_PLACE";

/// Runs `prepare` here and `body` in a child process, whose memory must stay within a budget of 1 MiB. `case`
/// is the name of the calling test.
fn stays_within_budget(case: &str, prepare: impl FnOnce(&Path), body: impl FnOnce(&Path)) {
    stays_within(MIB, case, prepare, body);
}

/// Same as `stays_within_budget`, with a budget of `bytes`.
fn stays_within(bytes: u64, case: &str, prepare: impl FnOnce(&Path), body: impl FnOnce(&Path)) {
    if std::env::var(CASE).is_ok_and(|asked| asked == case) {
        body(Path::new(&std::env::var_os(PLACE).expect("a place")));
        // The size of the code is independent of the store.
        println!("\npeak {} kB", kib_of_this_process("VmHWM:") - kib_of_this_process("RssFile:"));
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().join("db");
    // The prepared state, such as the length of a manifest, depends on the load of the device.
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    prepare(&place);
    let mut child = Command::new(std::env::current_exe().expect("its path"));
    child.args(["--exact", case, "--nocapture"]).env(CASE, case).env(PLACE, place);
    // Threads are assigned heaps at random, and each heap retains up to 1 MiB.
    child.env("MALLOC_ARENA_MAX", "1");
    let out = child.output().expect("it runs");
    drop(alone);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{case}: {text} {}", String::from_utf8_lossy(&out.stderr));
    let line = text.lines().find_map(|line| line.strip_prefix("peak ")).expect("the child prints its peak");
    let kib: u64 = line.split(' ').next().and_then(|kib| kib.parse().ok()).expect("a number");
    println!("{case}: {line}");
    assert!(kib << 10 <= bytes + PROCESS_BYTES, "{case}: {line} with a budget of 1 MiB");
}

/// Value of a field in `/proc/self/status`, in KiB.
fn kib_of_this_process(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux provides it");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a size").trim().to_owned();
    line.split(' ').next().and_then(|kib| kib.parse().ok()).expect("a number")
}

/// Resident memory of this process.
fn resident_bytes() -> u64 {
    kib_of_this_process("VmRSS:") << 10
}

fn small(directory: &Path) -> DbBuilder {
    Db::builder(directory).memory_bytes(MIB)
}

fn keyspace(db: &Db) -> Keyspace {
    db.keyspace("keyspace", KeyspaceOptions::default).expect("a keyspace")
}

/// A 1 KiB value, different for each number.
fn value(number: u64) -> Vec<u8> {
    (0..128).flat_map(|at| (number * 1_000 + at).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()).collect()
}

#[test]
fn an_oversized_batch_takes_no_memory() {
    let body = |place: &Path| {
        let db = small(place).open().expect("opens");
        let keyspace = keyspace(&db);
        let mut batch = db.batch();
        for number in 0..200_000_u64 {
            batch.insert(&keyspace, number.to_be_bytes(), value(number));
        }
        assert_eq!(batch.commit().expect_err("a batch of 200 MB is refused").kind(), ErrorKind::Invalid);
    };
    stays_within_budget("an_oversized_batch_takes_no_memory", |_| (), body);
}

#[test]
fn a_reader_of_a_long_log_stays_within_its_budget() {
    let prepare = |place: &Path| {
        let db = Db::builder(place).memory_bytes(256 * MIB).open().expect("opens");
        let keyspace = keyspace(&db);
        for number in 0..48_000_u64 {
            keyspace.insert(number.to_be_bytes(), value(number)).expect("written");
        }
        assert_eq!(db.stats().flush.count, 0, "all records are only in the log");
    };
    let body = |place: &Path| {
        let db = small(place).read_only().open().expect("opens");
        let keyspace = db.open_keyspace("keyspace").expect("looked").expect("there");
        assert_eq!(keyspace.get(5_u64.to_be_bytes()).expect("read").as_deref(), Some(&*value(5)));
        assert_eq!(keyspace.iter().expect("an iterator").count(), 48_000);
    };
    stays_within_budget("a_reader_of_a_long_log_stays_within_its_budget", prepare, body);
}

/// Extends the newest file with this name prefix by a hole, up to `length` bytes.
fn lengthen(place: &Path, prefix: &str, length: u64) {
    let names = std::fs::read_dir(place).expect("a directory").map(|entry| entry.expect("a name").path());
    let is_wanted =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix));
    let path = names.filter(is_wanted).max().expect("such a file");
    let file = std::fs::OpenOptions::new().write(true).open(path).expect("opens");
    file.set_len(length).expect("grows");
}

#[test]
fn a_sparse_manifest_takes_no_memory() {
    let prepare = |place: &Path| {
        let db = small(place).open().expect("opens");
        keyspace(&db).insert("key", "value").expect("written");
        db.close().expect("closes");
        lengthen(place, "manifest-", 3 << 30);
    };
    let body = |place: &Path| {
        let db = small(place).read_only().open().expect("opens");
        let keyspace = db.open_keyspace("keyspace").expect("looked").expect("there");
        assert_eq!(keyspace.get("key").expect("read").as_deref(), Some(&b"value"[..]));
        assert!(db.verify(VerifyLevel::Full).expect("verified").is_valid());
    };
    stays_within_budget("a_sparse_manifest_takes_no_memory", prepare, body);
}

#[test]
fn a_sparse_log_and_data_file_are_salvaged_in_bounded_memory() {
    let prepare = |place: &Path| {
        let db = small(place).open().expect("opens");
        keyspace(&db).insert("key", "value").expect("written");
        db.close().expect("closes");
        for file in ["wal-", "data", "superblock"] {
            lengthen(place, file, 64 << 30);
        }
    };
    let body = |place: &Path| {
        let target = place.with_extension("new");
        let options = SalvageOptions::new(place, &target).memory_bytes(MIB);
        salvage(options).expect("salvaged");
        let db = small(&target).read_only().open().expect("opens");
        let keyspace = db.open_keyspace("keyspace").expect("looked").expect("there");
        assert_eq!(keyspace.get("key").expect("read").as_deref(), Some(&b"value"[..]));
    };
    stays_within_budget("a_sparse_log_and_data_file_are_salvaged_in_bounded_memory", prepare, body);
}

#[test]
fn snapshots_between_writes_release_flushed_buffers() {
    const SNAPSHOTS: u64 = 2_000;
    const BETWEEN: u64 = 50;
    let key = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    let body = |place: &Path| {
        let db = small(place).open().expect("opens");
        let keyspace = keyspace(&db);
        let mut snapshots = Vec::new();
        for number in 0..SNAPSHOTS * BETWEEN {
            keyspace.insert(key(number), value(number)).expect("written");
            if (number + 1).is_multiple_of(BETWEEN) {
                snapshots.push(db.snapshot().expect("a snapshot"));
            }
        }
        let stats = db.stats();
        assert!(
            stats.space.held_bytes < 15 * stats.space.live_bytes,
            "{} bytes are held",
            stats.space.held_bytes
        );
        for (number, snapshot) in (0..).zip(&snapshots).step_by(50) {
            let (last, next) = (number * BETWEEN + BETWEEN - 1, number * BETWEEN + BETWEEN);
            assert_eq!(snapshot.get(&keyspace, key(last)).expect("read").as_deref(), Some(&*value(last)));
            assert!(snapshot.get(&keyspace, key(next)).expect("read").is_none());
        }
    };
    // Each snapshot has its own tree, which shares everything except its root.
    let bytes = MIB + SNAPSHOTS * (6 << 10);
    stays_within(bytes, "snapshots_between_writes_release_flushed_buffers", |_| (), body);
}

#[test]
fn snapshots_of_many_keyspaces_share_unchanged_state() {
    let body = |place: &Path| {
        let db = small(place).open().expect("opens");
        let names: Vec<String> = (0..1_000).map(|number| format!("keyspace {number}")).collect();
        let names = names.iter().map(String::as_str);
        let keyspaces = db.keyspaces(names, KeyspaceOptions::default).expect("keyspaces");
        let mut snapshots = Vec::new();
        for number in 0..2_000_u64 {
            keyspaces[7].insert("key", number.to_be_bytes()).expect("written");
            snapshots.push(db.snapshot().expect("a snapshot"));
        }
        for (number, snapshot) in (0_u64..).zip(&snapshots) {
            let got = snapshot.get(&keyspaces[7], "key").expect("read");
            assert_eq!(got.as_deref(), Some(&number.to_be_bytes()[..]));
        }
    };
    stays_within_budget("snapshots_of_many_keyspaces_share_unchanged_state", |_| (), body);
}

#[test]
fn empty_keyspaces_take_little_memory() {
    let body = |place: &Path| {
        let names: Vec<String> = (0..10_000).map(|number| format!("keyspace {number}")).collect();
        let db = small(place).open().expect("opens");
        db.keyspaces(names.iter().map(String::as_str), KeyspaceOptions::default).expect("keyspaces");
        db.close().expect("closes");
        let db = small(place).open().expect("opens");
        assert_eq!(db.keyspace_names().len(), names.len());
        keyspace(&db).insert("key", "value").expect("written");
    };
    // Each has a name, a root, and a line in the writer's status.
    let bytes = MIB + 10_000 * 512;
    stays_within(bytes, "empty_keyspaces_take_little_memory", |_| (), body);
}

#[test]
fn keyspaces_with_one_record_have_little_overhead() {
    const KEYSPACES: u64 = 10_000;
    let name = |number: u64| format!("keyspace {number}");
    let prepare = |place: &Path| {
        let names: Vec<String> = (0..KEYSPACES).map(name).collect();
        let db = Db::builder(place).memory_bytes(64 * MIB).open().expect("opens");
        let names = names.iter().map(String::as_str);
        let keyspaces = db.keyspaces(names, KeyspaceOptions::default).expect("keyspaces");
        for (number, keyspace) in (0_u64..).zip(&keyspaces) {
            keyspace.insert("key", number.to_be_bytes()).expect("written");
        }
        db.flush().expect("flushed");
        db.close().expect("closes");
    };
    let body = |place: &Path| {
        let before = resident_bytes();
        let db = small(place).open().expect("opens");
        for number in 0..KEYSPACES {
            let keyspace = db.open_keyspace(&name(number)).expect("looked").expect("there");
            let value = keyspace.get("key").expect("read");
            assert_eq!(value.as_deref(), Some(&number.to_be_bytes()[..]));
        }
        // The counted bytes match the actual ones.
        let (grown, counted) = (resident_bytes() - before, db.stats().memory.metadata_bytes);
        let is_right = counted < grown + 4 * MIB && counted + counted / 4 + 4 * MIB > grown;
        assert!(is_right, "{counted} bytes are counted, and the process grew by {grown}");
    };
    // Each has a tree in memory, with a node and a run.
    let bytes = MIB + KEYSPACES * 1056;
    stays_within(bytes, "keyspaces_with_one_record_have_little_overhead", prepare, body);
}
