//! The governor's view of keyspaces.

use std::sync::Arc;

use testudo_env::{Env, MemEnv};
use testudo_flush::govern::govern_memory::cost_of_writing;
use testudo_options::KeyspaceOptions;

use crate::{Db, Keyspace};

fn write(keyspace: &Keyspace, records: u32) {
    for number in 0..records {
        keyspace.insert(number.to_be_bytes(), [7; 100]).unwrap();
    }
}

#[test]
fn governor_weights_keyspaces_by_their_buffered_bytes() {
    let env = MemEnv::new(1) as Arc<dyn Env>;
    let db = Db::builder("/db").env(env).memory_bytes(16 << 20).open().unwrap();
    let names: Vec<String> = (0..200).map(|number| format!("k{number}")).collect();
    let open = |name: &String| db.keyspace(name, KeyspaceOptions::default()).unwrap();
    let keyspaces: Vec<Keyspace> = names.iter().map(open).collect();
    let counted = || cost_of_writing(db.store()).keyspaces;
    let check = |expected: std::ops::Range<f64>, when: &str| {
        assert!(expected.contains(&counted()), "{when}: {}", counted());
    };
    check(1.0..1.01, "nothing was written");
    write(&keyspaces[0], 5000);
    check(1.0..1.01, "one is written to");
    db.flush().unwrap();
    check(1.0..1.01, "it was flushed");
    keyspaces.iter().for_each(|keyspace| write(keyspace, 3));
    check(190.0..200.01, "all are written to");
    write(&keyspaces[0], 20_000);
    check(1.0..2.5, "all hold a little, and one much");
}
