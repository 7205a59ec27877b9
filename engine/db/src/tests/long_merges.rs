//! The maximum entry length, reduced for the test: keys gain operands from opening to opening.

use std::{collections::BTreeMap, path::Path};

use testudo_base::{Error, ErrorKind, merge_operator::MergeFunction, sync::Arc};
use testudo_env::{Env, MemEnv};
use testudo_options::{KeyspaceOptions, Tree};

use crate::{Db, Keyspace, VerifyLevel};

/// Half of the maximum entry length; the other half is for accepted operands still in flight.
const UNREAD_MAX: usize = 300_000;
const OPERAND: usize = 60_000;
const KEYS: [&str; 4] = ["a", "b", "c", "d"];

fn open(machine: &Arc<MemEnv>, tree: Tree, operator: &str) -> (Db, Keyspace) {
    let env = Arc::clone(machine) as Arc<dyn Env>;
    let refusing = |_: &[u8], _: Option<&[u8]>, _: &[&[u8]]| Err(Error::invalid("not today"));
    let joining = |_: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]| {
        Ok([existing.unwrap_or_default(), &operands.concat()].concat())
    };
    let db = Db::builder(Path::new("/db"))
        .env(env)
        .memory_bytes(1 << 20)
        .merge_operator(Arc::new(MergeFunction::new("refusing", refusing)))
        .merge_operator(Arc::new(MergeFunction::new("joining", joining)))
        .open()
        .unwrap();
    db.store().merging.oversized_keys.set_unread_bytes_max(UNREAD_MAX as u64);
    let options = KeyspaceOptions::default().merge_operator(operator).tree(tree);
    let keyspace = db.keyspace("k", options).unwrap();
    (db, keyspace)
}

/// Stored length for each key, merged or not.
fn lengths(keyspace: &Keyspace) -> BTreeMap<String, usize> {
    let length = |entry: testudo_base::Result<crate::Entry>| {
        let entry = entry.unwrap();
        let bytes = entry.value().map(|value| value.len()).unwrap_or_else(|_| {
            let unmerged = entry.base_with_operands().unwrap();
            let operands: usize = unmerged.operands.iter().map(|operand| operand.len()).sum();
            unmerged.base.map_or(0, <[u8]>::len) + operands
        });
        (String::from_utf8(entry.key().to_vec()).unwrap(), bytes)
    };
    keyspace.iter().unwrap().map(length).collect()
}

#[test]
fn operands_added_across_openings_never_exceed_the_longest_entry() {
    for (_, tree) in Tree::presets() {
        for operator in ["append", "joining", "refusing"] {
            let machine = MemEnv::new(1);
            let mut accepted: BTreeMap<String, usize> = BTreeMap::new();
            let mut refused = 0;
            for round in 0..40u8 {
                let (db, keyspace) = open(&machine, tree, operator);
                for key in KEYS {
                    match keyspace.merge(key, [round; OPERAND]) {
                        Ok(()) => *accepted.entry(key.to_owned()).or_default() += OPERAND,
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
                            refused += 1;
                        }
                    }
                }
                if round % 3 > 0 {
                    db.flush().unwrap();
                }
                if round % 5 == 0 {
                    db.compact().unwrap();
                }
                // No accepted operand is lost, and no entry exceeds the maximum.
                let lengths = lengths(&keyspace);
                assert_eq!(lengths, accepted, "{operator}, round {round}");
                assert!(lengths.values().all(|&bytes| bytes <= 2 * UNREAD_MAX), "{operator}: {lengths:?}");
                db.close().unwrap();
            }
            assert!(refused >= 40, "{operator}: {refused} refused");
            let (db, keyspace) = open(&machine, tree, operator);
            // Such a key can be removed, and then behaves like any other.
            for key in KEYS {
                keyspace.remove(key).unwrap();
                keyspace.merge(key, "anew").unwrap();
            }
            db.compact().unwrap();
            assert!(lengths(&keyspace).values().all(|&bytes| bytes == 4));
            assert!(
                db.verify(VerifyLevel::Full)
                    .unwrap()
                    .findings
                    .iter()
                    .all(|finding| { operator == "refusing" && finding.to_string().contains("not today") })
            );
        }
    }
}
