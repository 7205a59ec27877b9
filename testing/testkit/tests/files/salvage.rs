#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
//! Salvage of damaged stores: records not reported as lost have their right value, and no record is invented.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use testudo::{
    Db, Durability, ErrorKind, KeyspaceOptions, Placement, SalvageMethod, SalvageOptions, SalvageReport,
    Tree, VerifyLevel, salvage,
};
use testudo_db::maintenance::Stepping as _;
use testudo_env::{CrashPolicy, Env, MemEnv, SplitMix};
use testudo_testkit::{
    busy_store::{Contents, contents_of},
    store::Pair,
};

const PAGE: usize = 4096;
const NAMES: [&str; 3] = ["alpha", "beta", "emptied"];

/// A store in its final state, its expected content, and every value ever written.
struct Subject {
    machine: Arc<MemEnv>,
    expected: Contents,
    history: BTreeMap<String, BTreeSet<Pair>>,
}

impl Subject {
    /// Creates a store with multi-level trees, many removals, an emptied and a dropped keyspace, and a log.
    fn new(clean: bool, rounds: u64, log_commits: u64) -> Self {
        let machine = MemEnv::new(3);
        let db = Db::builder("/db").memory_bytes(1 << 20).env(machine.clone()).open().unwrap();
        let options =
            KeyspaceOptions::default().tree(Tree::turtle().with_run_bytes(4 << 10).with_max_pivots(4));
        let mut history: BTreeMap<String, BTreeSet<_>> = BTreeMap::new();
        let mut random = SplitMix::new(11);
        let dropped = db.keyspace("dropped", || options).unwrap();
        (0..50).for_each(|n| dropped.insert(format!("gone{n}"), "gone").unwrap());
        let of_dropped = (0..50).map(|n| (format!("gone{n}").into_bytes(), b"gone".to_vec())).collect();
        history.insert("dropped".to_owned(), of_dropped);
        let mut note = |name: &str, key: &str, value: &[u8]| {
            history.entry(name.to_owned()).or_default().insert((key.as_bytes().to_vec(), value.to_vec()));
        };
        for round in 0..rounds {
            for name in NAMES {
                // One keyspace with its values inline, one with separated values.
                let placement = if name == "beta" { Placement::separate() } else { Placement::inline() };
                let keyspace = db.keyspace(name, || options.placement(placement)).unwrap();
                for _ in 0..40 {
                    let key = format!("key{:04}", random.below(400));
                    if random.percent(if round % 3 == 2 { 60 } else { 10 }) {
                        keyspace.remove(&key).unwrap();
                        continue;
                    }
                    let length = if random.below(60) == 0 { 9000 } else { 20 + random.below(150) };
                    let byte = random.next_u64().to_le_bytes()[0];
                    let value = vec![byte; usize::try_from(length).unwrap()];
                    note(name, &key, &value);
                    keyspace.insert(&key, &value).unwrap();
                }
            }
            if round == 3 {
                db.flush().unwrap();
                db.drop_keyspace("dropped").unwrap();
            }
            db.flush().unwrap();
            while round % 4 == 1 && db.step().unwrap() {}
        }
        let emptied = db.open_keyspace("emptied").unwrap().unwrap();
        (0..400).for_each(|n| emptied.remove(format!("key{n:04}")).unwrap());
        db.flush().unwrap();
        while db.step().unwrap() {}
        for n in 0..log_commits {
            let mut batch = db.batch();
            for name in ["alpha", "beta"] {
                let key = format!("key{:04}", random.below(450));
                let value = format!("log {n} {}", "x".repeat(usize::try_from(random.below(300)).unwrap()));
                note(name, &key, value.as_bytes());
                batch.insert(&db.open_keyspace(name).unwrap().unwrap(), &key, &value);
            }
            batch.durability(Durability::Sync).commit().unwrap();
        }
        let expected = contents_of(&db).unwrap();
        if clean {
            db.close().unwrap();
        }
        Self { machine: machine.crash_image(&CrashPolicy::KEEP_ALL, 1), expected, history }
    }

    fn copy(&self) -> Arc<MemEnv> {
        self.machine.crash_image(&CrashPolicy::KEEP_ALL, 1)
    }

    fn files(&self, prefix: &str) -> Vec<PathBuf> {
        let start = format!("/db/{prefix}");
        let paths = self.machine.all_files();
        paths.into_iter().filter(|path| path.to_str().unwrap().starts_with(&start)).collect()
    }

    /// Salvages; checks that the source is unchanged and the target is a valid store.
    fn salvage(&self, machine: &Arc<MemEnv>, older_versions: bool) -> (SalvageReport, Contents) {
        let options = options(machine, older_versions);
        let before: Vec<_> =
            machine.all_files().into_iter().map(|path| machine.file_bytes(path).unwrap()).collect();
        let report = salvage(options).unwrap();
        let source = machine.all_files().into_iter().filter(|path| path.starts_with("/db"));
        let after: Vec<_> = source.map(|path| machine.file_bytes(path).unwrap()).collect();
        assert!(before == after, "the source was changed");
        let db = Db::builder("/new").memory_bytes(1 << 20).env(machine.clone()).create(false).open().unwrap();
        assert_eq!(db.verify(VerifyLevel::Full).unwrap().findings, []);
        let mut found = contents_of(&db).unwrap();
        for keyspace in &report.keyspaces {
            let Some(name) = &keyspace.older_keyspace else { continue };
            let older = found.remove(name).unwrap();
            assert!(!older_versions && older.len() as u64 == keyspace.older_records);
            // Each key is in a lost range and has one of its earlier values.
            let is_lost = |key: &[u8]| keyspace.lost_ranges.iter().any(|range| range.contains(key));
            assert!(older.iter().all(|(key, _)| is_lost(key)) || !report.log.lost.is_empty(), "{name}");
            self.check_history(&Contents::from([(keyspace.name.clone(), older)]));
        }
        let written: u64 = report.keyspaces.iter().map(|keyspace| keyspace.records).sum();
        assert_eq!(written, found.values().map(|pairs| pairs.len() as u64).sum());
        if report.method == SalvageMethod::Scan {
            // Without a manifest a dropped keyspace looks live while its pages exist.
            found.remove("dropped");
        }
        (report, found)
    }

    /// Checks that every record outside the lost ranges has its right value, and that no other record exists.
    #[track_caller]
    fn check_ranges(&self, report: &SalvageReport, found: &Contents, what: &str) {
        for (name, pairs) in &self.expected {
            let found: BTreeMap<_, _> = found[name].iter().cloned().collect();
            let keyspace = report.keyspaces.iter().find(|keyspace| keyspace.name == *name).unwrap();
            let mut missing = 0;
            for (key, value) in pairs {
                let is_lost = keyspace.lost_ranges.iter().any(|range| range.contains(key));
                match found.get(key) {
                    Some(salvaged) => assert!(salvaged == value, "{what}: {name} {key:?} has a wrong value"),
                    None => {
                        missing += 1;
                        assert!(is_lost, "{what}: {name} {:?} is missing", String::from_utf8_lossy(key));
                    }
                }
            }
            assert_eq!(found.len() + missing, pairs.len(), "{what}: {name} has removed records");
        }
        assert!(self.expected.keys().eq(found.keys()), "{what}: {:?}", found.keys());
    }

    /// Checks that only written records are present.
    fn check_history(&self, found: &Contents) {
        for (name, pairs) in found {
            for pair in pairs {
                // A keyspace that lost its name may match any of them.
                let may_be = |of: &String| name == of || name.starts_with("recovered-");
                let was_written = self.history.iter().any(|(of, pairs)| may_be(of) && pairs.contains(pair));
                assert!(was_written, "{name} {:?} was never written", pair.0);
            }
        }
    }
}

fn options(machine: &Arc<MemEnv>, older_versions: bool) -> SalvageOptions<'static> {
    SalvageOptions::new("/db", "/new")
        .env(machine.clone())
        .memory_bytes(1 << 20)
        .older_versions(older_versions)
}

fn zero_page(machine: &MemEnv, page: usize) {
    let mut bytes = machine.file_bytes("/db/data").unwrap();
    let end = bytes.len().min((page + 1) * PAGE);
    bytes[page * PAGE..end].fill(0);
    machine.replace("/db/data", &bytes).unwrap();
}

fn full_pages(machine: &MemEnv) -> Vec<usize> {
    let bytes = machine.file_bytes("/db/data").unwrap();
    let pages = bytes.chunks(PAGE).enumerate();
    pages.filter(|(_, page)| page.iter().any(|&byte| byte != 0)).map(|(number, _)| number).collect()
}

#[test]
fn a_valid_store_is_salvaged_exactly() {
    for clean in [true, false] {
        let subject = Subject::new(clean, 8, 60);
        let (report, found) = subject.salvage(&subject.copy(), false);
        assert!(report.is_complete() && report.findings.is_empty(), "{report:?}");
        assert_eq!(report.method, SalvageMethod::Manifest);
        assert!(found == subject.expected);
    }
}

#[test]
fn a_store_without_its_manifest_is_salvaged_exactly() {
    for clean in [true, false] {
        let subject = Subject::new(clean, 12, 60);
        let [path] = &subject.files("manifest-")[..] else { panic!("one manifest") };
        let length = subject.machine.file_bytes(path).unwrap().len();
        let mut damaged = Vec::new();
        let deleted = subject.copy();
        deleted.remove_file(path).unwrap();
        damaged.push(("deleted".to_owned(), deleted));
        let zeroed = subject.copy();
        zeroed.replace(path, &vec![0; length]).unwrap();
        damaged.push(("zeroed".to_owned(), zeroed));
        for cut in (0..length).step_by(PAGE * 3) {
            let shorter = subject.copy();
            shorter.truncate(path, cut as u64).unwrap();
            damaged.push((format!("cut to {cut}"), shorter));
        }
        for (what, machine) in damaged {
            let (report, found) = subject.salvage(&machine, false);
            assert_eq!(report.method, SalvageMethod::Scan, "{what}");
            assert!(!report.findings.is_empty() && !report.is_complete(), "{what}: {report:?}");
            // Without a manifest an emptied keyspace is known only while some of its data is on disk.
            subject.check_ranges(&report, &found, &what);
            assert!(found == subject.expected, "{what}: {report:?}");
        }
    }
}

#[test]
fn a_store_without_its_superblock_is_salvaged_exactly() {
    for clean in [true, false] {
        let subject = Subject::new(clean, 8, 60);
        let path = Path::new("/db/superblock");
        let deleted = subject.copy();
        deleted.remove_file(path).unwrap();
        let zeroed = subject.copy();
        zeroed.replace(path, &vec![0; 2 * PAGE]).unwrap();
        let without_log = subject.copy();
        without_log.remove_file(path).unwrap();
        for segment in subject.files("wal-") {
            without_log.corrupt(segment, 30, 0xff).unwrap();
        }
        for (what, machine, has_log) in
            [("deleted", deleted, true), ("zeroed", zeroed, true), ("log headers too", without_log, false)]
        {
            let (report, found) = subject.salvage(&machine, false);
            if has_log {
                assert!(found == subject.expected, "{what}: {report:?}");
            }
            assert_eq!(report.is_complete(), has_log, "{what}: {report:?}");
            subject.check_history(&found);
        }
    }
}

#[test]
fn a_lost_page_costs_at_most_the_reported_range() {
    let subject = Subject::new(true, 8, 20);
    let mut with_losses = 0;
    for page in full_pages(&subject.machine) {
        let machine = subject.copy();
        zero_page(&machine, page);
        let (report, found) = subject.salvage(&machine, false);
        assert_eq!(report.method, SalvageMethod::Manifest);
        subject.check_ranges(&report, &found, &format!("page {page}"));
        with_losses += u32::from(!report.is_complete());
        // A multi-page block is named by its first page; its other pages need not follow it.
        let damaged = verified_places(&machine);
        for range in report.keyspaces.iter().flat_map(|keyspace| &keyspace.lost_ranges) {
            let place = format!("{} at offset {}", range.file, range.offset);
            assert!(damaged.iter().any(|finding| finding.contains(&place)), "{page}: {range:?}, {damaged:?}");
        }
        let (report, found) = subject.salvage(&remade(&machine), true);
        subject.check_history(&found);
        assert!(report.keyspaces.iter().all(|keyspace| keyspace.older_records == 0) || !report.is_complete());
    }
    assert!(with_losses > 10, "{with_losses}");
}

/// Findings of a verification of the store itself, without the target.
fn verified_places(machine: &Arc<MemEnv>) -> Vec<String> {
    let db = Db::builder("/db").memory_bytes(1 << 20).env(remade(machine)).read_only().open().unwrap();
    let report = db.verify(VerifyLevel::Full).unwrap();
    report.findings.iter().map(ToString::to_string).collect()
}

/// Copies the machine without the target.
fn remade(machine: &Arc<MemEnv>) -> Arc<MemEnv> {
    let copy = machine.crash_image(&CrashPolicy::KEEP_ALL, 1);
    for path in copy.all_files().into_iter().filter(|path| path.starts_with("/new")) {
        copy.remove_file(&path).unwrap();
    }
    copy
}

#[test]
fn a_truncated_data_file_costs_at_most_the_reported_ranges() {
    let subject = Subject::new(true, 8, 20);
    let length = subject.machine.file_bytes("/db/data").unwrap().len();
    for cut in (0..length).step_by(PAGE * 5 + 1000).chain([length - 1]) {
        let machine = subject.copy();
        machine.truncate("/db/data", cut as u64).unwrap();
        let (report, found) = subject.salvage(&machine, false);
        subject.check_ranges(&report, &found, &format!("cut to {cut}"));
    }
    let machine = subject.copy();
    machine.remove_file(Path::new("/db/data")).unwrap();
    let (report, found) = subject.salvage(&machine, false);
    subject.check_ranges(&report, &found, "no data file");
    assert!(!report.is_complete());
}

#[test]
fn log_damage_costs_only_the_reported_commits() {
    let subject = Subject::new(true, 4, 200);
    let paths = subject.files("wal-");
    let mut with_losses = 0;
    for path in &paths {
        let bytes = subject.machine.file_bytes(path).unwrap();
        let content = bytes.len() - bytes.iter().rev().take_while(|&&byte| byte == 0).count();
        for at in (0..content).step_by(6007) {
            let machine = subject.copy();
            machine.corrupt(path, at as u64, 0x81).unwrap();
            let (report, found) = subject.salvage(&machine, false);
            subject.check_history(&found);
            with_losses += u32::from(!report.log.lost.is_empty());
            let lost: u64 = report.log.lost.iter().map(|lost| lost.last_seqno + 1 - lost.first_seqno).sum();
            let different = differences(&subject.expected, &found);
            assert!(different <= lost, "{}: {different} records, {lost} operations", path.display());
            assert!(lost <= 4, "one byte costs one commit: {:?}", report.log.lost);
        }
    }
    assert!(with_losses > 5, "{with_losses}");
}

fn differences(expected: &Contents, found: &Contents) -> u64 {
    let flat = |contents: &Contents| -> BTreeSet<(String, Vec<u8>, Vec<u8>)> {
        let pairs = contents.iter().flat_map(|(name, pairs)| pairs.iter().map(move |pair| (name, pair)));
        pairs.map(|(name, (key, value))| (name.clone(), key.clone(), value.clone())).collect()
    };
    let (expected, found) = (flat(expected), flat(found));
    let keys = expected.symmetric_difference(&found).map(|(name, key, _)| (name, key));
    keys.collect::<BTreeSet<_>>().len() as u64
}

#[test]
fn a_lost_page_without_a_manifest_is_reported_or_costs_nothing() {
    let subject = Subject::new(true, 8, 20);
    for page in full_pages(&subject.machine) {
        let machine = subject.copy();
        zero_page(&machine, page);
        machine.remove_file(&subject.files("manifest-")[0]).unwrap();
        let (report, found) = subject.salvage(&machine, false);
        subject.check_history(&found);
        for (name, pairs) in &subject.expected {
            let found: BTreeMap<_, _> = found.get(name).into_iter().flatten().cloned().collect();
            let keyspace = report.keyspaces.iter().find(|keyspace| keyspace.name == *name);
            let uncertain = keyspace.is_some_and(|keyspace| keyspace.uncertain_records > 0);
            for (key, value) in pairs {
                let is_lost = keyspace
                    .is_some_and(|keyspace| keyspace.lost_ranges.iter().any(|range| range.contains(key)));
                let is_right = found.get(key).map_or(is_lost, |salvaged| salvaged == value);
                assert!(is_right || uncertain, "page {page}: {name} {:?}", String::from_utf8_lossy(key));
            }
        }
    }
}

#[test]
fn salvage_after_all_damage_yields_only_written_values() {
    let subject = Subject::new(false, 10, 100);
    let pages = full_pages(&subject.machine);
    let mut random = SplitMix::new(5);
    for round in 0..40 {
        let machine = subject.copy();
        for _ in 0..1 + random.below(12) {
            let page = pages[usize::try_from(random.below(pages.len() as u64)).unwrap()];
            zero_page(&machine, page);
        }
        if round % 2 == 0 {
            machine.remove_file(&subject.files("manifest-")[0]).unwrap();
        }
        if round % 3 == 0 {
            machine.remove_file(Path::new("/db/superblock")).unwrap();
        }
        for path in subject.files("wal-") {
            let content = machine.file_bytes(&path).unwrap().len() as u64;
            machine.corrupt(&path, random.below(content.min(40_000)), 0x33).unwrap();
        }
        let (report, found) = subject.salvage(&machine, round % 5 == 0);
        subject.check_history(&found);
        assert!(report.is_complete() || differences(&subject.expected, &found) < 2000);
        assert!(!report.is_complete() || found == subject.expected, "{report:?}");
    }
}

#[test]
fn invalid_targets_and_sources_are_refused_and_unchanged() {
    let subject = Subject::new(true, 1, 1);
    let machine = subject.copy();
    machine.create_dir(Path::new("/new")).unwrap();
    machine.replace("/new/notes", b"mine").unwrap();
    let refused = |options: SalvageOptions<'_>| salvage(options).unwrap_err().kind();
    assert_eq!(refused(options(&machine, false)), ErrorKind::Invalid);
    assert_eq!(machine.file_bytes("/new/notes").unwrap(), b"mine");
    let nothing = SalvageOptions::new("/nowhere", "/other").env(machine.clone());
    assert_eq!(refused(nothing), ErrorKind::Invalid);
    let same = SalvageOptions::new("/db", "/db").env(machine.clone());
    assert_eq!(refused(same), ErrorKind::Invalid);
    let db = Db::builder("/db").memory_bytes(1 << 20).env(machine.clone()).open().unwrap();
    let in_use = SalvageOptions::new("/db", "/other").env(machine.clone());
    assert_eq!(refused(in_use), ErrorKind::Locked);
    drop(db);
}

#[test]
fn a_cancelled_salvage_leaves_nothing() {
    let subject = Subject::new(true, 4, 20);
    for stop_at in 1..30 {
        let machine = subject.copy();
        let mut calls = 0;
        let mut observer = |_| {
            calls += 1;
            if calls == stop_at {
                std::ops::ControlFlow::Break(())
            } else {
                std::ops::ControlFlow::Continue(())
            }
        };
        match salvage(options(&machine, false).observer(&mut observer)) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Cancelled);
                assert!(machine.all_files().iter().all(|path| !path.starts_with("/new")));
            }
            Ok(_) => return assert!(stop_at > 3),
        }
    }
}

/// Creates a store with keys appended to over many flushes; returns it with all values that each key ever
/// had.
fn store_with_operands() -> (Arc<MemEnv>, Contents, BTreeSet<Pair>) {
    let machine = MemEnv::new(4);
    let db = Db::builder("/db").memory_bytes(1 << 20).env(machine.clone()).open().unwrap();
    let tree = Tree::turtle().with_run_bytes(4 << 10).with_max_pivots(4);
    let options = KeyspaceOptions::default().tree(tree).merge_operator("append");
    let lists = db.keyspace("lists", || options).unwrap();
    let (mut model, mut history) = (BTreeMap::<String, String>::new(), BTreeSet::new());
    let mut random = SplitMix::new(5);
    for round in 0..14 {
        for _ in 0..150 {
            let key = format!("key{:04}", random.below(500));
            let text = format!("{round}.{:03} ", random.below(1000));
            if random.percent(15) {
                lists.insert(&key, &text).unwrap();
                model.insert(key.clone(), text);
            } else if random.percent(10) {
                lists.remove(&key).unwrap();
                model.remove(&key);
            } else {
                lists.merge(&key, &text).unwrap();
                *model.entry(key.clone()).or_default() += &text;
            }
            let value = model.get(&key).cloned().unwrap_or_default();
            history.insert((key.into_bytes(), value.into_bytes()));
        }
        // The last operands stay in the log.
        if round < 12 {
            db.flush().unwrap();
        }
    }
    db.persist(Durability::Sync).unwrap();
    let expected = contents_of(&db).unwrap();
    let pairs = model.into_iter().map(|(key, value)| (key.into_bytes(), value.into_bytes())).collect();
    assert_eq!(expected, Contents::from([("lists".to_owned(), pairs)]));
    (machine.crash_image(&CrashPolicy::KEEP_ALL, 1), expected, history)
}

#[test]
fn operands_are_never_applied_twice_by_salvage() {
    let (machine, expected, history) = store_with_operands();
    for lose_manifest in [false, true] {
        let machine = machine.crash_image(&CrashPolicy::KEEP_ALL, 1);
        let lost = if lose_manifest { "/db/manifest-" } else { "/db/superblock" };
        for path in machine.all_files().iter().filter(|path| path.to_str().unwrap().starts_with(lost)) {
            machine.remove_file(path).unwrap();
        }
        let options = options(&machine, false).merge_operator("append");
        let report = salvage(options).unwrap();
        let db = Db::builder("/new").memory_bytes(1 << 20).env(machine.clone()).create(false).open().unwrap();
        assert!(db.verify(VerifyLevel::Full).unwrap().is_valid());
        let found = contents_of(&db).unwrap();
        if !lose_manifest {
            assert_eq!(report.method, SalvageMethod::Manifest);
            assert!(found == expected);
            continue;
        }
        assert_eq!(report.method, SalvageMethod::Scan);
        let current: BTreeSet<Pair> = expected["lists"].iter().cloned().collect();
        let right = found["lists"].iter().filter(|pair| current.contains(pair)).count();
        assert_eq!(right, found["lists"].len(), "an older value is presented as the latest");
        assert!(right > current.len() / 4, "{right} of {}", current.len());
        // Nothing is omitted: where only operands of a key remain, the newest of them are present.
        let kept: BTreeSet<_> = found.values().flatten().map(|(key, _)| key).collect();
        let gone = current.iter().filter(|(key, _)| !kept.contains(key)).count();
        assert_eq!(gone, 0, "of {}", current.len());
        assert_eq!(report.keyspaces[0].older_records, found["lists.older"].len() as u64);
        // The other keyspace holds earlier values of a key, or their ends, with newer operands of the log on
        // top.
        for (key, value) in &found["lists.older"] {
            let was_end = |(of, value): &Pair, end: &[u8]| of == key && value.ends_with(end);
            let had = |start: &[u8]| start.is_empty() || history.iter().any(|pair| was_end(pair, start));
            let is_logged = |operand: &[u8]| {
                operand.is_empty() || operand.starts_with(b"12.") || operand.starts_with(b"13.")
            };
            let is_of_log = |rest: &[u8]| rest.split(|byte| *byte == b' ').all(is_logged);
            let is_right = |end: usize| had(&value[..end]) && is_of_log(&value[end..]);
            assert!((0..=value.len()).any(is_right), "{key:?} {value:?}");
        }
    }
}

#[test]
fn a_long_list_in_the_log_is_salvaged_as_its_value() {
    let machine = MemEnv::new(4);
    let db = Db::builder("/db").memory_bytes(1 << 20).env(machine.clone()).open().unwrap();
    let lists = db.keyspace("lists", || KeyspaceOptions::default().merge_operator("append")).unwrap();
    lists.insert("hot", "start ").unwrap();
    db.flush().unwrap();
    (0..5_000).for_each(|n| lists.merge("hot", format!("{n} ")).unwrap());
    db.persist(Durability::Sync).unwrap();
    let expected = contents_of(&db).unwrap();
    let machine = machine.crash_image(&CrashPolicy::KEEP_ALL, 1);
    let report = salvage(options(&machine, false)).unwrap();
    let db = Db::builder("/new").memory_bytes(1 << 20).env(machine.clone()).create(false).open().unwrap();
    assert!(contents_of(&db).unwrap() == expected);
    let (key, value) = &expected["lists"][0];
    assert_eq!(report.keyspaces[0].bytes, (key.len() + value.len()) as u64);
}

#[test]
fn operands_do_not_resurrect_a_value_deleted_in_its_leaf() {
    let machine = MemEnv::new(4);
    let db = Db::builder("/db").memory_bytes(1 << 20).env(machine.clone()).open().unwrap();
    let tree = Tree::splinter().with_run_bytes(64 << 10).with_max_pivots(4);
    let options_of_lists = KeyspaceOptions::default().tree(tree).merge_operator("append");
    let lists = db.keyspace("lists", || options_of_lists).unwrap();
    let fill = |numbers: Range<u32>, bytes: usize| {
        numbers.for_each(|n| lists.insert(format!("key{n:03}"), vec![b'.'; bytes]).unwrap());
    };
    fill(0..150, 1000);
    db.flush().unwrap();
    // In one buffer: an entry that soon moves down to a leaf, and one that stays.
    lists.insert("key010", "gone").unwrap();
    lists.insert("key140", "stays").unwrap();
    db.flush().unwrap();
    lists.remove("key010").unwrap();
    fill(11..40, 4000);
    db.flush().unwrap();
    lists.merge("key010", "new").unwrap();
    db.flush().unwrap();
    let outline = lists.outline();
    assert_eq!(outline.iter().filter(|line| line.what == "tier").count(), 2, "{outline:?}");
    let expected = contents_of(&db).unwrap();
    let machine = machine.crash_image(&CrashPolicy::KEEP_ALL, 1);
    for path in machine.all_files() {
        let path = path.to_str().unwrap();
        if path.starts_with("/db/manifest-") || path.starts_with("/db/wal-") {
            machine.remove_file(Path::new(path)).unwrap();
        }
    }
    let options = options(&machine, true).merge_operator("append");
    let report = salvage(options).unwrap();
    assert_eq!(report.method, SalvageMethod::Scan);
    let db = Db::builder("/new").memory_bytes(1 << 20).env(machine.clone()).create(false).open().unwrap();
    let found = contents_of(&db).unwrap();
    assert_eq!(found["lists"][10], (b"key010".to_vec(), b"new".to_vec()));
    assert!(found == expected);
}
