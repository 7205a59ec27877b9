//! Salvage of values that commits wrote to value logs: of logs that have become segments, and of logs that
//! were still appended to.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    path::Path,
    sync::Arc,
};

use testudo::{
    Db, Keyspace, KeyspaceOptions, KeyspaceSalvage, Placement, RepairOptions, SalvageMethod, SalvageOptions,
    SalvageReport, Tree, VerifyLevel, repair, salvage,
};
use testudo_env::MemEnv;
use testudo_share::some_of;

const PAGE: usize = 4096;
/// Shorter than a page, and longer: the latter continue on following pages.
const LENGTHS: [usize; 2] = [1_000, 13_000];

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn trees() -> [Tree; 4] {
    [Tree::turtle(), Tree::splinter(), Tree::leveled(), Tree::treeline()]
}

/// Key of a keyspace with keys as long as a value number, or longer.
fn key(number: u64, has_short_keys: bool) -> Vec<u8> {
    if has_short_keys {
        return u32::try_from(number).unwrap().to_be_bytes().to_vec();
    }
    format!("key-{:08}", number * 7919 % 1_000_003).into_bytes()
}

/// Repeated pattern of the value that a round writes for a number.
fn pattern(number: u64, round: u64) -> Vec<u8> {
    format!("<{number:05}/{round}>").into_bytes()
}

/// A closed store, its expected content, and the part of it in its tree.
struct Subject {
    machine: Arc<MemEnv>,
    length: usize,
    has_short_keys: bool,
    model: Model,
    flushed: Model,
    /// Value numbers and round of the content of a segment of logged values, and of a value log.
    in_segment: (Range<u64>, u64),
    in_log: (Range<u64>, u64),
}

impl Subject {
    fn new(tree: Tree, length: usize, has_short_keys: bool) -> Self {
        let count = 1_200_000 / length as u64;
        let machine = MemEnv::new(1);
        let db = Db::builder(Path::new("/db")).env(machine.clone()).memory_bytes(16 << 20).open().unwrap();
        let options = KeyspaceOptions::default().tree(tree).placement(Placement::hybrid());
        let keyspace = db.keyspace("k", options).unwrap();
        let mut subject = Self {
            machine,
            length,
            has_short_keys,
            model: Model::new(),
            flushed: Model::new(),
            in_segment: (count / 2..count * 3 / 2, 1),
            in_log: (count..count * 7 / 4, 2),
        };
        subject.insert(&keyspace, 0..count, 0);
        db.flush().unwrap();
        assert_eq!(db.stats().log.value_log_bytes, 0);
        subject.insert(&keyspace, subject.in_segment.0.clone(), 1);
        db.flush().unwrap();
        let logged = db.stats().log.value_log_bytes;
        assert!(logged >= 900_000, "{logged}");
        subject.flushed = subject.model.clone();
        subject.insert(&keyspace, subject.in_log.0.clone(), 2);
        for number in 0..3 {
            // A short value that is entirely inline, and a removed key.
            keyspace.insert(subject.key(number), b"short").unwrap();
            subject.model.insert(subject.key(number), b"short".to_vec());
            keyspace.remove(subject.key(count + number)).unwrap();
            subject.model.remove(&subject.key(count + number));
        }
        assert!(db.stats().log.value_log_bytes >= logged + 700_000, "{:?}", db.stats());
        assert!(db.verify(VerifyLevel::Full).unwrap().is_valid());
        drop(keyspace);
        db.close().unwrap();
        subject
    }

    fn key(&self, number: u64) -> Vec<u8> {
        key(number, self.has_short_keys)
    }

    /// Overwrites a third of the segment's values, until it is rewritten without them.
    fn rewrite(&mut self) {
        let db =
            Db::builder(Path::new("/db")).env(self.machine.clone()).memory_bytes(16 << 20).open().unwrap();
        let keyspace = db.open_keyspace("k").unwrap().unwrap();
        for number in self.in_segment.0.clone().step_by(3) {
            self.insert(&keyspace, number..number + 1, 3);
        }
        db.compact().unwrap();
        let stats = keyspace.stats();
        assert!(stats.values.segments > 0, "{stats:?}");
        assert!(stats.values.dead_bytes < stats.values.bytes / 10, "{stats:?}");
        self.flushed.clone_from(&self.model);
        let number = self.in_log.0.start + 10;
        self.insert(&keyspace, number..number + 1, 4);
        drop(keyspace);
        db.close().unwrap();
    }

    fn insert(&mut self, keyspace: &Keyspace, numbers: Range<u64>, round: u64) {
        for number in numbers {
            let value: Vec<u8> = pattern(number, round).into_iter().cycle().take(self.length).collect();
            keyspace.insert(self.key(number), &value).unwrap();
            self.model.insert(self.key(number), value);
        }
    }

    fn lose_manifest(&self) {
        for file in self.machine.all_files() {
            if file.to_string_lossy().contains("manifest") {
                self.machine.replace(&file, b"").unwrap();
            }
        }
    }

    /// Flips a byte of a page that contains only values of some of the numbers in the round; returns their
    /// keys.
    fn damage(&self, (numbers, round): (Range<u64>, u64)) -> BTreeSet<Vec<u8>> {
        let bytes = self.machine.file_bytes("/db/data").unwrap();
        let middle = pattern((numbers.start + numbers.end) / 2, round);
        let found = bytes.windows(middle.len()).enumerate().filter(|(_, window)| *window == middle);
        let found: Vec<usize> = found.map(|(at, _)| at).collect();
        let page = found[found.len() / 2] / PAGE;
        self.machine.corrupt("/db/data", (page * PAGE + PAGE / 2) as u64, 1).unwrap();
        let page = &bytes[page * PAGE..][..PAGE];
        let is_there = |number: &u64| {
            let pattern = pattern(*number, round);
            page.windows(pattern.len()).any(|window| window == pattern)
        };
        numbers.filter(is_there).map(|number| self.key(number)).collect()
    }

    fn salvage(&self) -> SalvageReport {
        let options = SalvageOptions::new("/db", "/salvaged").env(self.machine.clone()).memory_bytes(4 << 20);
        salvage(options).unwrap()
    }

    fn salvaged(&self) -> Db {
        let db = Db::builder(Path::new("/salvaged")).env(self.machine.clone()).open().unwrap();
        assert!(db.verify(VerifyLevel::Full).unwrap().is_valid());
        db
    }

    /// Checks that everything except `lost` was salvaged, and that nothing else is reported as lost.
    fn check(&self, report: &SalvageReport, lost: &BTreeSet<Vec<u8>>) {
        let [of_keyspace] = report.keyspaces.as_slice() else { panic!("{report:?}") };
        assert!(report.log.lost.is_empty() && report.log.operations > 0, "{report:?}");
        let told = |range: &testudo::LostRange| {
            assert_eq!(range.high.as_deref(), Some(&[&range.low[..], &[0]].concat()[..]), "{range:?}");
            assert!(range.why.contains("was not found there"), "{range:?}");
            // No offset is reported if no known run contains the page.
            assert!(report.method == SalvageMethod::Scan || range.offset > 0, "{range:?}");
            range.low.clone()
        };
        let told: Vec<_> = of_keyspace.lost_ranges.iter().map(told).collect();
        assert_eq!(told.len(), lost.len(), "{report:?}");
        assert_eq!(told.into_iter().collect::<BTreeSet<_>>(), *lost);
        let mut expected = self.model.clone();
        expected.retain(|key, _| !lost.contains(key));
        let db = self.salvaged();
        assert!(contents(&db, "k") == expected);
        let names: BTreeSet<_> = db.keyspace_names().into_iter().collect();
        let known = ["k".to_owned()].into_iter().chain(of_keyspace.older_keyspace.clone());
        assert_eq!(names, known.collect(), "no scratch remains");
    }

    /// Checks the older values of keys whose newest value is lost.
    fn check_older(&self, of_keyspace: &KeyspaceSalvage, lost: &BTreeSet<Vec<u8>>) {
        let mut expected = self.flushed.clone();
        expected.retain(|key, _| lost.contains(key));
        assert_eq!(of_keyspace.older_records, expected.len() as u64);
        let found = of_keyspace.older_keyspace.as_ref();
        let found = found.map(|name| contents(&self.salvaged(), name)).unwrap_or_default();
        assert!(found == expected);
    }
}

fn contents(db: &Db, name: &str) -> Model {
    let entries = db.open_keyspace(name).unwrap().unwrap().iter().unwrap().map(Result::unwrap);
    entries.map(|entry| (entry.key().to_vec(), entry.value().unwrap().to_vec())).collect()
}

/// All stores, with and without their manifest.
fn for_all(act: impl Fn(&Subject, bool)) {
    for (at, tree) in trees().into_iter().enumerate() {
        let cases = LENGTHS.into_iter().flat_map(|length| [(length, true), (length, false)]);
        for (length, has_manifest) in some_of(cases, 4, at) {
            let subject = Subject::new(tree, length, at % 2 == 1);
            act(&subject, has_manifest);
        }
    }
}

#[test]
fn salvage_finds_values_of_segments_and_of_value_logs() {
    for_all(|subject, has_manifest| {
        if has_manifest {
            let options = RepairOptions::new("/db").env(subject.machine.clone()).dry_run(true);
            let repaired = repair(options).unwrap();
            assert_eq!(repaired.findings, []);
        } else {
            subject.lose_manifest();
        }
        let report = subject.salvage();
        let method = if has_manifest { SalvageMethod::Manifest } else { SalvageMethod::Scan };
        assert_eq!(report.method, method);
        assert!(!has_manifest || report.is_complete(), "{report:?}");
        subject.check(&report, &BTreeSet::new());
        let [of_keyspace] = report.keyspaces.as_slice() else { panic!("{report:?}") };
        assert_eq!((of_keyspace.older_records, of_keyspace.uncertain_records), (0, 0));
    });
}

#[test]
fn salvage_finds_values_of_rewritten_segments() {
    for (at, tree) in trees().into_iter().enumerate() {
        for has_manifest in [true, false] {
            let mut subject = Subject::new(tree, LENGTHS[at % 2], at % 2 == 1);
            subject.rewrite();
            if !has_manifest {
                subject.lose_manifest();
            }
            let report = subject.salvage();
            assert!(!has_manifest || report.is_complete(), "{report:?}");
            subject.check(&report, &BTreeSet::new());
        }
    }
}

#[test]
fn a_damaged_segment_loses_exactly_the_keys_of_its_values() {
    for_all(|subject, has_manifest| {
        // Values that are neither in the value log nor removed.
        let (numbers, round) = subject.in_segment.clone();
        let lost = subject.damage((numbers.start..subject.in_log.0.start - 6, round));
        assert!(!lost.is_empty());
        if !has_manifest {
            subject.lose_manifest();
        }
        let report = subject.salvage();
        subject.check(&report, &lost);
        let ranges = &report.keyspaces[0].lost_ranges;
        // Without a manifest the log reports it first, unless a run known to be newer has the key.
        assert!(!has_manifest || ranges.iter().all(|lost| lost.why.contains("value segment")), "{report:?}");
        subject.check_older(&report.keyspaces[0], &BTreeSet::new());
    });
}

#[test]
fn damaged_values_that_were_overwritten_lose_nothing() {
    for_all(|subject, has_manifest| {
        // Some of these are in the value log.
        let (numbers, round) = subject.in_segment.clone();
        let damaged = subject.damage((subject.in_log.0.start + 10..numbers.end, round));
        assert!(!damaged.is_empty());
        if !has_manifest {
            subject.lose_manifest();
        }
        subject.check(&subject.salvage(), &BTreeSet::new());
    });
}

#[test]
fn a_damaged_value_log_never_presents_an_older_value_as_current() {
    for_all(|subject, has_manifest| {
        for half in 0..2 {
            // Half of its values have an older value in the tree, and half have none.
            let machine = subject.machine.crash_image(&testudo_env::CrashPolicy::KEEP_ALL, 1);
            let subject = Subject {
                machine,
                model: subject.model.clone(),
                flushed: subject.flushed.clone(),
                in_segment: subject.in_segment.clone(),
                in_log: subject.in_log.clone(),
                ..*subject
            };
            let (numbers, round) = subject.in_log.clone();
            let older_end = subject.in_segment.0.end;
            let part = if half == 0 { numbers.start + 10..older_end - 6 } else { older_end + 6..numbers.end };
            let lost = subject.damage((part, round));
            assert!(!lost.is_empty());
            if !has_manifest {
                subject.lose_manifest();
            }
            let report = subject.salvage();
            subject.check(&report, &lost);
            let ranges = &report.keyspaces[0].lost_ranges;
            assert!(ranges.iter().all(|lost| lost.why.contains("value log")), "{report:?}");
            assert_eq!(lost.iter().any(|key| subject.flushed.contains_key(key)), half == 0);
            subject.check_older(&report.keyspaces[0], &lost);
        }
    });
}
