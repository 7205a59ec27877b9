#![expect(clippy::unwrap_used, reason = "the layer reports a panic as a failure")]
//! Real threads, in memory and on a real disk: every thread's writes are present, batches are atomic,
//! counters are exact, and synced writes survive a power loss at any moment.
//!
//! **Invariants**
//! - Each test ends all of its threads, even if one of them fails.
//! - The machine schedules the threads: replaying a failure is a matter of luck.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, Scope, ScopedJoinHandle},
};

use testudo::{Db, Durability, ErrorKind, Keyspace};
use testudo_db::maintenance::Stepping as _;
use testudo_env::{CrashPolicy, Env, MemEnv, RealEnv, SplitMix};
use testudo_testkit::{
    campaign::catch_panic,
    configuration::{Configuration, crash_configurations},
    engine_store::EngineOpener,
};

use crate::{
    Amount, Limits,
    sweep::{Outcome, chosen, counted, judge, require, sweep},
};

pub(crate) const NAME: &str = "concurrency";

const WRITERS: u64 = 4;

/// An environment for threads.
struct Place {
    env: Arc<dyn Env>,
    /// The same environment, if it is in memory.
    memory: Option<Arc<MemEnv>>,
    directory: PathBuf,
    opener: EngineOpener,
    _guard: Option<tempfile::TempDir>,
}

/// One of the tests, over one machine.
type Test = fn(&Place);

/// All tests of this layer.
const TESTS: [(&str, Test); 4] = [
    ("writers with keys of their own", writers_and_readers_do_not_disturb_each_other),
    ("snapshots that see batches whole", snapshots_see_batches_whole),
    ("updates and swaps that count", updates_and_swaps_count_exactly),
    ("power losses under writers", synced_writes_survive_a_power_loss),
];

/// Stride through all combinations. The strides of the short form and its tenth are coprime to the eight
/// combinations of a configuration, so they reach every test in both places.
fn every(limits: &Limits) -> usize {
    match limits.amount {
        Amount::Short if limits.configuration.is_some() => 1,
        Amount::Short if limits.is_tenth() => 19,
        Amount::Short => 3,
        _ => 1,
    }
}

/// Runs the layer.
pub fn run(limits: &Limits) -> Outcome {
    let configurations = chosen(NAME, limits, crash_configurations())?;
    let rounds = limits.count_or(1);
    let of_configuration = |configuration| {
        TESTS.into_iter().flat_map(move |test| [false, true].map(|is_real| (configuration, test, is_real)))
    };
    let every = every(limits);
    let items = (0..rounds).flat_map(|_| configurations.iter().flat_map(of_configuration).step_by(every));
    // Each test starts its own threads.
    let alone = Limits { threads: 1, ..limits.clone() };
    let report = sweep(&alone, items, None, |(configuration, (name, test), is_real)| {
        judge(NAME, Some(&configuration.name), None, || {
            test(&Place::new(configuration, is_real)?);
            Ok(counted(name, 1))
        })
    })?;
    require(NAME, limits, &report, &TESTS.map(|(name, _)| (name, 2)))?;
    Ok(report)
}

impl Place {
    /// Creates an in-memory machine, or a directory on the real one.
    fn new(configuration: &Configuration, is_real: bool) -> Result<Self, String> {
        let opener = configuration.opener.clone();
        if !is_real {
            let memory = MemEnv::with_threads(1, 2);
            let env: Arc<dyn Env> = Arc::clone(&memory) as _;
            return Ok(Self { env, memory: Some(memory), directory: "/db".into(), opener, _guard: None });
        }
        let guard = tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
        let directory = guard.path().join("db");
        Ok(Self { env: RealEnv::new(), memory: None, directory, opener, _guard: Some(guard) })
    }

    fn open(&self) -> Db {
        self.opener.open_db(Arc::clone(&self.env), &self.directory).unwrap()
    }

    fn keyspace(&self, db: &Db, name: &str) -> Keyspace {
        db.keyspace(name, || self.opener.options).unwrap()
    }
}

/// Ends the readers when the writers end, even by a panic.
struct Finish<'a>(&'a AtomicBool);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Starts a thread whose panic [`join`] reports.
fn start<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    body: impl FnOnce() -> T + Send + 'scope,
) -> ScopedJoinHandle<'scope, Result<T, String>> {
    scope.spawn(move || catch_panic(body))
}

/// Returns the result of a thread; propagates its panic.
fn join<T>(handle: ScopedJoinHandle<'_, Result<T, String>>) -> T {
    handle.join().expect("panics are caught").unwrap_or_else(|panic| panic!("{panic}"))
}

/// The value of a version of a key: the version, then bytes that depend on both.
fn versioned(key: u64, version: u64) -> Vec<u8> {
    let mut random = SplitMix::new(key << 32 | version);
    let length = if random.percent(3) { 5000 } else { random.below(300) };
    let mut value = vec![0; usize::try_from(length).unwrap()];
    random.fill(&mut value);
    let mut bytes = version.to_be_bytes().to_vec();
    bytes.extend(value);
    bytes
}

/// Returns the version of a value; panics if the key never had the value.
fn version_of(key: u64, value: &[u8]) -> u64 {
    let version = u64::from_be_bytes(value[..8].try_into().unwrap());
    assert_eq!(value, versioned(key, version), "the value was never written to the key");
    version
}

fn number_of(key: &[u8]) -> u64 {
    u64::from_be_bytes(key.try_into().unwrap())
}

fn writers_and_readers_do_not_disturb_each_other(place: &Place) {
    const KEYS: u64 = 400;
    const WRITES: u64 = 3_000;
    let db = place.open();
    let keyspace = place.keyspace(&db, "main");
    let done = AtomicBool::new(false);
    let key_of = |writer: u64, number: u64| (number * WRITERS + writer).to_be_bytes();
    let last: Vec<Vec<u64>> = thread::scope(|scope| {
        let _finish = Finish(&done);
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let keyspace = keyspace.clone();
                start(scope, move || {
                    let mut random = SplitMix::new(writer);
                    let mut last = vec![0; usize::try_from(KEYS).unwrap()];
                    for version in 1..=WRITES {
                        let number = random.below(KEYS);
                        let key = key_of(writer, number);
                        keyspace.insert(key, versioned(number_of(&key), version)).unwrap();
                        last[usize::try_from(number).unwrap()] = version;
                    }
                    last
                })
            })
            .collect();
        let readers = [
            start(scope, || read_versions(&keyspace, KEYS * WRITERS, &done)),
            start(scope, || scan_versions(&keyspace, &done)),
        ];
        let last = writers.into_iter().map(join).collect();
        done.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(join);
        last
    });
    let check = |keyspace: &Keyspace| {
        let mut expected: Vec<_> = (0..WRITERS)
            .flat_map(|writer| (0..KEYS).map(move |number| (writer, number)))
            .filter_map(|(writer, number)| {
                let version = last[usize::try_from(writer).unwrap()][usize::try_from(number).unwrap()];
                (version > 0).then_some((number * WRITERS + writer, version))
            })
            .collect();
        expected.sort_unstable();
        let found: Vec<_> = keyspace
            .iter()
            .unwrap()
            .map(|entry| {
                let (key, value) = entry.unwrap().into_pair().unwrap();
                (number_of(&key), version_of(number_of(&key), &value))
            })
            .collect();
        assert!(found == expected, "the final content differs");
    };
    check(&keyspace);
    db.check_invariants().unwrap();
    drop(keyspace);
    db.close().unwrap();
    let db = place.open();
    check(&place.keyspace(&db, "main"));
    db.verify(testudo::VerifyLevel::Full).unwrap();
}

/// Checks that versions of a key never decrease.
fn read_versions(keyspace: &Keyspace, key_count: u64, done: &AtomicBool) {
    let mut seen = vec![0; usize::try_from(key_count).unwrap()];
    let mut random = SplitMix::new(99);
    while !done.load(Ordering::Relaxed) {
        let key = random.below(key_count);
        let newest = &mut seen[usize::try_from(key).unwrap()];
        let version = keyspace.get(key.to_be_bytes()).unwrap().map_or(0, |value| version_of(key, &value));
        assert!(version >= *newest, "key {key} went back from {newest} to {version}");
        *newest = version;
    }
}

/// Checks that scans are sorted, contain everything present when they began, and return only written values.
fn scan_versions(keyspace: &Keyspace, done: &AtomicBool) {
    let mut count_before = 0;
    let mut backward = false;
    while !done.load(Ordering::Relaxed) {
        let entries = keyspace.iter().unwrap();
        let entries: Vec<_> = if backward { entries.rev().collect() } else { entries.collect() };
        let mut keys = Vec::new();
        for entry in entries {
            let (key, value) = entry.unwrap().into_pair().unwrap();
            version_of(number_of(&key), &value);
            keys.push(number_of(&key));
        }
        if backward {
            keys.reverse();
        }
        assert!(keys.is_sorted_by(|a, b| a < b), "keys out of order");
        assert!(keys.len() >= count_before, "{} keys after {count_before}", keys.len());
        count_before = keys.len();
        backward = !backward;
    }
}

fn snapshots_see_batches_whole(place: &Place) {
    const ROUNDS: u64 = 1_500;
    const KEYS: u64 = 8;
    let db = place.open();
    let keyspaces = [place.keyspace(&db, "left"), place.keyspace(&db, "right")];
    let done = AtomicBool::new(false);
    let key_of = |writer: u64, number: u64| format!("{writer}/{number}");
    thread::scope(|scope| {
        let _finish = Finish(&done);
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (db, keyspaces) = (&db, &keyspaces);
                start(scope, move || {
                    for round in 1..=ROUNDS {
                        let mut batch = db.batch();
                        for number in 0..KEYS {
                            let keyspace = &keyspaces[usize::try_from(number % 2).unwrap()];
                            batch.insert(keyspace, key_of(writer, number), versioned(0, round));
                        }
                        batch.commit().unwrap();
                    }
                })
            })
            .collect();
        let reader = start(scope, || {
            let mut before = [0; 4];
            while !done.load(Ordering::Relaxed) {
                let snapshot = db.snapshot().unwrap();
                for writer in 0..WRITERS {
                    let read = |number: u64| {
                        let keyspace = &keyspaces[usize::try_from(number % 2).unwrap()];
                        let value = snapshot.get(keyspace, key_of(writer, number)).unwrap();
                        value.map_or(0, |value| version_of(0, &value))
                    };
                    let versions: Vec<_> = (0..KEYS).map(read).collect();
                    let first = versions[0];
                    assert!(
                        versions.iter().all(|version| *version == first),
                        "a partial batch: {versions:?}"
                    );
                    let before = &mut before[usize::try_from(writer).unwrap()];
                    assert!(first >= *before, "a later snapshot shows an older batch");
                    *before = first;
                }
            }
        });
        writers.into_iter().for_each(join);
        done.store(true, Ordering::Relaxed);
        join(reader);
    });
    db.check_invariants().unwrap();
}

fn updates_and_swaps_count_exactly(place: &Place) {
    const INCREMENTS: u64 = 1_500;
    const COUNTERS: u64 = 5;
    let increase = |old: Option<&[u8]>| {
        let count = old.map_or(0, |old| u64::from_be_bytes(old.try_into().unwrap()));
        (count + 1).to_be_bytes().to_vec()
    };
    let db = place.open();
    let keyspace = place.keyspace(&db, "counters");
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for writer in 0..WRITERS {
            let keyspace = keyspace.clone();
            threads.push(start(scope, move || {
                let mut random = SplitMix::new(writer);
                for _ in 0..INCREMENTS {
                    let key = random.below(COUNTERS).to_be_bytes();
                    if writer % 2 == 0 {
                        keyspace.update(key, |old| Some(increase(old))).unwrap();
                        continue;
                    }
                    loop {
                        let old = keyspace.get(key).unwrap();
                        let new = increase(old.as_deref());
                        match keyspace.compare_and_swap(key, old.as_deref(), Some(&new)) {
                            Ok(()) => break,
                            Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}"),
                        }
                    }
                }
            }));
        }
        threads.push(start(scope, || (0..5).for_each(|_| db.flush().unwrap())));
        threads.into_iter().for_each(join);
    });
    let sum = || -> u64 {
        let value = |key: u64| keyspace.get(key.to_be_bytes()).unwrap();
        (0..COUNTERS).filter_map(value).map(|value| number_of(&value)).sum()
    };
    assert_eq!(sum(), WRITERS * INCREMENTS);
    db.flush().unwrap();
    assert_eq!(sum(), WRITERS * INCREMENTS);
    db.check_invariants().unwrap();
}

fn synced_writes_survive_a_power_loss(place: &Place) {
    const IMAGES: u64 = 60;
    // A real machine cannot lose power here.
    let Some(env) = &place.memory else { return };
    let opener = &place.opener;
    let db = opener.open_db(Arc::clone(env) as _, Path::new("/db")).unwrap();
    let keyspace = db.keyspace("main", || opener.options).unwrap();
    let acknowledged: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let _finish = Finish(&done);
        let mut writers = Vec::new();
        for writer in 0..WRITERS {
            let (db, keyspace, acknowledged, done) = (&db, &keyspace, &acknowledged, &done);
            writers.push(start(scope, move || {
                for version in 1.. {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    let mut batch = db.batch();
                    batch.insert(keyspace, writer.to_be_bytes(), versioned(writer, version));
                    batch.insert(keyspace, (writer + 100 + version % 50 * 8).to_be_bytes(), vec![1; 200]);
                    batch.durability(Durability::Sync).commit().unwrap();
                    acknowledged[usize::try_from(writer).unwrap()].store(version, Ordering::Release);
                }
            }));
        }
        for seed in 0..IMAGES {
            let before: Vec<_> = acknowledged.iter().map(|count| count.load(Ordering::Acquire)).collect();
            let image = env.crash_image(&CrashPolicy::random(seed), seed);
            let db = opener.open_db(image as _, Path::new("/db")).unwrap();
            let keyspace = db.open_keyspace("main").unwrap().expect("it was durable");
            for (writer, before) in (0..WRITERS).zip(before) {
                let value = keyspace.get(writer.to_be_bytes()).unwrap();
                let version = value.map_or(0, |value| version_of(writer, &value));
                assert!(version >= before, "writer {writer}: {before} was acknowledged, {version} is found");
            }
            db.check_invariants().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(join);
    });
}
