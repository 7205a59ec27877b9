//! First and last entry, emptiness, count and prefixes, in every tree.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, path::Path, sync::Arc};

use testudo::{
    Db, KeyspaceOptions, ReadView, TreePreset,
    env::{Env, MemEnv},
};

type Model = BTreeMap<String, String>;

fn check(view: &dyn ReadView, model: &Model) {
    let key = |entry: Option<testudo::Entry>| {
        entry.map(|entry| (String::from_utf8(entry.key().to_vec()).unwrap(), entry.value().unwrap().to_vec()))
    };
    let expected =
        |entry: Option<(&String, &String)>| entry.map(|(k, v)| (k.clone(), v.clone().into_bytes()));
    assert_eq!(key(view.first().unwrap()), expected(model.first_key_value()));
    assert_eq!(key(view.last().unwrap()), expected(model.last_key_value()));
    assert_eq!(view.is_empty().unwrap(), model.is_empty());
    assert_eq!(view.len().unwrap(), model.len() as u64);
    for prefix in ["", "0", "03", "29", "9", "x"] {
        let has_prefix = model.keys().any(|key| key.starts_with(prefix));
        assert_eq!(view.contains_prefix(prefix.as_bytes()).unwrap(), has_prefix, "{prefix}");
    }
}

/// Removes from both ends, so that tombstones lie in front of the first and behind the last entry.
#[test]
fn ends_counts_and_prefixes_match_a_model() {
    for (name, preset) in TreePreset::all() {
        let env: Arc<dyn Env> = MemEnv::new(7);
        let db = Db::builder(Path::new("/db")).memory_bytes(1 << 20).env(env).open().unwrap();
        let keyspace = db.keyspace(name, KeyspaceOptions::default().tree(preset)).unwrap();
        let mut model = Model::new();
        check(&keyspace, &model);
        for n in 0..300_u32 {
            let (key, value) = (format!("{:03}", n * 7 % 300), format!("{n}{}", "v".repeat(200)));
            keyspace.insert(&key, &value).unwrap();
            model.insert(key, value);
        }
        db.flush().unwrap();
        check(&keyspace, &model);
        let (snapshot, before) = (db.snapshot().unwrap(), model.clone());
        for n in (0..40).chain(270..300) {
            let key = format!("{n:03}");
            keyspace.remove(&key).unwrap();
            model.remove(&key);
        }
        check(&keyspace, &model);
        db.flush().unwrap();
        check(&keyspace, &model);
        check(&snapshot.keyspace(&keyspace).unwrap(), &before);
        for key in std::mem::take(&mut model).into_keys() {
            keyspace.remove(key).unwrap();
        }
        check(&keyspace, &model);
        db.compact().unwrap();
        check(&keyspace, &model);
    }
}
