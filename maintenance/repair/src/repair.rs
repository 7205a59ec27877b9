//! Repair: puts right what can be derived from valid parts of a store, and says what cannot.
//!
//! Only files around the data are touched: the superblock, and files that nothing refers to. Pages, manifest
//! and log are checked; where they are damaged, [`crate::salvage()`] is the way, because a repair in
//! place would overwrite what could still be read.
//!
//! **Invariants**
//! - What is replaced is copied first, and the copy is durable before anything else is written.
//! - Nothing is removed that anything refers to, and nothing at all while the current manifest is not valid.
//! - A dry run writes nothing.

mod leftovers;
mod opening_check;
mod page_check;
mod superblock_repair;

use std::path::{Path, PathBuf};

use testudo_base::{Error, Result, sync::Arc};
use testudo_env::{Env, RealEnv};
use testudo_storage::manifest_file_name;
use testudo_store::{
    directory::{self, LOCK_FILE, UNFINISHED_FILE},
    long_work::{Meter, Observer},
};

use crate::salvage::{evidence, plan::Plan};

/// What is repaired.
#[derive(Clone, Debug)]
pub struct RepairOptions {
    /// Directory of the store.
    pub directory: PathBuf,
    /// The operating system.
    pub env: Arc<dyn Env>,
    /// Only say what would be done. Default `false`.
    pub dry_run: bool,
}

impl RepairOptions {
    /// The defaults.
    pub fn new(directory: impl AsRef<Path>) -> Self {
        Self { directory: directory.as_ref().to_owned(), env: RealEnv::new(), dry_run: false }
    }
}

/// What becomes of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Remedy {
    /// It was put right.
    Repaired,
    /// It can be put right; this was a dry run.
    Repairable,
    /// It cannot be put right in place.
    NeedsSalvage,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct RepairFinding {
    /// The file.
    pub file: String,
    /// Where in it.
    pub offset: u64,
    /// What is wrong.
    pub what: String,
    /// What was done, or has to be done.
    pub action: String,
    /// What becomes of it.
    pub remedy: Remedy,
}

/// What a repair came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct RepairReport {
    /// What was found; empty if the store is valid.
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

/// Puts right what can be put right in place.
///
/// Errors: `Invalid` if the directory holds no store, `Locked` if it is open, `Corruption` if nothing tells
/// which store it is, `Unsupported` for a newer format, `OutOfSpace`, `Io`, `Cancelled`.
pub fn repair(options: &RepairOptions, observer: &mut Observer<'_>) -> Result<RepairReport> {
    let not_one = || Error::invalid(format!("{} is not a Testudo store", options.directory.display()));
    let entered = directory::anchor(&options.env, &options.directory)?.ok_or_else(not_one)?;
    let options = &RepairOptions { env: entered, ..options.clone() };
    let (env, directory) = (&options.env, options.directory.as_path());
    let names = directory::list(&**env, directory)?.unwrap_or_default();
    let is_store = names.iter().any(|name| name != LOCK_FILE && directory::is_store_file(name));
    if !is_store || names.iter().any(|name| name == UNFINISHED_FILE) {
        return Err(not_one());
    }
    let _lock = directory::lock(&**env, directory, !options.dry_run, !options.dry_run)?;
    let mut meter = Meter::new(observer, 0);
    let mut evidence = evidence::gather(env, directory, &mut meter)?;
    let mut report = RepairReport::default();
    let plan = Plan::of_manifest(&mut evidence);
    let Some(plan) = plan else {
        for finding in std::mem::take(&mut evidence.findings) {
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
    options: &'s RepairOptions,
    evidence: &'s mut evidence::Evidence,
    plan: &'s Plan,
    report: &'s mut RepairReport,
}

impl Site<'_> {
    /// Notes something that can be put right, and does so with `act` unless this is a dry run.
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

    /// The current manifest's name.
    fn manifest_name(&self) -> String {
        self.evidence
            .manifest
            .as_ref()
            .map_or_else(String::new, |manifest| manifest_file_name(manifest.number))
    }
}
