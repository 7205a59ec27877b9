//! The files of a small store, changed anywhere, some of them missing: repaired, and salvaged to a new store.
//!
//! **Invariants**
//! - Neither panics, hangs or exceeds its memory, whatever content has right checksums.
//! - A dry run of a repair writes nothing and finds the same as the repair; a store that a repair reports
//!   valid stays valid.
//! - A salvaged store opens, verifies, and has as many records as the report states; a failed salvage leaves
//!   nothing.
//! - Where checksums reveal all damage, everything outside a lost range is salvaged, and nothing else.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use testudo::{
    Db, ErrorKind, KeyspaceSalvage, Remedy, RepairOptions, RepairReport, SalvageMethod, SalvageOptions,
    SalvageReport, VerifyLevel, repair, salvage,
};
use testudo_env::{CrashPolicy, Env, MemEnv};

use crate::{
    base_store::{BaseStore, DIRECTORY, MEMORY_BYTES, OPERATOR, StoredFile, base_stores},
    exercise::{Content, content_of, require_named},
    input::Input,
    patch,
};

/// Directory of the new store.
const TARGET: &str = "/new";

/// Runs the target.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let stores = base_stores();
    let store = &stores[usize::from(input.u8()) % stores.len()];
    let (mode, missing) = (input.u8(), input.u8());
    let is_sealed = !mode.is_multiple_of(4);
    let spares_superblock = mode & 0x10 != 0;
    let older_versions = mode & 0x20 != 0;
    let mut files = store.files.clone();
    let is_spared = |name: &str| name == "LOCK" || (spares_superblock && name == "superblock");
    patch::apply(&mut files, &mut input, |name| !is_spared(name));
    if is_sealed {
        store.seal(&mut files);
    }
    files.retain(|file| is_spared(&file.name) || !is_missing(file, missing));
    let machine = store.machine(&files);
    check_repair(&machine);
    let Some((report, content)) = check_salvage(&machine, older_versions) else { return };
    let hides_nothing = !is_sealed && spares_superblock && store.is_closed && !older_versions;
    if hides_nothing && report.method == SalvageMethod::Manifest && report.log.lost.is_empty() {
        check_content(store, &report, &content);
    }
}

/// Whether `missing` marks a file as missing: one bit for each kind, rarely set.
fn is_missing(file: &StoredFile, missing: u8) -> bool {
    let kinds = ["superblock", "manifest", "data", "wal"];
    let kind = kinds.iter().position(|kind| file.name.starts_with(kind));
    kind.is_some_and(|kind| missing & 0x11 << kind == 0x11 << kind)
}

/// The bytes of all files of the damaged store.
fn files_of(machine: &MemEnv) -> Vec<Vec<u8>> {
    let files = machine.all_files().into_iter().filter(|path| path.starts_with(DIRECTORY));
    files.map(|path| machine.file_bytes(&path).unwrap_or_default()).collect()
}

fn run_repair(machine: &Arc<MemEnv>, dry_run: bool) -> testudo::Result<RepairReport> {
    let env = Arc::clone(machine) as Arc<dyn Env>;
    repair(RepairOptions::new(DIRECTORY).env(env).dry_run(dry_run))
}

/// Repairs a copy.
fn check_repair(machine: &Arc<MemEnv>) {
    let before = files_of(machine);
    let dry = run_repair(machine, true);
    assert!(files_of(machine) == before, "a dry run writes");
    let copy = machine.crash_image(&CrashPolicy::KEEP_ALL, 1);
    let (dry, report) = match (dry, run_repair(&copy, false)) {
        (Ok(dry), Ok(report)) => (dry, report),
        (Err(dry), Err(error)) => {
            require_named(&dry);
            return require_named(&error);
        }
        (dry, report) => panic!("the dry run gives {dry:?}, the repair {report:?}"),
    };
    let places = |report: &RepairReport| -> Vec<_> {
        report.findings.iter().map(|finding| (finding.file.clone(), finding.what.clone())).collect()
    };
    assert_eq!(places(&dry), places(&report), "a dry run finds different places");
    if report.is_valid() {
        let again = run_repair(&copy, true).expect("a repaired store can be checked");
        assert_eq!(places(&again), [], "a repair leaves something to repair");
        if let Err(error) = crate::base_store::open(copy) {
            panic!("a repaired store cannot be opened: {error}");
        }
    } else {
        assert!(dry.findings.iter().any(|finding| finding.remedy == Remedy::NeedsSalvage));
    }
}

/// Salvages, and checks the result.
fn check_salvage(machine: &Arc<MemEnv>, older_versions: bool) -> Option<(SalvageReport, Content)> {
    let options = SalvageOptions::new(DIRECTORY, TARGET)
        .env(Arc::clone(machine) as Arc<dyn Env>)
        .memory_bytes(MEMORY_BYTES)
        .older_versions(older_versions)
        .merge_operator(OPERATOR);
    let before = files_of(machine);
    let outcome = salvage(options);
    assert!(files_of(machine) == before, "a salvage writes to its source");
    let report = match outcome {
        Ok(report) => report,
        Err(error) => {
            require_named(&error);
            let is_left = machine.all_files().iter().any(|path| path.starts_with(TARGET));
            assert!(!is_left, "a failed salvage leaves files: {error}");
            return None;
        }
    };
    let opener = Db::builder(Path::new(TARGET)).memory_bytes(MEMORY_BYTES).create(false);
    let db = opener.env(Arc::clone(machine) as Arc<dyn Env>).open().expect("a salvaged store opens");
    let verified = db.verify(VerifyLevel::Full).expect("a salvaged store can be verified");
    assert!(verified.is_valid(), "a salvaged store is damaged: {:?}", verified.findings);
    let content = match content_of(&db) {
        // The name of a merge operator was changed.
        Err(error) if error.kind() == ErrorKind::Unsupported => return None,
        content => content.expect("a salvaged store can be read"),
    };
    let beside =
        |keyspace: &KeyspaceSalvage| keyspace.older_keyspace.as_ref().map_or(0, |_| keyspace.older_records);
    let counted = report.records() + report.keyspaces.iter().map(beside).sum::<u64>();
    let records: usize = content.iter().map(|(_, pairs)| pairs.len()).sum();
    assert_eq!(testudo_base::num::u64_of(records), counted, "the report has a different count");
    db.close().expect("a salvaged store can be closed");
    Some((report, content))
}

/// Checks that all records found are right, and that missing ones are reported.
fn check_content(store: &BaseStore, report: &SalvageReport, content: &Content) {
    let found: BTreeMap<_, _> = content.iter().map(|(name, pairs)| (name, pairs)).collect();
    for (name, pairs) in &store.content {
        let keyspace = report.keyspaces.iter().find(|keyspace| keyspace.name == *name);
        let keyspace = keyspace.unwrap_or_else(|| panic!("keyspace {name} is lost and not reported"));
        let found: BTreeMap<_, _> = found[name].iter().map(|(key, value)| (key, value)).collect();
        let expected: BTreeMap<_, _> = pairs.iter().map(|(key, value)| (key, value)).collect();
        for (key, value) in &found {
            assert!(expected.get(key) == Some(value), "salvage invents a value of {key:x?}");
        }
        let is_lost = |key: &[u8]| keyspace.lost_ranges.iter().any(|range| range.contains(key));
        for key in expected.keys().filter(|key| !found.contains_key(*key)) {
            assert!(is_lost(key), "{key:x?} is lost and not reported");
        }
    }
}
