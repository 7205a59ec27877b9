//! Repair: restores state that can be derived from valid parts of a store, and reports the rest.
//!
//! Repair changes only files around the data: the superblock, and unreferenced files. It checks pages,
//! manifest and log; damage there needs [`crate::salvage()`], since a repair in place would overwrite data
//! that is still readable.
//!
//! **Invariants**
//! - A replaced file is copied first, and the copy is durable before anything else is written.
//! - No referenced file is removed, and nothing at all while the current manifest is not valid.
//! - A dry run writes nothing.

mod leftovers;
mod opening_check;
mod page_check;
mod superblock_repair;

use std::{
    mem,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use testudo_base::{Error, Result, sync::Arc};
use testudo_env::{Env, RealEnv};
use testudo_storage::manifest_file_name;
use testudo_store::{
    directory::{self, LOCK_FILE, LockAs, UNFINISHED_FILE},
    long_work::{Meter, Observed, WorkDone},
};

use crate::salvage::{evidence, plan::Plan};

/// Options of a repair.
#[derive(Debug)]
pub struct RepairOptions<'a> {
    directory: PathBuf,
    env: Arc<dyn Env>,
    dry_run: bool,
    observer: Observed<'a>,
}

impl<'a> RepairOptions<'a> {
    /// A repair of the store in `directory`, with the default options.
    pub fn new(directory: impl AsRef<Path>) -> Self {
        let directory = directory.as_ref().to_owned();
        Self { directory, env: RealEnv::new(), dry_run: false, observer: Observed::default() }
    }

    /// Operating system environment; for tests.
    #[must_use]
    pub fn env(mut self, env: Arc<dyn Env>) -> Self {
        self.env = env;
        self
    }

    /// Whether only to report possible repairs. Default `false`.
    #[must_use]
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }

    /// Calls `observer` periodically with the progress; its `Break` ends the repair with `Cancelled`.
    #[must_use]
    pub fn observer(mut self, observer: impl FnMut(WorkDone) -> ControlFlow<()> + 'a) -> Self {
        self.observer = Observed::by(observer);
        self
    }
}

/// Outcome of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Remedy {
    /// The problem was repaired.
    Repaired,
    /// The problem can be repaired; this was a dry run.
    Repairable,
    /// The problem cannot be repaired in place.
    NeedsSalvage,
}

/// A problem in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct RepairFinding {
    /// The file.
    pub file: String,
    /// Byte offset in the file.
    pub offset: u64,
    /// Description of the problem.
    pub what: String,
    /// The action, done or to be done.
    pub action: String,
    /// Outcome of the finding.
    pub remedy: Remedy,
}

/// Result of a repair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct RepairReport {
    /// Problems found; empty if the store is valid.
    pub findings: Vec<RepairFinding>,
    /// Bytes of runs that were checked.
    pub checked_bytes: u64,
}

impl RepairReport {
    /// Whether the store is valid now.
    pub fn is_valid(&self) -> bool {
        self.findings.iter().all(|finding| finding.remedy == Remedy::Repaired)
    }

    /// The former name of `is_valid`.
    #[deprecated(since = "0.1.0", note = "use `is_valid`")]
    pub fn is_sound(&self) -> bool {
        self.is_valid()
    }

    fn needs_salvage(&mut self, file: &str, offset: u64, what: impl Into<String>, action: &str) {
        let (file, what, action) = (file.to_owned(), what.into(), action.to_owned());
        self.findings.push(RepairFinding { file, offset, what, action, remedy: Remedy::NeedsSalvage });
    }
}

/// Repairs what can be repaired in place.
///
/// Errors: `Invalid` if the directory holds no store, `Locked` if it is open, `Corruption` if the store
/// cannot be identified, `Unsupported` for a newer format, `OutOfSpace`, `Io`, `Cancelled`.
pub fn repair(mut options: RepairOptions<'_>) -> Result<RepairReport> {
    let not_one = || Error::invalid(format!("{} is not a Testudo store", options.directory.display()));
    let entered = directory::anchor(&options.env, &options.directory)?.ok_or_else(not_one)?;
    options.env = entered;
    let mut observer = mem::take(&mut options.observer);
    let options = &options;
    let (env, directory) = (&options.env, options.directory.as_path());
    let names = directory::list(&**env, directory)?.unwrap_or_default();
    let is_store = names.iter().any(|name| name != LOCK_FILE && directory::is_store_file(name));
    if !is_store || names.iter().any(|name| name == UNFINISHED_FILE) {
        return Err(not_one());
    }
    let lock_as = if options.dry_run { LockAs::Reader } else { LockAs::Creator };
    let _lock = directory::lock(&**env, directory, lock_as)?;
    let mut meter = Meter::new(observer.get(), 0);
    let mut evidence = evidence::gather(env, directory, &mut meter)?;
    let mut report = RepairReport::default();
    let plan = Plan::of_manifest(&mut evidence);
    let Some(plan) = plan else {
        for finding in mem::take(&mut evidence.findings) {
            report.needs_salvage("manifest", 0, finding, "salvage finds the runs without it");
        }
        return Ok(report);
    };
    let mut site = Site { options, evidence: &mut evidence, plan: &plan, report: &mut report };
    site.check_trees()?;
    site.check_log(&mut meter)?;
    site.check_pages(&mut meter)?;
    site.repair_superblock()?;
    site.remove_leftovers()?;
    Ok(report)
}

/// A store under repair.
struct Site<'s> {
    options: &'s RepairOptions<'s>,
    evidence: &'s mut evidence::Evidence,
    plan: &'s Plan,
    report: &'s mut RepairReport,
}

impl Site<'_> {
    /// Records a repairable problem, and repairs it with `act` unless this is a dry run.
    fn put_right(
        &mut self,
        file: &str,
        what: &str,
        action: &str,
        act: impl FnOnce(&dyn Env, &Path) -> Result<()>,
    ) -> Result<()> {
        let mut remedy = Remedy::Repairable;
        if !self.options.dry_run {
            act(&*self.options.env, &self.options.directory)?;
            remedy = Remedy::Repaired;
        }
        let (file, what, action) = (file.to_owned(), what.to_owned(), action.to_owned());
        self.report.findings.push(RepairFinding { file, offset: 0, what, action, remedy });
        Ok(())
    }

    /// File name of the current manifest.
    fn manifest_name(&self) -> String {
        self.evidence
            .manifest
            .as_ref()
            .map_or_else(String::new, |manifest| manifest_file_name(manifest.number))
    }
}
