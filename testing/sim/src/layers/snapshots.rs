#![expect(clippy::unwrap_used, reason = "the layer reports a panic as a failure")]
//! Snapshots show the same content throughout their lifetime, whatever happens to the store meanwhile.
//!
//! **Invariants**
//! - A snapshot is hashed when it is taken, and compared with that hash until it is dropped.

use testudo_base::checksum::checksum64;
use testudo_db::maintenance::Stepping as _;
use testudo_env::MemEnv;
use testudo_testkit::{
    Campaign, Generator, Profile, Weights,
    configuration::{Configuration, crash_configurations},
    engine_store::DIRECTORY,
    op::Op,
    operator::operator_name,
    store::{keyspace_name, keyspace_slot},
};

use crate::{
    Limits,
    sweep::{Enough, Outcome, chosen, counted, judge, search},
};

pub(crate) const NAME: &str = "snapshots";
pub(crate) const UNIT: &str = "ops";

/// Operations of one script.
const OP_COUNT: usize = 2_500;
/// One script per configuration.
const OPS_SHORT: u64 = 48_000;

/// Many snapshots, read and compared often, between flushes and drops.
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

/// Runs the layer.
pub fn run(limits: &Limits) -> Outcome {
    let configurations = chosen(NAME, limits, crash_configurations())?;
    let profile = profile();
    let op_count = limits.script_length(OP_COUNT);
    let enough = Enough { unit: UNIT, count: limits.share_or(OPS_SHORT) };
    search(
        limits,
        &configurations,
        enough,
        |_| Ok(()),
        |configuration, seed| {
            judge(NAME, Some(&configuration.name), Some(seed), || {
                let campaign = Campaign { opener: &configuration.opener, profile: &profile, op_count };
                let mut report = campaign.run(seed)?.into();
                hashes_are_stable(configuration, seed);
                reads_on_after_its_keyspace_is_gone(configuration, seed);
                crate::LayerReport::merge(&mut report, counted("hashed rounds", ROUNDS.into()));
                Ok(report)
            })
        },
    )
}

/// Rounds of writes and snapshots of one hash test.
const ROUNDS: u8 = 12;

/// Hashes all content of a snapshot, read forward or backward.
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

/// Holds snapshots while their keyspaces are rewritten and dropped.
fn hashes_are_stable(configuration: &Configuration, seed: u64) {
    let env = MemEnv::new(seed);
    let db = configuration.opener.open_db(env, DIRECTORY.as_ref()).unwrap();
    let options = |slot| configuration.opener.options.merge_operator(operator_name(slot));
    let open = |slot| db.keyspace(&keyspace_name(slot), || options(slot)).unwrap();
    let profile = Profile { key_count: 200, ..Profile::default() };
    let mut generator = Generator::new(&profile, seed);
    let mut held: Vec<(testudo::Snapshot, Vec<testudo::Keyspace>, u64)> = Vec::new();
    for round in 0..ROUNDS {
        let keyspaces: Vec<_> = (0..profile.keyspace_count).map(open).collect();
        for op in generator.script(400).0 {
            match op {
                Op::Insert { keyspace, key, value } => {
                    keyspaces[usize::from(keyspace)].insert(key.bytes(), value.bytes()).unwrap();
                }
                Op::Remove { keyspace, key } => keyspaces[usize::from(keyspace)].remove(key.bytes()).unwrap(),
                Op::Merge { keyspace, key, operand } => {
                    keyspaces[usize::from(keyspace)].merge(key.bytes(), operand.bytes()).unwrap();
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

/// Only the snapshot still holds a keyspace.
fn reads_on_after_its_keyspace_is_gone(configuration: &Configuration, seed: u64) {
    let env = MemEnv::new(seed);
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
