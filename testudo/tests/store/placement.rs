//! Values in value segments: they are read, replaced, merged, checked and copied like any others.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, path::Path, sync::Arc};

use testudo::{
    Db, ErrorKind, Keyspace, KeyspaceOptions, Placement, SalvageOptions, Tree, TreePreset, VerifyLevel,
    salvage,
};
use testudo_db::maintenance::Stepping as _;
use testudo_env::MemEnv;
use testudo_share::{Share, some_of};

const KEYS: u64 = 3_000;

fn open(machine: &Arc<MemEnv>) -> Db {
    Db::builder(Path::new("/db")).env(machine.clone()).memory_bytes(4 << 20).open().unwrap()
}

fn trees() -> [Tree; 3] {
    let leaf_bytes = 16 << 10;
    [
        Tree::turtle().with_run_bytes(leaf_bytes).with_max_pivots(8),
        Tree::splinter().with_run_bytes(leaf_bytes).with_max_pivots(8),
        Tree::leveled().with_run_bytes(leaf_bytes).with_growth_factor(4).with_level1_flushes(2),
    ]
}

fn separated(tree: Tree) -> KeyspaceOptions {
    KeyspaceOptions::default().tree(tree).placement(Placement::separate())
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{:05}", number * 7919 % KEYS).into_bytes()
}

/// Lengths around the threshold for inline values, around a page, and beyond.
fn value(number: u64, round: u64) -> Vec<u8> {
    let lengths = [0, 31, 32, 33, 100, 1000, 4000, 4096, 9000];
    let length = lengths[usize::try_from((number + round) % 9).unwrap()];
    format!("{number}/{round}/").into_bytes().into_iter().cycle().take(length).collect()
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Writes, overwrites and removes in a few rounds, with a flush after each.
fn fill(db: &Db, keyspace: &Keyspace, rounds: std::ops::Range<u64>) -> Model {
    let mut model = Model::new();
    for round in rounds {
        for number in 0..KEYS {
            let (key, value) = (key(number), value(number, round));
            if (number + round).is_multiple_of(11) {
                keyspace.remove(&key).unwrap();
                model.remove(&key);
            } else if number % 3 <= round % 3 {
                keyspace.insert(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
        db.flush().unwrap();
    }
    model
}

fn check(keyspace: &Keyspace, model: &Model) {
    for number in 0..KEYS {
        let key = key(number);
        assert_eq!(keyspace.get(&key).unwrap().as_deref(), model.get(&key).map(Vec::as_slice));
    }
    let entries = keyspace.iter().unwrap().map(Result::unwrap);
    let entries: Model = entries.map(|e| (e.key().to_vec(), e.value().unwrap().to_vec())).collect();
    assert_eq!(entries, *model);
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    let values = keyspace.multi_get(&keys).unwrap();
    assert!(
        keys.iter().zip(values).all(|(key, value)| value.as_deref() == model.get(key).map(Vec::as_slice))
    );
}

fn verify(db: &Db) {
    let report = db.verify(VerifyLevel::Full).unwrap();
    assert!(report.is_valid(), "{:?}", report.findings);
}

#[test]
fn separated_values_are_read_like_inline_values() {
    for tree in trees() {
        let machine = MemEnv::new(1);
        let db = open(&machine);
        let keyspace = db.keyspace("k", separated(tree)).unwrap();
        let model = fill(&db, &keyspace, 0..5);
        check(&keyspace, &model);
        verify(&db);
        let stats = keyspace.stats();
        assert!(stats.values.segments > 0 && stats.values.bytes > stats.tree.leaf_bytes, "{stats:?}");
        drop(keyspace);
        db.close().unwrap();
        let db = open(&machine);
        check(&db.keyspace("k", separated(tree)).unwrap(), &model);
        verify(&db);
    }
}

#[test]
fn medium_values_are_readable_at_every_level() {
    let rounds = if Share::from_environment() == Share::Whole { 8 } else { 4 };
    for tree in some_of(trees(), 3, 2) {
        let machine = MemEnv::new(1);
        let db = open(&machine);
        // Values from 108 bytes are medium, from 1,188 bytes large.
        let placement = Placement::by_ratios(12, 0.1, 0.01).unwrap();
        let options = KeyspaceOptions::default().tree(tree).placement(placement);
        let keyspace = db.keyspace("k", options).unwrap();
        let (mut model, mut transient_bytes) = (Model::new(), 0);
        for round in 0..rounds {
            model = fill(&db, &keyspace, 0..round + 1);
            let stats = keyspace.stats();
            assert!(stats.values.dead_transient_bytes <= stats.values.transient_bytes, "{stats:?}");
            assert!(stats.values.transient_bytes < stats.values.bytes, "{stats:?}");
            transient_bytes += stats.values.transient_bytes;
        }
        assert!(transient_bytes > 0, "{tree}");
        check(&keyspace, &model);
        verify(&db);
        drop(keyspace);
        db.close().unwrap();
        let db = open(&machine);
        check(&db.keyspace("k", options).unwrap(), &model);
        verify(&db);
    }
}

/// A merge moves whole keys, next to a value as next to a reference: outside, a short value saves nothing.
#[test]
fn short_values_of_long_keys_stay_with_their_keys() {
    const KEYS: u32 = 400;
    for tree in trees() {
        let machine = MemEnv::new(1);
        let db = open(&machine);
        let outside = [100, 1_535, 1_536].map(|value_bytes| {
            let options = KeyspaceOptions::default().tree(tree);
            let keyspace = db.keyspace(&format!("values of {value_bytes}"), options).unwrap();
            let key = |number: u32| format!("{number:04000}").into_bytes();
            (0..KEYS).for_each(|number| keyspace.insert(key(number), vec![7; value_bytes]).unwrap());
            db.flush().unwrap();
            for number in 0..KEYS {
                assert_eq!(keyspace.get(key(number)).unwrap().unwrap(), vec![7; value_bytes]);
            }
            keyspace.stats().values.bytes
        });
        assert_eq!(outside[..2], [0, 0], "{tree}");
        assert!(outside[2] > u64::from(KEYS) * 1_536 / 2, "{tree}: {} bytes are outside", outside[2]);
        verify(&db);
    }
}

#[test]
fn presets_are_known_by_their_names() {
    for (name, preset) in TreePreset::all() {
        assert_eq!(name.parse::<TreePreset>().unwrap(), preset);
        assert_eq!(preset.to_string(), name);
    }
    let parallax = KeyspaceOptions::default().tree(Tree::parallax());
    assert_eq!(
        (parallax.get_tree(), parallax.get_placement()),
        (Tree::leveled(), Placement::hybrid().with_moving_thresholds(true))
    );
    assert_eq!(parallax.placement(Placement::inline()).get_tree(), Tree::leveled());
    let placed = KeyspaceOptions::default().placement(Placement::separate());
    assert_eq!(placed.tree(Tree::splinter()).get_placement(), Placement::separate());
    let error = "oak".parse::<TreePreset>().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("turtle") && error.to_string().contains("parallax"), "{error}");
}

#[test]
fn a_switch_to_parallax_persists() {
    let machine = MemEnv::new(1);
    let open = || Db::builder(Path::new("/db")).env(machine.clone()).memory_bytes(64 << 20).open().unwrap();
    let is_parallax = |keyspace: &Keyspace| {
        let options = keyspace.options();
        (options.get_tree().to_string(), options.get_placement())
            == ("leveled".to_owned(), Placement::hybrid().with_moving_thresholds(true))
    };
    let db = open();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    keyspace.insert("k", "v").unwrap();
    keyspace.set_tree(Tree::parallax()).unwrap();
    assert!(is_parallax(&keyspace));
    while db.step().unwrap() {}
    drop(keyspace);
    db.close().unwrap();

    let db = open();
    let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
    assert!(is_parallax(&keyspace));
    assert_eq!(keyspace.get("k").unwrap().as_deref(), Some(&b"v"[..]));
    // A change of the tree alone leaves the placement unchanged.
    keyspace.set_tree(Tree::treeline()).unwrap();
    assert_eq!(keyspace.placement(), Placement::hybrid().with_moving_thresholds(true));
}

/// The page of a reference serves many keys, but the page of a value does not.
#[test]
fn separated_values_are_cached_as_records() {
    let machine = MemEnv::new(1);
    let open = || Db::builder(Path::new("/db")).env(machine.clone()).memory_bytes(64 << 20).open().unwrap();
    let db = open();
    let keyspace = db.keyspace("k", separated(Tree::turtle())).unwrap();
    let value = |number: u64| vec![number.to_le_bytes()[0]; 2_000];
    for number in 0..500 {
        keyspace.insert(key(number), value(number)).unwrap();
    }
    drop(keyspace);
    db.close().unwrap();
    let db = open();
    let keyspace = db.open_keyspace("k").unwrap().unwrap();
    db.flush().unwrap();
    for round in 0..2 {
        for number in 0..500 {
            assert_eq!(keyspace.get(key(number)).unwrap().unwrap(), value(number));
        }
        let stats = db.stats();
        assert!(stats.record_cache.inserts >= 500, "{} are cached", stats.record_cache.inserts);
        assert!(stats.record_cache.hits >= round * 490, "{} were found there", stats.record_cache.hits);
    }
}

#[test]
fn snapshots_keep_the_values_they_show() {
    for tree in some_of(trees(), 3, 0) {
        let machine = MemEnv::new(1);
        let db = open(&machine);
        let keyspace = db.keyspace("k", separated(tree)).unwrap();
        let model = fill(&db, &keyspace, 0..2);
        let snapshot = db.snapshot().unwrap();
        fill(&db, &keyspace, 2..9);
        for number in 0..KEYS {
            let key = key(number);
            assert_eq!(snapshot.get(&keyspace, &key).unwrap().as_deref(), model.get(&key).map(Vec::as_slice));
        }
        verify(&db);
    }
}

#[test]
fn operands_change_separated_values() {
    for tree in trees() {
        let machine = MemEnv::new(1);
        let db = open(&machine);
        let keyspace = db.keyspace("k", separated(tree).merge_operator("append")).unwrap();
        let mut model = fill(&db, &keyspace, 0..2);
        for round in 0..6 {
            for number in (0..KEYS).filter(|number| (number + round) % 3 == 0) {
                keyspace.merge(key(number), b"+").unwrap();
                model.entry(key(number)).or_default().push(b'+');
            }
            db.flush().unwrap();
            check(&keyspace, &model);
        }
        verify(&db);
    }
}

#[test]
fn a_changed_placement_applies_to_later_writes() {
    for tree in some_of(trees(), 3, 1) {
        let machine = MemEnv::new(1);
        let db = open(&machine);
        let options = KeyspaceOptions::default().tree(tree).placement(Placement::inline());
        let keyspace = db.keyspace("k", options).unwrap();
        let mut model = fill(&db, &keyspace, 0..2);
        assert_eq!(keyspace.stats().values.segments, 0);
        for (round, placement) in
            [Placement::separate(), Placement::inline(), Placement::hybrid()].into_iter().enumerate()
        {
            keyspace.set_placement(placement).unwrap();
            assert_eq!(keyspace.placement(), placement);
            check(&keyspace, &model);
            for number in (0..KEYS).filter(|number| number % 3 == round as u64) {
                keyspace.insert(key(number), value(number, 77)).unwrap();
                model.insert(key(number), value(number, 77));
            }
            db.flush().unwrap();
            check(&keyspace, &model);
            verify(&db);
        }
        drop(keyspace);
        db.close().unwrap();
        let db = open(&machine);
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        assert_eq!(keyspace.placement(), Placement::hybrid());
        check(&keyspace, &model);
    }
}

/// Flips a byte in the middle of the only value with `pattern`, where its page has nothing else; returns the
/// page number in the data file.
fn damage(machine: &MemEnv, pattern: &[u8]) -> u64 {
    let bytes = machine.file_bytes("/db/data").unwrap();
    let found = bytes.windows(pattern.len()).enumerate().filter(|(_, window)| *window == pattern);
    let found: Vec<usize> = found.map(|(at, _)| at).collect();
    let at = found[found.len() / 2];
    machine.corrupt("/db/data", at as u64, 1).unwrap();
    at as u64 / 4096
}

/// A closed store with large values; each value names its key.
fn store_of_long_values(tree: Tree) -> Arc<MemEnv> {
    let machine = MemEnv::new(1);
    let db = open(&machine);
    let keyspace = db.keyspace("k", separated(tree)).unwrap();
    for number in 0..200 {
        keyspace.insert(key(number), long_value(number)).unwrap();
    }
    db.flush().unwrap();
    drop(keyspace);
    db.close().unwrap();
    machine
}

fn long_value(number: u64) -> Vec<u8> {
    format!("<{number:03}>").into_bytes().into_iter().cycle().take(13_000).collect()
}

#[test]
fn only_reads_of_a_damaged_value_fail() {
    for tree in trees() {
        let machine = store_of_long_values(tree);
        let page = damage(&machine, b"<077><077>");
        let db = open(&machine);
        let keyspace = db.keyspace("k", KeyspaceOptions::default()).unwrap();
        for number in 0..200 {
            let read = keyspace.get(key(number));
            if number == 77 {
                let error = read.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corruption);
                let (file, offset) = error.location().unwrap();
                assert_eq!(file, "data");
                assert!(offset / 4096 <= page && page < offset / 4096 + 2, "{error}");
            } else {
                assert_eq!(read.unwrap().as_deref(), Some(&long_value(number)[..]));
            }
        }
        let report = db.verify(VerifyLevel::Full).unwrap();
        assert!(!report.is_valid());
        keyspace.insert(key(77), "new").unwrap();
        db.flush().unwrap();
        assert_eq!(keyspace.get(key(77)).unwrap().as_deref(), Some(&b"new"[..]));
    }
}

#[test]
fn salvage_finds_values_and_names_lost_ones_with_or_without_manifest() {
    for (tree, has_manifest) in trees().into_iter().flat_map(|tree| [(tree, true), (tree, false)]) {
        let machine = store_of_long_values(tree);
        // A value that is no longer in the log.
        damage(&machine, b"<017><017>");
        if !has_manifest {
            for file in machine.all_files() {
                if file.to_string_lossy().contains("manifest") {
                    machine.replace(&file, b"").unwrap();
                }
            }
        }
        let options = SalvageOptions::new("/db", "/salvaged").env(machine.clone()).memory_bytes(4 << 20);
        let report = salvage(options).unwrap();
        let of_keyspace = &report.keyspaces[0];
        assert_eq!(of_keyspace.records, 199, "{report:?}");
        let is_named = |low: &[u8], high: Option<&[u8]>| {
            low <= &key(17)[..] && high.is_none_or(|high| &key(17)[..] < high)
        };
        let ranges = &of_keyspace.lost_ranges;
        assert!(ranges.iter().any(|lost| is_named(&lost.low, lost.high.as_deref())), "{report:?}");
        let db = Db::builder(Path::new("/salvaged")).env(machine.clone()).open().unwrap();
        let keyspace = db.keyspace(&of_keyspace.name, KeyspaceOptions::default()).unwrap();
        for number in (0..200).filter(|number| *number != 17) {
            assert_eq!(keyspace.get(key(number)).unwrap().as_deref(), Some(&long_value(number)[..]));
        }
        assert_eq!(keyspace.get(key(17)).unwrap(), None);
    }
}
