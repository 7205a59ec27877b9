//! Pages updated in place, and all features that depend on them: restarts, crashes, snapshots, backups,
//! copies, checks, repair, salvage, other trees.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, path::Path, sync::Arc};

use testudo::{
    Db, DbBuilder, ErrorKind, Forecast, Keyspace, KeyspaceOptions, Placement, RepairOptions, SalvageOptions,
    ScrubOptions, Stage, Tree, TreelineOptions, VerifyLevel, backup::Repository, repair, salvage,
};
use testudo_db::maintenance::Stepping as _;
use testudo_env::{CrashPolicy, Env, MemEnv};

const TREELINE: Tree =
    Tree::treeline().with_run_bytes(192 << 10).with_growth_factor(4).with_level1_flushes(1);
const KEYS: u32 = 6000;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn builder(machine: &Arc<MemEnv>, directory: &str) -> DbBuilder {
    Db::builder(Path::new(directory)).env(machine.clone()).memory_bytes(4 << 20)
}

fn key(number: u32) -> Vec<u8> {
    format!("user{number:08}").into_bytes()
}

/// A store whose keyspace has updated pages, and its expected content.
struct Subject {
    machine: Arc<MemEnv>,
    db: Db,
    users: Keyspace,
    model: Model,
}

impl Subject {
    fn new() -> Self {
        let machine = MemEnv::new(1);
        let db = builder(&machine, "/db").open().unwrap();
        let users = db.keyspace("users", KeyspaceOptions::default().tree(TREELINE)).unwrap();
        let mut subject = Self { machine, db, users, model: Model::new() };
        (0..KEYS).for_each(|number| subject.insert(number * 10, &[1; 100]));
        subject.db.compact().unwrap();
        subject
    }

    fn insert(&mut self, number: u32, value: &[u8]) {
        self.users.insert(key(number), value).unwrap();
        self.model.insert(key(number), value.to_vec());
    }

    /// Updates, inserts and removes adjacent keys, and moves all of them down.
    fn churn(&mut self, round: u8) {
        let first = u32::from(round) * 7919 % (KEYS * 9);
        for number in (0..80).map(|number| first / 10 * 10 + number * 10) {
            self.insert(number % (KEYS * 10), &[round; 100]);
        }
        for number in 0..6 {
            self.insert(first / 10 * 10 + number * 100 + 5, &[round; 80]);
            let gone = key((first / 10 * 10 + number * 85) % (KEYS * 10));
            self.users.remove(&gone).unwrap();
            self.model.remove(&gone);
        }
        self.compact();
    }

    /// Moves everything to the bottom, which scans trigger.
    fn compact(&self) {
        for _ in 0..200 {
            self.db.compact().unwrap();
            if self.users.stats().tree.buffered_bytes == 0 {
                return;
            }
            for number in 0..100 {
                self.users.range(key(number * KEYS / 10)..).unwrap().next().unwrap().unwrap();
            }
        }
        panic!("levels are never emptied: {:?}", self.users.stats());
    }

    fn with_updated_pages() -> Self {
        let mut subject = Self::new();
        (2..8).for_each(|round| subject.churn(round));
        assert!(subject.users.stats().tree.replaced_pages > 10, "{:?}", subject.users.stats());
        subject
    }

    fn check(&self) {
        check(&self.users, &self.model);
        assert_eq!(self.db.verify(VerifyLevel::Full).unwrap().findings, []);
    }
}

fn check(users: &Keyspace, model: &Model) {
    let pairs = users.iter().unwrap().map(|entry| {
        let (key, value) = entry.unwrap().into_pair().unwrap();
        (key.to_vec(), value.to_vec())
    });
    assert!(pairs.eq(model.clone()), "all pairs in order");
    let backward = users.iter().unwrap().rev().map(|entry| entry.unwrap().key().to_vec());
    assert!(backward.eq(model.keys().rev().cloned()), "and backward");
    for number in (0..KEYS * 10).step_by(37) {
        assert_eq!(users.get(key(number)).unwrap().as_deref(), model.get(&key(number)).map(Vec::as_slice));
    }
    let keys: Vec<Vec<u8>> = (0..500).map(|number| key(number * 55)).collect();
    let found = users.multi_get(&keys).unwrap();
    for (key, found) in keys.iter().zip(found) {
        assert_eq!(found.as_deref(), model.get(key).map(Vec::as_slice));
    }
}

fn check_store(machine: &Arc<MemEnv>, directory: &str, model: &Model) {
    let db = builder(machine, directory).create(false).open().unwrap();
    check(&db.open_keyspace("users").unwrap().unwrap(), model);
    assert_eq!(db.verify(VerifyLevel::Full).unwrap().findings, []);
    db.close().unwrap();
}

#[test]
fn updated_pages_survive_a_restart_and_power_losses() {
    let mut subject = Subject::with_updated_pages();
    subject.check();
    subject.db.persist(testudo::Durability::Sync).unwrap();
    for (seed, policy) in CrashPolicy::all().enumerate() {
        let image = subject.machine.crash_image(&policy, seed as u64);
        check_store(&image, "/db", &subject.model);
    }
    for round in 10..13 {
        let Subject { machine, db, model, .. } = subject;
        db.close().unwrap();
        let db = builder(&machine, "/db").open().unwrap();
        let users = db.open_keyspace("users").unwrap().unwrap();
        subject = Subject { machine, db, users, model };
        subject.churn(round);
        subject.check();
    }
}

#[test]
fn snapshots_and_iterators_see_the_earlier_pages() {
    let mut subject = Subject::with_updated_pages();
    let mut held = Vec::new();
    for round in 20..26 {
        let iterator = subject.users.iter().unwrap();
        held.push((subject.db.snapshot().unwrap(), iterator, subject.model.clone()));
        subject.churn(round);
    }
    for (snapshot, iterator, model) in held {
        let pairs = iterator.map(|entry| entry.unwrap().key().to_vec());
        assert!(pairs.eq(model.keys().cloned()), "an iterator opened before all updates");
        let found = snapshot.iter(&subject.users).unwrap().map(|entry| {
            let (key, value) = entry.unwrap().into_pair().unwrap();
            (key.to_vec(), value.to_vec())
        });
        assert!(found.eq(model), "a snapshot");
    }
    subject.check();
}

#[test]
fn each_backup_has_the_page_updates_up_to_its_commit() {
    let mut subject = Subject::with_updated_pages();
    let repository = Repository::at("/backups").env(subject.machine.clone());
    let mut expected = Vec::new();
    for round in 30..34 {
        subject.churn(round);
        let info = repository.create(&subject.db).unwrap();
        expected.push((info.info.id, subject.model.clone()));
    }
    assert_eq!(repository.verify(None).unwrap().findings, []);
    for (id, model) in expected {
        let target = format!("/restored-{id}");
        repository.restore(Some(id), &target).unwrap();
        check_store(&subject.machine, &target, &model);
    }
    subject.db.checkpoint("/checkpoint").unwrap();
    check_store(&subject.machine, "/checkpoint", &subject.model);
}

/// Reads all records, of which those in a damaged block at this page fail; returns their number.
fn lost_records(users: &Keyspace, model: &Model, page: u64) -> usize {
    let mut lost = 0;
    for key in model.keys() {
        match users.get(key) {
            Ok(value) => assert_eq!(value.as_deref(), model.get(key).map(Vec::as_slice)),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corruption);
                assert_eq!(error.location(), Some(("data", page * 4096)), "{error}");
                lost += 1;
            }
        }
    }
    lost
}

#[test]
fn a_damaged_page_loses_only_its_records_and_is_located() {
    let subject = Subject::with_updated_pages();
    let Subject { machine, db, model, .. } = subject;
    db.close().unwrap();
    let replaced = pages_of_kind(&machine, REPLACED);
    assert!(replaced.len() > 10);
    let (mut refused, mut unaffected) = (0, 0);
    for number in replaced.into_iter().step_by(3) {
        machine.corrupt("/db/data", number * 4096 + 600, 0x40).unwrap();
        let db = builder(&machine, "/db").warm_restart(false).open().unwrap();
        let users = db.open_keyspace("users").unwrap().unwrap();
        let lost = lost_records(&users, &model, number);
        let scrubbed = db.scrub(ScrubOptions::new()).unwrap();
        // Pages that no version of a run uses any longer are not checked.
        assert_eq!(scrubbed.findings.len(), usize::from(lost > 0), "{:?}", scrubbed.findings);
        (refused, unaffected) = (refused + usize::from(lost > 0), unaffected + usize::from(lost == 0));
        assert!(lost <= 80, "{lost} records of one page");
        db.close().unwrap();
        machine.corrupt("/db/data", number * 4096 + 600, 0x40).unwrap();
    }
    assert!(refused > 2, "{refused} pages were in use, {unaffected} were not");
    check_store(&machine, "/db", &model);
}

/// Numbers of the pages of the data file whose headers say that they are of this kind.
fn pages_of_kind(machine: &MemEnv, kind: u8) -> Vec<u64> {
    let data = machine.file_bytes("/db/data").unwrap();
    let is_one = |(number, page): &(u64, &[u8])| page[8] == kind && page[16..24] == number.to_le_bytes();
    (0..).zip(data.chunks_exact(4096)).filter(is_one).map(|(number, _)| number).collect()
}

/// Kinds in page headers: entries that replace an earlier page, and maps.
const REPLACED: u8 = 5;
const MAP: u8 = 6;

#[test]
fn a_damaged_map_fails_reads_of_its_run_alone_and_is_located() {
    let subject = Subject::with_updated_pages();
    let Subject { machine, db, model, .. } = subject;
    db.close().unwrap();
    let maps = pages_of_kind(&machine, MAP);
    assert!(maps.len() > 5, "{} maps", maps.len());
    let (mut in_use, mut unused) = (0, 0);
    for number in maps {
        machine.corrupt("/db/data", number * 4096 + 45, 0x40).unwrap();
        let db = builder(&machine, "/db").warm_restart(false).open().unwrap();
        let users = db.open_keyspace("users").unwrap().unwrap();
        let lost = lost_records(&users, &model, number);
        let has_findings = |findings: &[testudo::Finding]| !findings.is_empty();
        let scrubbed = db.scrub(ScrubOptions::new()).unwrap();
        assert_eq!(has_findings(&scrubbed.findings), lost > 0, "{:?}", scrubbed.findings);
        let verified = db.verify(VerifyLevel::Full).unwrap();
        assert_eq!(has_findings(&verified.findings), lost > 0, "{:?}", verified.findings);
        if lost > 0 {
            let backup = Repository::at("/refused").env(machine.clone()).create(&db);
            assert_eq!(backup.unwrap_err().kind(), ErrorKind::Corruption);
        }
        db.close().unwrap();
        let options = RepairOptions::new("/db").env(machine.clone()).dry_run(true);
        let findings = repair(options).unwrap().findings;
        let of_map = findings.iter().any(|finding| finding.what.contains("Map page"));
        assert_eq!(of_map, lost > 0, "{findings:?}");
        if lost > 0 && in_use == 0 {
            assert!(salvaged(&machine, "/salvaged") == model, "salvage finds the pages without the map");
        }
        (in_use, unused) = (in_use + usize::from(lost > 0), unused + usize::from(lost == 0));
        assert!(lost < model.len() / 2, "{lost} records of one run");
        machine.corrupt("/db/data", number * 4096 + 45, 0x40).unwrap();
    }
    assert!(in_use > 0, "{unused} maps were not in use");
    check_store(&machine, "/db", &model);
}

fn salvaged(machine: &Arc<MemEnv>, target: &str) -> Model {
    let env: Arc<dyn Env> = machine.clone();
    let options = SalvageOptions::new("/db", target).env(env);
    let report = salvage(options).unwrap();
    let lost: Vec<_> = report.keyspaces.iter().flat_map(|keyspace| &keyspace.lost_ranges).collect();
    assert!(lost.is_empty(), "{lost:?}");
    let db = builder(machine, target).create(false).open().unwrap();
    let users = db.open_keyspace("users").unwrap().unwrap();
    users
        .iter()
        .unwrap()
        .map(|entry| {
            let (key, value) = entry.unwrap().into_pair().unwrap();
            (key.to_vec(), value.to_vec())
        })
        .collect()
}

#[test]
fn salvage_finds_the_newest_version_of_each_page() {
    let mut subject = Subject::with_updated_pages();
    (40..50).for_each(|round| subject.churn(round));
    // More entries than fit on their page.
    (0..12).for_each(|number| subject.insert(20_003 + number * 10, &[9; 100]));
    subject.compact();
    assert!(subject.users.stats().tree.overflow_pages > 0, "some page overflowed");
    let Subject { machine, db, model, .. } = subject;
    db.close().unwrap();
    check_salvaged(&machine, &model);
}

/// Salvages the store with its manifest and without it.
fn check_salvaged(machine: &Arc<MemEnv>, model: &Model) {
    assert!(salvaged(machine, "/with") == *model);
    let manifests: Vec<_> = machine
        .all_files()
        .into_iter()
        .filter(|path| path.starts_with("/db") && path.to_string_lossy().contains("manifest-"))
        .collect();
    manifests.iter().for_each(|path| machine.remove_file(path).unwrap());
    assert!(salvaged(machine, "/without") == *model);
}

/// A compaction of one key puts it into a page of the bottom. A run above keeps an older entry of it, which
/// no longer counts.
#[test]
fn salvage_prefers_updated_pages_to_runs_that_were_cut() {
    let mut subject = Subject::new();
    for (value, numbers) in [(2, vec![0, KEYS * 10 - 10]), (3, vec![0])] {
        numbers.into_iter().for_each(|number| subject.insert(number, &[value; 100]));
        subject.db.flush().unwrap();
    }
    assert_eq!(subject.users.stats().tree.buffered_runs, 2, "{:?}", subject.users.stats());
    subject.users.compact_range(..key(1)).unwrap();
    let tree = subject.users.stats().tree;
    assert_eq!((tree.replaced_pages, tree.buffered_runs), (1, 1), "{tree:?}");
    let Subject { machine, db, model, .. } = subject;
    db.close().unwrap();
    check_salvaged(&machine, &model);
}

#[test]
fn keyspaces_with_updated_pages_move_away_and_back() {
    let mut subject = Subject::with_updated_pages();
    for (round, tree) in
        [Tree::leveled(), TREELINE, Tree::lsbm(), TREELINE, Tree::turtle(), TREELINE].into_iter().enumerate()
    {
        subject.users.set_tree(tree.with_run_bytes(192 << 10)).unwrap();
        subject.check();
        while subject.users.stats().moving.from.is_some() {
            assert!(subject.db.step().unwrap(), "it arrives");
        }
        subject.churn(60 + u8::try_from(round).unwrap());
        subject.check();
    }
    assert!(subject.users.stats().tree.replaced_pages > 0, "pages are updated again");
}

#[test]
fn hot_records_on_updated_pages_are_cached_again_after_a_restart() {
    let subject = Subject::with_updated_pages();
    let Subject { machine, db, users, model } = subject;
    let read_all = |users: &Keyspace| model.keys().for_each(|key| assert!(users.get(key).unwrap().is_some()));
    read_all(&users);
    drop(users);
    db.close().unwrap();
    let db = builder(&machine, "/db").open().unwrap();
    let users = db.open_keyspace("users").unwrap().unwrap();
    users.get(key(0)).unwrap();
    while db.step().unwrap() {}
    let reads = db.stats().io.page_reads;
    read_all(&users);
    let read = db.stats().io.page_reads - reads;
    assert!(read < 40, "{read} pages were read again");
}

#[test]
fn runs_of_another_tree_with_continued_values_are_updated_correctly() {
    let machine = MemEnv::new(1);
    let db = builder(&machine, "/db").open().unwrap();
    let leveled = Tree::leveled().with_run_bytes(192 << 10).with_growth_factor(4).with_level1_flushes(1);
    let options = KeyspaceOptions::default().tree(leveled).placement(Placement::inline());
    let users = db.keyspace("users", options).unwrap();
    let mut subject = Subject { machine, db, users, model: Model::new() };
    (0..1500).for_each(|number| subject.insert(number * 40, &vec![number.to_le_bytes()[0]; 1_100]));
    subject.compact();
    let used = subject.db.stats().space.live_bytes;
    assert!(used < 1_500 * 1_112 * 6 / 5, "values continue on the next page: {used} bytes");
    subject.users.set_tree(TREELINE).unwrap();
    for round in 0..12 {
        for number in 0..7 {
            let at = (u32::from(round) * 977 + number * 3) % 1500;
            subject.insert(at * 40, &vec![round; 1_000 + usize::from(round) * 20]);
        }
        subject.compact();
        subject.check();
    }
    let replaced = subject.users.stats().tree.replaced_pages;
    assert!(replaced > 0, "rewritten runs have whole entries, and must be updated page by page");
    let Subject { machine, db, model, .. } = subject;
    db.close().unwrap();
    check_store(&machine, "/db", &model);
}

/// In rewritten runs, values that do not fit on a page continue on the next one. Such runs are not updated
/// page by page.
#[test]
fn data_moved_to_a_treeline_is_laid_out_for_updates() {
    let machine = MemEnv::new(1);
    let db = builder(&machine, "/db").open().unwrap();
    let from = Tree::turtle().with_run_bytes(192 << 10).with_max_pivots(8);
    let users = db.keyspace("users", KeyspaceOptions::default().tree(from)).unwrap();
    let mut subject = Subject { machine, db, users, model: Model::new() };
    (0..KEYS).for_each(|number| subject.insert(number * 10, &[1; 300]));
    subject.users.set_tree(TREELINE).unwrap();
    while subject.db.step().unwrap() {}
    assert_eq!(subject.users.stats().moving.from, None);
    for number in 0..6 {
        subject.insert(number * KEYS, &[2; 300]);
        subject.compact();
    }
    assert!(subject.users.stats().tree.replaced_pages >= 6, "{:?}", subject.users.stats());
    subject.check();
}

/// Overwrites records of a kilobyte, 12 in a row, and moves them down.
fn overwrite_kilobytes(subject: &mut Subject, round: u32) {
    for number in (0..12).map(|number| (round * 331 % 1_900 + number) * 30) {
        subject.insert(number, &[round.to_le_bytes()[0]; 1_012]);
    }
    subject.users.compact_range(..).unwrap();
}

#[test]
fn pages_of_kilobyte_records_are_updated_and_survive() {
    let mut subject = Subject::new();
    let options = TreelineOptions::new().with_stage(Stage::Sparse);
    subject.users.set_tree(TREELINE.with_treeline(options)).unwrap();
    (0..KEYS).for_each(|number| subject.users.remove(key(number * 10)).unwrap());
    subject.model.clear();
    for _ in 0..2 {
        (0..2_000).for_each(|number| subject.insert(number * 30, &[1; 1_012]));
        subject.users.compact_range(..).unwrap();
    }
    (0..20).for_each(|round| overwrite_kilobytes(&mut subject, round));
    let tree = subject.users.stats().tree;
    assert!(tree.pages_replaced >= 60, "{tree:?}");
    assert_eq!((tree.continued_bytes, tree.pages_overflowed), (0, 0), "{tree:?}");
    subject.check();
    subject.db.persist(testudo::Durability::Sync).unwrap();
    for (seed, policy) in CrashPolicy::all().enumerate() {
        let image = subject.machine.crash_image(&policy, seed as u64);
        check_store(&image, "/db", &subject.model);
    }
    let Subject { machine, db, model, .. } = subject;
    db.close().unwrap();
    check_salvaged(&machine, &model);
}

#[test]
fn settings_of_pages_change_at_run_time_and_are_stored() {
    let mut subject = Subject::new();
    let options = TreelineOptions::new().with_fill_percent(60).with_stage(Stage::Sparse);
    let options = options.with_forecast(Forecast::Off);
    subject.users.set_tree(Tree::treeline().with_treeline(options)).unwrap();
    assert_eq!(subject.users.tree(), TREELINE.with_treeline(options), "sizes of runs and levels stay");
    let before = subject.users.stats().tree.stored_bytes;
    (0..KEYS).for_each(|number| subject.insert(number * 10, &[2; 100]));
    subject.compact();
    let after = subject.users.stats().tree.stored_bytes;
    assert!(after * 2 > before * 5 / 2, "{after} bytes with pages of 60 %, {before} before");
    (1..9).for_each(|round| subject.churn(round));
    let Subject { machine, db, users, model } = subject;
    check(&users, &model);
    drop(users);
    db.close().unwrap();
    let db = builder(&machine, "/db").open().unwrap();
    let users = db.open_keyspace("users").unwrap().unwrap();
    assert_eq!(users.tree().treeline_options(), Some(options));
    check(&users, &model);
    users.set_tree(Tree::leveled()).unwrap();
    assert_eq!(users.tree().treeline_options(), None);
    check(&users, &model);
}
