//! Errors of damage state its location: file, offset, and the keyspace that it belongs to.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{path::Path, sync::Arc};

use testudo::{Db, Error, ErrorKind, Keyspace, KeyspaceOptions, Tree, VerifyLevel};
use testudo_env::MemEnv;

const KEYS: u32 = 2_000;

fn open(machine: &Arc<MemEnv>) -> Db {
    let builder = Db::builder(Path::new("/db")).env(machine.clone()).memory_bytes(4 << 20);
    builder.record_cache(false).open().unwrap()
}

fn value(keyspace: &str, number: u32) -> Vec<u8> {
    format!("<{keyspace} {number:05}>").repeat(20).into_bytes()
}

/// A closed store with two keyspaces, one of which has a damaged page.
fn damaged_store(tree: Tree) -> Arc<MemEnv> {
    let machine = MemEnv::new(1);
    let db = open(&machine);
    for name in ["sound", "hurt"] {
        let keyspace = db.keyspace(name, KeyspaceOptions::default().tree(tree)).unwrap();
        for number in 0..KEYS {
            keyspace.insert(number.to_be_bytes(), value(name, number)).unwrap();
        }
    }
    db.flush().unwrap();
    db.compact().unwrap();
    db.close().unwrap();
    let data = machine.file_bytes("/db/data").unwrap();
    let wanted = value("hurt", KEYS / 2);
    let places = data.windows(wanted.len()).enumerate().filter(|(_, window)| *window == wanted);
    let places: Vec<usize> = places.map(|(at, _)| at).collect();
    assert!(!places.is_empty());
    places.into_iter().for_each(|at| machine.corrupt("/db/data", at as u64, 1).unwrap());
    machine
}

fn check(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert_eq!(error.location().map(|(file, _)| file), Some("data"), "{error}");
    assert_eq!(error.keyspace(), Some("hurt"), "{error}");
    assert!(error.to_string().ends_with(r#" (keyspace "hurt")"#), "{error}");
}

fn first_error(keyspace: &Keyspace, reverse: bool) -> Error {
    let mut entries = keyspace.iter().unwrap();
    let failed = if reverse { entries.rfind(Result::is_err) } else { entries.find(Result::is_err) };
    failed.unwrap().unwrap_err()
}

#[test]
fn every_kind_of_read_names_the_damaged_keyspace() {
    for (name, tree) in Tree::presets() {
        let machine = damaged_store(tree);
        let db = open(&machine);
        let keyspace = db.open_keyspace("hurt").unwrap().unwrap();
        let key = (KEYS / 2).to_be_bytes();
        check(&keyspace.get(key).unwrap_err());
        check(&keyspace.contains_key(key).unwrap_err());
        check(&keyspace.multi_get(&[key]).unwrap_err());
        check(&keyspace.update(key, |_| None).unwrap_err());
        check(&first_error(&keyspace, false));
        check(&first_error(&keyspace, true));
        let snapshot = db.snapshot().unwrap().keyspace(&keyspace).unwrap();
        check(&snapshot.get(key).unwrap_err());
        check(&snapshot.multi_get(&[key]).unwrap_err());
        check(&snapshot.iter().unwrap().find_map(Result::err).unwrap());

        let report = db.verify(VerifyLevel::Full).unwrap();
        assert!(!report.findings.is_empty(), "{name}");
        for finding in &report.findings {
            assert_eq!(finding.keyspace.as_deref(), Some("hurt"), "{name}: {finding:?}");
        }
        let sound = db.open_keyspace("sound").unwrap().unwrap();
        assert_eq!(sound.get(key).unwrap().as_deref(), Some(&value("sound", KEYS / 2)[..]));
    }
}

#[test]
fn errors_other_than_damage_name_no_keyspace() {
    let machine = MemEnv::new(1);
    let db = open(&machine);
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    db.close().unwrap();
    let error = keyspace.get("a").unwrap_err();
    assert_eq!((error.kind(), error.keyspace()), (ErrorKind::Closed, None));
}
