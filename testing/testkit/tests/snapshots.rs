#![expect(clippy::unwrap_used, reason = "tests panic where they fail")]
//! Snapshots show the same content for all their life, whatever happens to the store meanwhile.

use testudo_base::checksum::checksum64;
use testudo_env::MemEnv;
use testudo_testkit::{
    Campaign, Generator, Profile, Report, Runner, Weights,
    configuration::crash_configurations,
    engine_store::DIRECTORY,
    op::Op,
    store::{keyspace_name, keyspace_slot},
};

/// Ops of one run.
const OP_COUNT: usize = 4_000;

/// Many snapshots, read and compared often, between drains and drops.
fn profile() -> Profile {
    let weights = Weights {
        snapshot: 150,
        snapshot_get: 900,
        snapshot_scan: 600,
        snapshot_check: 150,
        snapshot_drop: 60,
        flush: 120,
        drop: 20,
        crash: 2,
        ..Weights::default()
    };
    Profile { weights, key_count: 300, ..Profile::default() }
}

#[test]
fn snapshots_answer_as_of_their_moment() {
    let (profile, seeds) = (profile(), Campaign::seeds(0..3));
    let mut total = Report::default();
    for configuration in crash_configurations() {
        let campaign = Campaign {
            test: "snapshots",
            configuration: &configuration.name,
            opener: &configuration.opener,
            profile: &profile,
            op_count: OP_COUNT,
        };
        for &seed in &seeds {
            total += campaign.run(seed);
        }
    }
    println!("{total:?}");
}

/// One number for all that a snapshot shows, read forward or backward.
fn hash(snapshot: &testudo::Snapshot, keyspaces: &[testudo::Keyspace], backward: bool) -> u64 {
    let mut sum = 0_u64;
    for keyspace in keyspaces {
        let entries = snapshot.iter(keyspace).unwrap();
        let entries: Vec<_> = if backward { entries.rev().collect() } else { entries.collect() };
        for entry in entries {
            let (key, value) = entry.unwrap().into_pair().unwrap();
            let seed = checksum64(&key, checksum64(keyspace.name().as_bytes(), 0));
            sum = sum.wrapping_add(checksum64(&value, seed));
        }
    }
    sum
}

#[test]
fn a_snapshots_hash_is_stable_while_its_keyspaces_are_rewritten_and_dropped() {
    for configuration in crash_configurations() {
        let env = MemEnv::new(5);
        let db = configuration.opener.open_db(env, DIRECTORY.as_ref()).unwrap();
        let open = |slot| db.keyspace(&keyspace_name(slot), || configuration.opener.options).unwrap();
        let profile = Profile { key_count: 200, ..Profile::default() };
        let mut generator = Generator::new(&profile, 7);
        let mut held: Vec<(testudo::Snapshot, Vec<testudo::Keyspace>, u64)> = Vec::new();
        for round in 0..12 {
            let keyspaces: Vec<_> = (0..profile.keyspace_count).map(open).collect();
            for op in generator.script(400).0 {
                match op {
                    Op::Insert { keyspace, key, value } => {
                        keyspaces[usize::from(keyspace)].insert(key.bytes(), value.bytes()).unwrap();
                    }
                    Op::Remove { keyspace, key } => {
                        keyspaces[usize::from(keyspace)].remove(key.bytes()).unwrap()
                    }
                    Op::Step { .. } => drop(db.step().unwrap()),
                    _ => {}
                }
            }
            let snapshot = db.snapshot().unwrap();
            let expected = hash(&snapshot, &keyspaces, false);
            held.push((snapshot, keyspaces, expected));
            if round % 3 == 2 {
                db.flush().unwrap();
                while db.step().unwrap() {}
            }
            if round % 4 == 3 {
                let dropped = keyspace_name(round % profile.keyspace_count);
                assert!(keyspace_slot(&dropped).is_some() && db.drop_keyspace(&dropped).unwrap());
            }
            for (index, (snapshot, keyspaces, expected)) in held.iter().enumerate() {
                let found = hash(snapshot, keyspaces, round % 2 == 1);
                assert_eq!(found, *expected, "{}: snapshot {index} in round {round}", configuration.name);
            }
            db.check_invariants().unwrap();
            if held.len() > 5 {
                held.remove(usize::from(round) % 3);
            }
        }
        drop(held);
        while db.step().unwrap() {}
        db.check_invariants().unwrap();
        db.verify(testudo::VerifyLevel::Full).unwrap();
        db.close().unwrap();
    }
}

#[test]
fn a_snapshot_reads_on_after_its_keyspace_and_all_other_handles_are_gone() {
    for configuration in crash_configurations() {
        let env = MemEnv::new(6);
        let db = configuration.opener.open_db(env, DIRECTORY.as_ref()).unwrap();
        let keyspace = db.keyspace("gone", || configuration.opener.options).unwrap();
        for number in 0..300_u32 {
            keyspace.insert(number.to_be_bytes(), vec![7; 100]).unwrap();
        }
        db.flush().unwrap();
        keyspace.insert("unflushed", "too").unwrap();
        let snapshot = db.snapshot().unwrap();
        assert!(db.drop_keyspace("gone").unwrap());
        db.flush().unwrap();
        while db.step().unwrap() {}
        assert_eq!(snapshot.get(&keyspace, "unflushed").unwrap().as_deref(), Some(&b"too"[..]));
        drop(db);
        assert_eq!(snapshot.iter(&keyspace).unwrap().count(), 301);
    }
}

#[test]
fn a_run_with_one_seed_is_the_same_run() {
    for configuration in crash_configurations() {
        let script = Generator::new(&configuration.profile, 3).script(1500);
        let run = || {
            let mut runner = Runner::new(&configuration.opener, 3);
            let report = runner.run(&script).unwrap_or_else(|failure| panic!("{failure}"));
            let files = runner.machine().all_files();
            let contents: Vec<_> =
                files.iter().map(|path| checksum64(&runner.machine().file_bytes(path).unwrap(), 0)).collect();
            (report, files, contents, runner.machine().operation_count())
        };
        assert_eq!(run(), run(), "{}", configuration.name);
    }
}
