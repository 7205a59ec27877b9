//! Scenarios of processes that fork, each with a seed.

use std::{
    io::{self, BufRead, Read, Write},
    ops::ControlFlow,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use testudo::{
    CheckpointOptions, Db, Durability, Keyspace, KeyspaceOptions, Tree, VerifyLevel, VerifyOptions,
    backup::{CreateOptions, Repository},
};
use testudo_env::{Env, RealEnv, SplitMix};

use crate::{
    calls::{Handles, check, refuse, value_of},
    child::{Child, end, fork, fork_and},
    require_locked, tell_from_outside,
};

/// Maximum records that one turn of a writer adds.
const WRITTEN_MAX: u32 = 3000;
/// Records of a store whose owner is killed.
pub(crate) const SYNCED: u32 = 500;

/// One turn of a scenario.
type Scenario = fn(&Path, u64);

/// Finds a scenario by name.
pub(crate) fn find(name: &str) -> Scenario {
    let scenarios: [(&str, Scenario); 5] = [
        ("writer", writer),
        ("reader", reader),
        ("closed", closed),
        ("callbacks", callbacks),
        ("daemon", daemon),
    ];
    scenarios.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no scenario {name}")).1
}

fn tree_of(seed: u64) -> Tree {
    let presets = testudo::TreePreset::all();
    presets[usize::try_from(seed).unwrap() % presets.len()].1.tree()
}

/// Directory of a turn's store: there is one for each tree.
fn store_of(directory: &Path, seed: u64) -> PathBuf {
    directory
        .join(format!("{:?}", tree_of(seed)).chars().filter(char::is_ascii_alphabetic).collect::<String>())
}

fn open(store: &Path) -> Db {
    Db::builder(store).memory_bytes(1 << 20).open().unwrap()
}

fn insert(records: &Keyspace, number: u32) {
    records.insert(format!("n{number:08}"), value_of(number)).unwrap();
}

/// Number of records: each turn continues where the previous one ended.
fn count(records: &Keyspace) -> u32 {
    u32::try_from(records.range("n".."o").unwrap().map(Result::unwrap).count()).unwrap()
}

/// A child uses and drops every kind of handle while its parent writes, flushes and compacts.
fn writer(directory: &Path, seed: u64) {
    let (mut chance, store) = (SplitMix::new(seed), store_of(directory, seed));
    let db = open(&store);
    let handles = Handles::of(&db, tree_of(seed));
    let (records, before) = (handles.records.clone(), count(&handles.records));
    let is_over = AtomicBool::new(false);
    let written = thread::scope(|scope| {
        let write = || {
            let mut number = before;
            while !is_over.load(Relaxed) {
                // Beyond this many, the last one is overwritten.
                insert(&records, number);
                number += u32::from(number < before + WRITTEN_MAX);
                if number.is_multiple_of(1000) {
                    db.persist(Durability::Sync).unwrap();
                }
            }
            insert(&records, number);
            number + 1
        };
        let writing = thread::Builder::new().spawn_scoped(scope, write).unwrap();
        // Fork at a moment between two records of the other thread, whatever locks it holds.
        for _ in 0..chance.below(2000) {
            let _ = records.contains_key("n00000007").unwrap();
        }
        let is_grandchild = chance.percent(20);
        let child = fork_and(|| {
            let env: Arc<dyn Env> = RealEnv::new();
            if is_grandchild {
                return fork_and(|| handles.refused(&env, &store, directory)).wait();
            }
            handles.refused(&env, &store, directory)
        });
        db.flush().unwrap();
        require_locked(&store);
        let outcome = child.wait();
        require_locked(&store);
        is_over.store(true, Relaxed);
        outcome.unwrap();
        writing.join().unwrap()
    });
    db.persist(Durability::Sync).unwrap();
    db.compact().unwrap();
    check(&db, written);
    drop((db, records));
    assert_eq!(tell_from_outside(&store), ["opened", "opened"]);
    check(&open(&store), written);
}

/// A child of a reader, which has fewer handles.
fn reader(directory: &Path, seed: u64) {
    let store = store_of(directory, seed);
    let db = open(&store);
    let handles = Handles::of(&db, tree_of(seed));
    (0..100).for_each(|number| insert(&handles.records, number));
    drop((handles, db));
    let db = Db::builder(&store).memory_bytes(1 << 20).read_only().open().unwrap();
    let records = db.open_keyspace("records").unwrap().unwrap();
    let mut iter = records.iter().unwrap();
    iter.next().unwrap().unwrap();
    let Some(child) = fork() else {
        let read_on = move || {
            refuse("get", records.get("n00000001"))?;
            refuse("next", iter.next().unwrap())?;
            refuse("iter", records.iter())?;
            refuse("verify", db.verify(VerifyLevel::Full))?;
            drop((iter, records));
            refuse("close", db.clone().close())?;
            drop(db);
            Ok(())
        };
        end(read_on());
    };
    let [to_write, to_read] = tell_from_outside(&store);
    assert!(to_write.starts_with("locked: ") && to_read == "opened", "{to_write}, {to_read}");
    child.wait().unwrap();
    iter.next().unwrap().unwrap();
    check(&db, 100);
}

/// A child forked before the parent closes keeps the handles, but not the lock.
fn closed(directory: &Path, seed: u64) {
    let store = store_of(directory, seed);
    let db = open(&store);
    let handles = Handles::of(&db, tree_of(seed));
    let written = count(&handles.records);
    (written..written + 100).for_each(|number| insert(&handles.records, number));
    let (mut ours, mut theirs) = UnixStream::pair().unwrap();
    let Some(child) = fork() else {
        let use_late = move || {
            theirs.read_exact(&mut [0]).map_err(|error| error.to_string())?;
            refuse("get", handles.records.get("a"))?;
            refuse("insert", handles.records.insert("of the child", "value"))?;
            // The last handles of this process.
            drop((handles, db));
            Ok(())
        };
        end(use_late());
    };
    db.close().unwrap();
    assert_eq!(tell_from_outside(&store), ["opened", "opened"]);
    let next = open(&store);
    ours.write_all(&[1]).unwrap();
    child.wait().unwrap();
    require_locked(&store);
    next.flush().unwrap();
    check(&next, written + 100);
}

/// User callbacks fork: in the child the calling operation fails and changes nothing.
fn callbacks(directory: &Path, seed: u64) {
    let store = store_of(directory, seed);
    let db = open(&store);
    let records = db.keyspace("records", KeyspaceOptions::default().tree(tree_of(seed))).unwrap();
    let before = count(&records);
    (before..before + 300).for_each(|number| insert(&records, number));
    let mut children = Vec::new();
    let split = |is_child: &mut bool, children: &mut Vec<Child>| match fork() {
        Some(child) => children.push(child),
        None => *is_child = true,
    };
    let mut is_child = false;
    let updated = records.update("a", |_| {
        split(&mut is_child, &mut children);
        Some(b"updated".to_vec())
    });
    leave(is_child, "update", &updated);
    let mut reader = Forking { left: 300_000, forked: None, is_child: false };
    let outcome = records.insert_reader("long", 300_000, &mut reader);
    leave(reader.is_child, "insert_reader", &outcome);
    children.extend(reader.forked);
    let mut is_forked = false;
    let mut observe = |_| {
        if !std::mem::replace(&mut is_forked, true) {
            split(&mut is_child, &mut children);
        }
        ControlFlow::Continue(())
    };
    let report = db.verify(VerifyOptions::new(VerifyLevel::Full).observer(&mut observe));
    leave(is_child, "verify", &report);
    let (mut copied, mut is_child) = (false, false);
    let target = directory.join(format!("copy-{seed}"));
    let mut observe = |_| {
        if !std::mem::replace(&mut copied, true) {
            split(&mut is_child, &mut children);
        }
        ControlFlow::Continue(())
    };
    let checkpoint = db.checkpoint(CheckpointOptions::new(&target).observer(&mut observe));
    leave(is_child, "checkpoint", &checkpoint);
    let mut backed_up = false;
    let mut observe = |_| {
        if !std::mem::replace(&mut backed_up, true) {
            split(&mut is_child, &mut children);
        }
        ControlFlow::Continue(())
    };
    let repository = Repository::at(directory.join("backups"));
    let backup = repository.create(CreateOptions::new(&db).observer(&mut observe));
    leave(is_child, "backup", &backup);
    assert_eq!(children.len(), 5);
    children.into_iter().for_each(|child| child.wait().unwrap());
    assert_eq!(updated.unwrap().as_deref(), Some(&b"updated"[..]));
    outcome.unwrap();
    assert!(report.unwrap().is_valid());
    checkpoint.unwrap();
    backup.unwrap();
    check(&Db::builder(&target).create(false).open().unwrap(), before + 300);
    assert!(repository.verify(None).unwrap().findings.is_empty());
    check(&db, before + 300);
}

/// Ends a child in which a call has returned.
fn leave<T>(is_child: bool, call: &str, outcome: &testudo::Result<T>) {
    if is_child {
        let refused = outcome.as_ref().map(|_| ()).map_err(Clone::clone);
        end(refuse(call, refused));
    }
}

/// Bytes of a value; forks halfway.
struct Forking {
    left: usize,
    forked: Option<Child>,
    is_child: bool,
}

impl Read for Forking {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = into.len().min(self.left);
        into[..count].fill(5);
        self.left -= count;
        if self.left < 150_000 && self.forked.is_none() && !self.is_child {
            self.forked = fork();
            self.is_child = self.forked.is_none();
        }
        Ok(count)
    }
}

/// Like `daemon(3)`: the process that opened the store exits, its child uses the handles.
fn daemon(directory: &Path, seed: u64) {
    let db = open(&directory.join("db"));
    let handles = Handles::of(&db, tree_of(seed));
    (0..SYNCED).for_each(|number| insert(&handles.records, number));
    db.persist(Durability::Sync).unwrap();
    if fork().is_some() {
        end(Ok(()));
    }
    end(outlive(directory, db, handles));
}

/// Actions of the child of a dead owner.
fn outlive(directory: &Path, db: Db, handles: Handles) -> Result<(), String> {
    let say = |word: &str| {
        io::stdout().write_all(format!("\n{word}\n").as_bytes()).map_err(|error| error.to_string())
    };
    let mut orders = io::stdin().lock().lines();
    say("forked")?;
    let order = orders.next();
    if !matches!(&order, Some(Ok(order)) if order == "use") {
        return Err(format!("{order:?} is not an order"));
    }
    let env: Arc<dyn Env> = RealEnv::new();
    drop(db);
    handles.refused(&env, &directory.join("db"), directory)?;
    say("dropped")?;
    // Wait until the parent closes the pipe.
    let _ = orders.next();
    Ok(())
}
