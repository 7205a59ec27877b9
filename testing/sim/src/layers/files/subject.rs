//! Stores with older versions and diverged copies of their files, and the checks of a damaged one.
//!
//! **Invariants**
//! - Every commit is synced. A copy makes the same changes with different values, so its seqnos, run ids,
//!   file names and file sizes are the same.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use testudo::{
    Db, Durability, KeyspaceOptions, RepairOptions, Result, SalvageOptions, VerifyLevel, repair, salvage,
};
use testudo_env::{CrashPolicy, Env, MemEnv};
use testudo_testkit::{
    busy_store::{Contents, contents_of},
    configuration::Configuration,
};

use super::damage::Damage;

const DIRECTORY: &str = "/db";
const MEMORY_BYTES: u64 = 1 << 20;
/// Synced commits after the last edit.
const TAIL_COMMITS: u32 = 10;
/// Every write is present, synced or not.
const KILLED: &str = "killed";
/// Unsynced writes are lost.
const LOST_POWER: &str = "after a power loss";

pub(super) type Files = BTreeMap<PathBuf, Vec<u8>>;

/// A store in its final state, and its expected content.
pub(super) struct Subject {
    pub(super) configuration: String,
    /// The way the store ended.
    pub(super) state: &'static str,
    pub(super) files: Files,
    /// Files at other times and of another copy.
    pub(super) others: Vec<(&'static str, Files)>,
    machine: Arc<MemEnv>,
    /// Content when the superblock was last written, and after each commit since then.
    history: Vec<Contents>,
}

/// Result of a damaged store.
pub(super) struct Judged {
    /// Whether it opened and gave every answer.
    pub(super) is_right: bool,
    pub(super) is_salvaged_whole: bool,
}

/// The way a store ends.
#[derive(Clone, Copy)]
enum End {
    Closed,
    Killed,
    LostPower,
}

struct Life {
    machine: Arc<MemEnv>,
    earlier: Vec<(&'static str, Files)>,
    history: Vec<Contents>,
}

/// The store closed, killed, after a power loss, and one not opened since it was copied, while its copy was
/// opened.
pub(super) fn subjects(configuration: &Configuration) -> std::result::Result<Vec<Subject>, String> {
    make_all(configuration).map_err(|error| error.to_string())
}

fn make_all(configuration: &Configuration) -> Result<Vec<Subject>> {
    let options = configuration.opener.options;
    let common = begin(options)?;
    let mut subjects = Vec::new();
    for (state, end) in [("closed", End::Closed), (KILLED, End::Killed), (LOST_POWER, End::LostPower)] {
        let life = live(&common, 1, options, end)?;
        let copy = live(&common, 2, options, end)?;
        let mut others = life.earlier;
        others.push(("of before the copy was made", files_of(&common)));
        others.push(("of the copy", files_of(&copy.machine)));
        let (machine, history) = (life.machine, life.history);
        subjects.push(Subject::new(configuration, state, machine, others, history));
    }
    let copy = live(&common, 2, options, End::Killed)?;
    let history = vec![contents_of(&open(&common.crash_image(&CrashPolicy::KEEP_ALL, 3))?)?];
    let others = vec![("of the copy", files_of(&copy.machine))];
    subjects.push(Subject::new(configuration, "not opened since it was copied", common, others, history));
    Ok(subjects)
}

fn files_of(machine: &MemEnv) -> Files {
    let read = |path: PathBuf| machine.file_bytes(&path).map(|bytes| (path, bytes)).ok();
    machine.all_files().into_iter().filter_map(read).collect()
}

fn open(machine: &Arc<MemEnv>) -> Result<Db> {
    Db::builder(DIRECTORY).memory_bytes(MEMORY_BYTES).env(Arc::clone(machine) as Arc<dyn Env>).open()
}

/// Creates the common content of both copies.
fn begin(options: KeyspaceOptions) -> Result<Arc<MemEnv>> {
    let machine = MemEnv::new(1);
    let db = open(&machine)?;
    let alpha = db.keyspace("alpha", || options)?;
    let gone = db.keyspace("gone", || options)?;
    let mut batch = db.batch();
    for number in 0..150 {
        batch.insert(&alpha, format!("key{number:03}"), format!("common {number}"));
        batch.insert(&gone, format!("key{number:03}"), "gone");
    }
    batch.durability(Durability::Sync).commit()?;
    db.flush()?;
    db.close()?;
    Ok(machine.crash_image(&CrashPolicy::KEEP_ALL, 1))
}

/// Makes the changes of one copy; other seeds make the same changes with other values.
fn live(common: &MemEnv, seed: u8, options: KeyspaceOptions, end: End) -> Result<Life> {
    let machine = common.crash_image(&CrashPolicy::KEEP_ALL, seed.into());
    let db = open(&machine)?;
    let alpha = db.keyspace("alpha", || options)?;
    let put = |keyspace: &testudo::Keyspace, number: u32| {
        let mut batch = db.batch();
        batch.insert(keyspace, format!("key{number:03}"), format!("copy {seed}, value {number}"));
        batch.durability(Durability::Sync).commit()
    };
    let mut earlier = Vec::new();
    (0..40).try_for_each(|number| put(&alpha, number))?;
    earlier.push(("of before a flush", files_of(&machine)));
    db.flush()?;
    (30..60).try_for_each(|number| put(&alpha, number))?;
    earlier.push(("of before a keyspace", files_of(&machine)));
    let late = db.keyspace("late", || options)?;
    let mut batch = db.batch();
    (0..5).for_each(|number| batch.insert(&late, format!("late{number}"), "late"));
    (0..5).for_each(|number| batch.insert(&alpha, format!("late{number}"), "late"));
    batch.durability(Durability::Sync).commit()?;
    earlier.push(("of before a drop", files_of(&machine)));
    db.drop_keyspace("gone")?;
    let mut history = vec![contents_of(&db)?];
    for number in 0..TAIL_COMMITS {
        put(if number % 2 == 0 { &late } else { &alpha }, 100 + number)?;
        history.push(contents_of(&db)?);
        if number == TAIL_COMMITS / 2 {
            earlier.push(("of some commits ago", files_of(&machine)));
        }
    }
    drop((alpha, late));
    let policy = match end {
        End::Closed | End::Killed => CrashPolicy::KEEP_ALL,
        End::LostPower => CrashPolicy::LOSE_ALL,
    };
    if matches!(end, End::Closed) {
        db.close()?;
    }
    Ok(Life { machine: machine.crash_image(&policy, 1), earlier, history })
}

impl Subject {
    fn new(
        configuration: &Configuration,
        state: &'static str,
        machine: Arc<MemEnv>,
        others: Vec<(&'static str, Files)>,
        history: Vec<Contents>,
    ) -> Self {
        let (configuration, files) = (configuration.name.clone(), files_of(&machine));
        Self { configuration, state, files, others, machine, history }
    }

    /// Whether the last commits may be lost undetected.
    fn may_lose_tail(&self, case: &[Damage]) -> bool {
        match self.state {
            KILLED => case.len() > 1 && case.iter().any(|damage| damage.path().ends_with("watermark")),
            LOST_POWER => case.iter().any(Damage::is_of_log),
            _ => false,
        }
    }

    /// Whether a case leaves no evidence: after a power loss only log and superblock determine the log's
    /// length.
    pub(super) fn has_no_evidence(&self, case: &[Damage]) -> bool {
        let superblock = |damage: &Damage| damage.path().ends_with("superblock");
        self.state == LOST_POWER && case.iter().any(Damage::is_of_log) && case.iter().any(superblock)
    }

    /// Opens, verifies, repairs (dry) and salvages a damaged copy.
    pub(super) fn judge(&self, case: &[Damage]) -> std::result::Result<Judged, String> {
        let damaged = || -> std::result::Result<Arc<MemEnv>, String> {
            let copy = self.machine.crash_image(&CrashPolicy::KEEP_ALL, 1);
            for damage in case {
                damage.apply(&copy).map_err(|error| format!("the damage cannot be applied: {error}"))?;
            }
            Ok(copy)
        };
        let is_right = self.read(&damaged()?, case)?;
        let copy = damaged()?;
        let repaired =
            repair(RepairOptions::new(DIRECTORY).env(Arc::clone(&copy) as Arc<dyn Env>).dry_run(true));
        if !is_right && repaired.is_ok_and(|report| report.findings.is_empty()) {
            return Err("a repair finds nothing, but not everything can be read".into());
        }
        let is_salvaged_whole = self.salvage(&copy, case)?;
        if case.iter().all(Damage::is_harmless) && !(is_right && is_salvaged_whole) {
            return Err(format!(
                "nothing is lost: read right {is_right}, salvaged whole {is_salvaged_whole}"
            ));
        }
        Ok(Judged { is_right, is_salvaged_whole })
    }

    /// Allowed contents: all synced writes, or the part of them that can be proven in this case.
    fn allowed(&self, case: &[Damage]) -> &[Contents] {
        let first = if self.may_lose_tail(case) { 0 } else { self.history.len() - 1 };
        &self.history[first..]
    }

    fn compare(&self, found: &Contents, case: &[Damage]) -> std::result::Result<(), String> {
        if self.allowed(case).contains(found) {
            return Ok(());
        }
        let count = |(name, pairs): (&String, &Vec<_>)| format!("{name}: {} records", pairs.len());
        let counts: Vec<_> = found.iter().map(count).collect();
        Err(format!("wrong or missing records without an error ({})", counts.join(", ")))
    }

    /// Whether everything could be read.
    fn read(&self, machine: &Arc<MemEnv>, case: &[Damage]) -> std::result::Result<bool, String> {
        let Ok(db) = Db::builder(DIRECTORY)
            .memory_bytes(MEMORY_BYTES)
            .env(Arc::clone(machine) as Arc<dyn Env>)
            .create(false)
            .open()
        else {
            return Ok(false);
        };
        if let Ok(found) = contents_of(&db) {
            self.compare(&found, case)?;
            return Ok(true);
        }
        // Everything that can be read must be right.
        for (name, pairs) in &self.history[self.history.len() - 1] {
            let keyspace = db.open_keyspace(name).map_err(|error| error.to_string())?;
            let keyspace = keyspace.ok_or_else(|| format!("keyspace {name} is missing without an error"))?;
            for (key, _) in pairs {
                let Ok(found) = keyspace.get(key) else { continue };
                if !self.allowed(case).iter().any(|state| value_in(state, name, key) == found.as_deref()) {
                    return Err(format!("{}: a wrong answer", String::from_utf8_lossy(key)));
                }
            }
        }
        match db.verify(VerifyLevel::Full) {
            Ok(report) if report.is_valid() => Err("reads fail, but the verification finds nothing".into()),
            _ => Ok(false),
        }
    }

    /// Whether a salvage reports itself complete; then its content must be. The salvaged store must be valid
    /// in any case.
    fn salvage(&self, machine: &Arc<MemEnv>, case: &[Damage]) -> std::result::Result<bool, String> {
        let env = Arc::clone(machine) as Arc<dyn Env>;
        let options = SalvageOptions::new(DIRECTORY, "/salvaged").env(env).memory_bytes(MEMORY_BYTES);
        let Ok(report) = salvage(options) else { return Ok(false) };
        let builder = Db::builder("/salvaged").memory_bytes(MEMORY_BYTES);
        let db = builder.env(Arc::clone(machine) as Arc<dyn Env>).create(false).open();
        let db = db.map_err(|error| format!("a salvaged store does not open: {error}"))?;
        let verified = db.verify(VerifyLevel::Full).map_err(|error| error.to_string())?;
        if let Some(finding) = verified.findings.first() {
            return Err(format!("a salvaged store is damaged: {finding}"));
        }
        let found = contents_of(&db).map_err(|error| format!("a salvaged store cannot be read: {error}"))?;
        if report.is_complete() {
            self.compare(&found, case)
                .map_err(|wrong| format!("salvage reports itself complete: {wrong}"))?;
        }
        Ok(report.is_complete())
    }
}

fn value_in<'c>(contents: &'c Contents, keyspace: &str, key: &[u8]) -> Option<&'c [u8]> {
    let pairs = contents.get(keyspace)?;
    let at = pairs.binary_search_by(|(stored, _)| stored.as_slice().cmp(key)).ok()?;
    Some(&pairs[at].1)
}
