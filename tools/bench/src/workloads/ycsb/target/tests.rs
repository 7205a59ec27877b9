use testudo::{Db, Keyspace, KeyspaceOptions};

use super::Target;
use crate::workloads::ycsb::{
    keys::KeyMaker,
    oracle::Oracle,
    values::{self, Lengths},
};

const VALUE_BYTES: usize = 40;

fn with_target(check: impl FnOnce(&Target<Keyspace>)) {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::builder(dir.path()).memory_bytes(8 << 20).open().unwrap();
    let keyspace = |name| db.keyspace(name, KeyspaceOptions::default).unwrap();
    let keyspaces = vec![keyspace("even"), keyspace("odd")];
    check(&Target::new(keyspaces, KeyMaker::new(24).unwrap(), Lengths::Same(VALUE_BYTES), Oracle::new(10)));
    db.close().unwrap();
}

fn value(record: u64, version: u8) -> Vec<u8> {
    let mut value = vec![0; VALUE_BYTES];
    values::write(record, version, &mut value);
    value
}

#[test]
fn read_is_correct_only_with_the_newest_value_of_its_record() {
    with_target(|target| {
        target.oracle.turn(4).acknowledge();
        target.oracle.turn(4).acknowledge();
        let before = target.oracle.look(4);
        assert_eq!(target.judge(4, before, Some(&value(4, 2))), Ok(()));
        let mut damaged = value(4, 2);
        damaged[39] ^= 1;
        for (found, word) in [
            (None, "missing"),
            (Some(value(4, 1)), "version"),
            (Some(value(4, 4)), "version"),
            (Some(value(5, 2)), "record 5"),
            (Some(value(4, 2)[..39].to_vec()), "length"),
            (Some(damaged), "bytes"),
        ] {
            let reason = target.judge(4, before, found.as_deref()).unwrap_err();
            assert!(reason.contains(word), "{reason}");
        }
    });
}

#[test]
fn scan_entry_is_correct_only_with_its_key_and_keyspace() {
    with_target(|target| {
        let (mut key, mut other, mut room) = (Vec::new(), Vec::new(), Vec::new());
        target.keys.write(4, &mut key);
        target.keys.write(6, &mut other);
        target.oracle.turn(4).acknowledge();
        let mut judge = |keyspace, key: &[u8], value: &[u8], exact| {
            target.judge_entry(keyspace, (key, value), exact, &mut room)
        };
        assert_eq!(judge(0, &key, &value(4, 1), true), Ok((4, 1)));
        assert_eq!(judge(0, &key, &value(4, 0), false), Ok((4, 0)), "possibly a concurrent update");
        assert!(judge(0, &key, &value(4, 0), true).is_err());
        assert!(judge(0, &other, &value(4, 1), true).is_err());
        assert!(judge(1, &key, &value(4, 1), true).is_err());
        let mut beyond = Vec::new();
        target.keys.write(10, &mut beyond);
        assert!(judge(0, &beyond, &value(10, 0), true).is_err(), "never inserted");
    });
}

#[test]
fn live_bytes_exclude_removed_records() {
    with_target(|target| {
        assert_eq!(target.live_bytes(), 10 * (24 + 40));
        (0..4).for_each(|record| target.removed.add(record));
        assert_eq!(target.live_bytes(), 6 * (24 + 40));
    });
}
