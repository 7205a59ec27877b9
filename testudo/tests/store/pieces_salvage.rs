//! Salvage of values in pieces: a key whose value lacks a piece is reported as lost by name, and every value
//! written is whole.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, io::Read, path::Path, sync::Arc};

use testudo::{
    Db, Durability, Keyspace, KeyspaceOptions, KeyspaceSalvage, Placement, SalvageMethod, SalvageOptions,
    SalvageReport, Tree, VerifyLevel, salvage,
};
use testudo_env::{CrashPolicy, Env, MemEnv};

const MEMORY: u64 = 4 << 20;
const PIECE: usize = 64 << 10;
const PAGE: usize = 4096;
const FILMS: &str = "films";

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn all_options() -> Vec<KeyspaceOptions> {
    let plain = KeyspaceOptions::default();
    vec![
        plain.tree(Tree::turtle()),
        plain.tree(Tree::splinter()).placement(Placement::hybrid()),
        plain.tree(Tree::leveled()).placement(Placement::separate()),
        plain.tree(Tree::treeline()),
    ]
}

/// A value in which every 16-byte line is unique across values and positions.
fn value(name: &str, length: usize) -> Vec<u8> {
    let lines = (0_u32..).flat_map(|line| format!("<{name}/{line:08}>\n").into_bytes());
    lines.take(length).collect()
}

fn open_at(machine: &Arc<MemEnv>, directory: &str) -> Db {
    let builder = Db::builder(Path::new(directory)).env(machine.clone()).memory_bytes(MEMORY);
    builder.warm_restart(false).open().unwrap()
}

fn put(keyspace: &Keyspace, model: &mut Model, key: &str, name: &str, length: usize) {
    let value = value(name, length);
    keyspace.insert_reader(key, length as u64, value.as_slice()).unwrap();
    model.insert(key.as_bytes().to_vec(), value);
}

/// A closed store with films in pieces, and its expected content.
struct Subject {
    machine: Arc<MemEnv>,
    model: Model,
}

impl Subject {
    fn new(options: KeyspaceOptions, is_flushed: bool) -> Self {
        let machine = MemEnv::new(1);
        let db = open_at(&machine, "/db");
        let mut model = Model::new();
        {
            let films = db.keyspace(FILMS, options).unwrap();
            films.insert("b-film", "what it was before").unwrap();
            films.insert("short", "as any other").unwrap();
            model.insert(b"short".to_vec(), b"as any other".to_vec());
            db.flush().unwrap();
            for name in ["a-film", "b-film", "c-film"] {
                put(&films, &mut model, name, name, 2 * PIECE + 999);
            }
            films.insert("gone", value("gone", 100)).unwrap();
            films.remove("gone").unwrap();
            // Created after the keyspace of pieces.
            let late = db.keyspace("late", options).unwrap();
            put(&late, &mut Model::new(), "late-film", "late-film", PIECE + 1);
        }
        let subject = Self { machine, model };
        if !is_flushed {
            db.persist(Durability::Sync).unwrap();
            db.close().unwrap();
            return subject;
        }
        db.flush().unwrap();
        db.close().unwrap();
        // The log of another opening replaces the complete one.
        let db = open_at(&subject.machine, "/db");
        db.open_keyspace("late").unwrap().unwrap().insert("last", "").unwrap();
        db.flush().unwrap();
        db.close().unwrap();
        let is_of_film = |bytes: &[u8]| bytes.windows(8).any(|window| window == b"<b-film/");
        let logs = subject.files("wal-");
        assert!(!logs.iter().any(|log| is_of_film(&subject.machine.file_bytes(log).unwrap())));
        subject
    }

    fn copy(&self) -> Self {
        let machine = self.machine.crash_image(&CrashPolicy::KEEP_ALL, 1);
        Self { machine, model: self.model.clone() }
    }

    fn files(&self, start: &str) -> Vec<std::path::PathBuf> {
        let files = self.machine.all_files().into_iter();
        files.filter(|path| path.to_str().unwrap().starts_with(&format!("/db/{start}"))).collect()
    }

    fn lose_manifest(&self) {
        self.files("manifest").iter().for_each(|file| self.machine.remove_file(file).unwrap());
    }

    /// Zeroes 64 bytes in the middle of a piece in all files with these name prefixes.
    fn damage(&self, starts: &[&str], name: &str, piece: usize) {
        let text = &value(name, 3 * PIECE)[piece * PIECE + PIECE / 2..][..64];
        let mut is_done = false;
        for path in starts.iter().flat_map(|start| self.files(start)) {
            let mut bytes = self.machine.file_bytes(&path).unwrap();
            while let Some(at) = bytes.windows(64).position(|window| window == text) {
                bytes[at..at + 64].fill(0);
                self.machine.replace(&path, &bytes).unwrap();
                is_done = true;
            }
        }
        assert!(is_done);
    }

    /// Salvages, and checks that all content is right and readable, and that the rest is reported.
    fn salvage(&self) -> (SalvageReport, Vec<String>) {
        let options = SalvageOptions::new("/db", "/saved").env(self.machine.clone()).memory_bytes(MEMORY);
        let report = salvage(options).unwrap();
        // Without a manifest a keyspace may lose its name.
        let names: Vec<&str> = report.keyspaces.iter().map(|keyspace| keyspace.name.as_str()).collect();
        let is_lost = |name: &str| report.method == SalvageMethod::Scan && name.starts_with("recovered-");
        assert!(
            names.len() == 2 && names[0] == FILMS && (names[1] == "late" || is_lost(names[1])),
            "{report:?}"
        );
        let db = open_at(&self.machine, "/saved");
        let verified = db.verify(VerifyLevel::Full).unwrap();
        assert!(verified.is_valid(), "{:?}", verified.findings);
        // Twice, the second time after a sweep of unreferenced values.
        let found = contents(&db, FILMS);
        db.compact().unwrap();
        assert!(contents(&db, FILMS) == found && db.verify(VerifyLevel::Full).unwrap().is_valid());
        let films = &report.keyspaces[0];
        assert_eq!(films.records, found.len() as u64);
        let bytes: usize = found.iter().map(|(key, value)| key.len() + value.len()).sum();
        assert_eq!(films.bytes, bytes as u64);
        assert!(found.iter().all(|(key, value)| self.model.get(key) == Some(value)));
        let missing = self.model.keys().filter(|key| !found.contains_key(*key));
        let missing: Vec<String> = missing.map(|key| String::from_utf8(key.clone()).unwrap()).collect();
        for key in &missing {
            let is_lost = films.lost_ranges.iter().any(|range| range.contains(key.as_bytes()));
            assert!(is_lost || !report.log.lost.is_empty(), "{key} is missing: {report:?}");
        }
        (report, missing)
    }
}

fn contents(db: &Db, name: &str) -> Model {
    let keyspace = db.open_keyspace(name).unwrap().unwrap();
    let read = |entry: testudo::Result<testudo::Entry>| {
        let entry = entry.unwrap();
        let mut value = Vec::new();
        entry.reader().unwrap().read_to_end(&mut value).unwrap();
        (entry.key().to_vec(), value)
    };
    keyspace.iter().unwrap().map(read).collect()
}

/// The reported keys, each as its own range.
fn named(keyspace: &KeyspaceSalvage) -> Vec<String> {
    let name = |range: &testudo::LostRange| {
        assert_eq!(range.high.as_deref(), Some(&[&range.low[..], &[0]].concat()[..]), "{range:?}");
        String::from_utf8(range.low.clone()).unwrap()
    };
    keyspace.lost_ranges.iter().map(name).collect()
}

#[test]
fn a_key_with_a_lost_piece_is_named_and_the_rest_is_complete() {
    for options in all_options() {
        for (is_flushed, has_manifest) in [(true, true), (true, false), (false, true)] {
            for piece in 0..2 {
                let subject = Subject::new(options, is_flushed);
                subject.damage(&["data", "wal-"], "b-film", piece);
                if !has_manifest {
                    subject.lose_manifest();
                }
                let (report, missing) = subject.salvage();
                assert!(!report.is_complete());
                assert_eq!(missing, ["b-film"], "{report:?}");
                assert_eq!(named(&report.keyspaces[0]), ["b-film"], "{report:?}");
                assert_eq!(named(&report.keyspaces[1]), [""; 0]);
                let lost = &report.keyspaces[0].lost_ranges[0];
                assert!(lost.why.contains(&format!("piece {piece} of the value is missing: ")), "{lost:?}");
                assert!(lost.bytes_about > 2 * PIECE as u64 && !lost.file.is_empty() && lost.offset > 0);
            }
        }
    }
}

#[test]
fn a_salvaged_store_is_valid_after_losing_any_page() {
    let (mut with_losses, mut of_pieces) = (0, 0);
    for options in all_options() {
        let subject = Subject::new(options, true);
        let length = subject.machine.file_bytes("/db/data").unwrap().len();
        for page in 0..length / PAGE {
            let damaged = subject.copy();
            let mut bytes = damaged.machine.file_bytes("/db/data").unwrap();
            if bytes[page * PAGE..][..PAGE].iter().all(|byte| *byte == 0) {
                continue;
            }
            bytes[page * PAGE..][..PAGE].fill(0);
            damaged.machine.replace("/db/data", &bytes).unwrap();
            if page % 3 == 1 {
                damaged.lose_manifest();
            }
            let (report, missing) = damaged.salvage();
            with_losses += u32::from(!missing.is_empty());
            let films = &report.keyspaces[0];
            of_pieces += films.lost_ranges.iter().filter(|range| range.why.contains("piece")).count();
        }
    }
    assert!(with_losses > 100 && of_pieces > 100, "{with_losses} with losses, {of_pieces} of pieces");
}

#[test]
fn salvage_drops_pieces_without_a_key() {
    let subject = Subject::new(KeyspaceOptions::default(), true);
    subject.damage(&["data", "wal-"], "b-film", 1);
    subject.salvage();
    let db = open_at(&subject.machine, "/saved");
    db.compact().unwrap();
    // Two of the three films, and the late one.
    let expected = 2 * (2 * PIECE + 999) + PIECE + 1;
    let live = db.stats().space.live_bytes;
    assert!(live < (expected + PIECE) as u64, "{live} bytes");
}

#[test]
fn verification_names_keys_with_lost_pieces() {
    for options in all_options() {
        let subject = Subject::new(options, true);
        subject.damage(&["data"], "b-film", 0);
        subject.damage(&["data"], "c-film", 1);
        let db = open_at(&subject.machine, "/db");
        let report = db.verify(VerifyLevel::Full).unwrap();
        let of_keys = report.findings.iter().filter(|finding| finding.what.starts_with("the value of key"));
        let of_keys: Vec<String> = of_keys.map(ToString::to_string).collect();
        assert_eq!(of_keys.len(), 2, "{:?}", report.findings);
        for (finding, name) in of_keys.iter().zip(["b-film", "c-film"]) {
            assert!(finding.contains(name) && finding.contains("(keyspace \"films\")"), "{finding}");
        }
    }
}
