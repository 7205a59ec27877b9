//! Salvage: reads a damaged store as far as possible, writes a new one, and reports all losses.
//!
//! ```text
//! evidence.rs (store id, superblock, manifest, log, data file)
//!   -> plan.rs: which runs are used, from the manifest, or page_scan.rs: every run that left a footer
//!   -> logged_values.rs: numbered values into a scratch keyspace of the target
//!   -> log.rs: newest operation of each key into scratch keyspaces of the target
//!   -> write.rs: long values first (long_values.rs), then for each keyspace keyspace_writer.rs: sweep.rs
//!      (what the runs hold), decide.rs
//!   -> the target
//! ```
//!
//! **Invariants**
//! - The source is never written, and is locked (shared) if it has a lock file.
//! - A version recovered as current is current, or reported as uncertain. If only an older version of a key
//!   is left, the key is in a reported lost range, and the version is in a separate keyspace unless the
//!   caller asks otherwise.
//! - The target passes full verification: an entry whose value is missing, or incomplete, is not written,
//!   and its key is in a reported lost range.
//! - An unfinished target carries a mark and is not a store.
//! - Memory is bounded by the runs that overlap at one key, one footer per run, the gaps in value logs and in
//!   long values, and the target's budget.

mod decide;
pub(crate) mod evidence;
mod key_ranges;
mod keyspace_writer;
mod log;
mod logged_values;
mod long_values;
mod page_scan;
pub(crate) mod plan;
mod report;
mod sweep;
mod target;
mod values;
mod write;

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use testudo_base::{Error, Result, sync::Arc};
use testudo_env::{Env, RealEnv};
use testudo_store::{
    directory::{self, LockAs},
    long_work::{Meter, Observed, WorkDone},
};

use crate::salvage::logged_values::LoggedValues;

pub use report::{
    KeyspaceSalvage, LogSalvage, LostCommits, LostRange, NameSource, SalvageMethod, SalvageReport,
};

/// Source, target and options of a salvage.
#[derive(Debug)]
pub struct SalvageOptions<'a> {
    source: PathBuf,
    target: PathBuf,
    env: Arc<dyn Env>,
    memory_bytes: u64,
    older_versions: bool,
    merge_operator: Option<String>,
    observer: Observed<'a>,
}

impl<'a> SalvageOptions<'a> {
    /// A salvage of the damaged store in `source` into the directory `target`, which must not exist or be
    /// empty; with the default options.
    pub fn new(source: impl AsRef<Path>, target: impl AsRef<Path>) -> Self {
        Self {
            source: source.as_ref().to_owned(),
            target: target.as_ref().to_owned(),
            env: RealEnv::new(),
            memory_bytes: 256 << 20,
            older_versions: false,
            merge_operator: None,
            observer: Observed::default(),
        }
    }

    /// Operating system environment; for tests.
    #[must_use]
    pub fn env(mut self, env: Arc<dyn Env>) -> Self {
        self.env = env;
        self
    }

    /// Memory that the new store may use while it is written. A value larger than a quarter of it takes a few
    /// times its own length in addition. Default 256 MiB.
    #[must_use]
    pub fn memory_bytes(mut self, bytes: u64) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// Destination of versions that may not be the last ones: the key's own keyspace (`true`), or a separate
    /// one named `NAME.older`. Default `false`.
    #[must_use]
    pub fn older_versions(mut self, in_own_keyspace: bool) -> Self {
        self.older_versions = in_own_keyspace;
        self
    }

    /// Merge operator for keyspaces whose options are lost with the manifest. Without one, their operands are
    /// kept but cannot be read. Default: none.
    #[must_use]
    pub fn merge_operator(mut self, name: impl Into<String>) -> Self {
        self.merge_operator = Some(name.into());
        self
    }

    /// Calls `observer` periodically with the progress; its `Break` ends the salvage with `Cancelled`.
    #[must_use]
    pub fn observer(mut self, observer: impl FnMut(WorkDone) -> ControlFlow<()> + 'a) -> Self {
        self.observer = Observed::by(observer);
        self
    }
}

/// Salvages as much of a store as possible into a new one.
///
/// Errors: `Invalid` if the source is not a store or the target is not empty, `Locked` if the source is open
/// for writing, `Corruption` if the store cannot be identified, `Unsupported` for a newer format,
/// `OutOfSpace`, `Io`, `Cancelled`. The target is removed then.
pub fn salvage(mut options: SalvageOptions<'_>) -> Result<SalvageReport> {
    let mut observer = std::mem::take(&mut options.observer);
    let options = &options;
    let not_one = || Error::invalid(format!("{} is not a Testudo store", options.source.display()));
    let source = directory::anchor(&options.env, &options.source)?.ok_or_else(not_one)?;
    let names = directory::list(&*source, &options.source)?.unwrap_or_default();
    if !names.iter().any(|name| directory::is_store_file(name)) {
        return Err(not_one());
    }
    let _lock = directory::lock(&*source, &options.source, LockAs::Reader)?;
    let mut meter = Meter::new(observer.get(), 0);
    let mut evidence = evidence::gather(&source, &options.source, &mut meter)?;
    let plan = plan::make(&mut evidence, &mut meter)?;
    let target = target::Target::begin(options)?;
    let outcome = LoggedValues::collect(&target, &evidence, &plan, &mut meter).and_then(|values| {
        let (plan, log) = log::collect(&target, &mut evidence, plan, &mut meter)?;
        let recovered = write::Recovered { evidence, plan, log, values };
        write::write_all(options, &target, recovered, &mut meter)
    });
    target.end(outcome)
}

#[cfg(test)]
mod tests;
