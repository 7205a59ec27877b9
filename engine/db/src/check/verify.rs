//! Verification of an open store: the structure in memory, the references, and every page on the device.
//!
//! **Invariants**
//! - Nothing is written.

use std::{collections::BTreeMap, ops::ControlFlow};

use testudo_base::{Result, RunId, key::shown, planted, sync::Arc};
use testudo_contract::Part;
use testudo_recovery::structure::check_references;
use testudo_run::Run;
use testudo_storage::{DATA_FILE, manifest_file_name};
use testudo_store::{
    long_work::{Meter, Observed, Observer, WorkDone},
    values::long_values::LONG_VALUES_KEYSPACE,
};

use crate::{
    Db, Keyspace, ValueReader,
    check::{
        findings::{Finding, check_files, check_run_pages},
        values::check_values,
    },
};

/// Maximum entries of a keyspace reported one by one because its operator refuses them.
const REFUSED_MAX: u64 = 100;
/// Each run is read twice, its pages first, then its entries; each pass counts as this part of the work.
const PASSES: u64 = 2;
const ENTRIES_BETWEEN_CHECKS: usize = 1000;

/// How much [`crate::Db::verify`] reads; everything by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum VerifyLevel {
    /// Structure and references in memory; does not detect damage on the device.
    Fast,
    /// Also superblock, manifest and sealed log as bytes, and every page of every run: checksums, identities,
    /// key order, filters. Also checks that the values counted as garbage are exactly the unreferenced ones.
    /// If a keyspace has a registered merge operator, also whether it accepts the stored data.
    #[default]
    Full,
}

impl VerifyLevel {
    /// Returns the parts that a check of this level does not read, in human-readable words. Empty for
    /// [`VerifyLevel::Full`].
    pub fn not_read(self) -> &'static [&'static str] {
        match self {
            Self::Fast => &["the pages of runs", "superblock, manifest and log as bytes"],
            Self::Full => &[],
        }
    }
}

/// Options of [`crate::Db::verify`]. A [`VerifyLevel`] converts to them.
#[derive(Debug, Default)]
pub struct VerifyOptions<'a> {
    level: VerifyLevel,
    observer: Observed<'a>,
}

impl<'a> VerifyOptions<'a> {
    /// A check of this level, without an observer.
    pub fn new(level: VerifyLevel) -> Self {
        Self { level, observer: Observed::default() }
    }

    /// Calls `observer` periodically with the progress; its `Break` ends the check with `Cancelled`.
    #[must_use]
    pub fn observer(mut self, observer: impl FnMut(WorkDone) -> ControlFlow<()> + 'a) -> Self {
        self.observer = Observed::by(observer);
        self
    }
}

impl From<VerifyLevel> for VerifyOptions<'_> {
    fn from(level: VerifyLevel) -> Self {
        Self::new(level)
    }
}

/// Result of [`crate::Db::verify`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct VerifyReport {
    /// Level of the check.
    pub level: VerifyLevel,
    /// Keyspaces checked.
    pub keyspaces: u64,
    /// Entries in their trees, including older versions and tombstones that are not merged away yet.
    pub entries: u64,
    /// Entries in their write buffers, whose only durable copy is the log.
    pub buffered_entries: u64,
    /// Bytes of the runs covered by the check.
    pub bytes: u64,
    /// Problems found; empty if there are none.
    pub findings: Vec<Finding>,
}

impl VerifyReport {
    /// Returns `true` if everything was read and nothing was found. Always `false` for a fast check, whose
    /// result is in [`VerifyReport::findings`].
    pub fn is_valid(&self) -> bool {
        let has_read_all = self.level == VerifyLevel::Full || planted!("unread-called-valid");
        self.findings.is_empty() && has_read_all
    }

    /// The former name of `is_valid`.
    #[deprecated(since = "0.1.0", note = "use `is_valid`")]
    pub fn is_sound(&self) -> bool {
        self.is_valid()
    }
}

pub(crate) fn verify(db: &Db, level: VerifyLevel, observer: &mut Observer<'_>) -> Result<VerifyReport> {
    let store = &**db.store();
    let file = manifest_file_name(store.manifest.stats().number);
    let mut report = VerifyReport { level, ..VerifyReport::default() };
    let mut runs: BTreeMap<RunId, (Arc<Run>, String)> = BTreeMap::new();
    for keyspace in store.keyspaces() {
        let tree = Arc::clone(&keyspace.view.load().tree);
        let stats = tree.stats();
        report.bytes += stats.stored_bytes;
        // Users do not know the internal keyspace of pieces, so it is not counted.
        if &*keyspace.name != LONG_VALUES_KEYSPACE {
            report.keyspaces += 1;
            report.entries += stats.entries;
            report.buffered_entries += Keyspace::new(db, Arc::clone(&keyspace)).stats().memtables.entries;
        }
        if let Err(error) = tree.check_invariants(false) {
            report.findings.push(Finding::of_error(error, &file, Some(&keyspace.name))?);
        }
        for part in tree.parts() {
            let Part::Run(run) = part;
            let id = run.reference().id;
            let (first, _) = runs.entry(id).or_insert_with(|| (Arc::clone(&run), keyspace.name.to_string()));
            if first.reference() != run.reference() {
                let what = format!("two references to run {id} differ");
                report.findings.push(Finding::about(&file, Some(&keyspace.name), what));
            }
        }
    }
    if let Err(error) = check_references(store) {
        report.findings.push(Finding::of_error(error, &file, None)?);
    }
    if level == VerifyLevel::Full {
        report.findings.extend(check_contents(db, runs, observer)?);
    }
    Ok(report)
}

/// Reads everything: files, the pages of all runs, and the entries of runs whose pages are valid.
fn check_contents(
    db: &Db,
    runs: BTreeMap<RunId, (Arc<Run>, String)>,
    observer: &mut Observer<'_>,
) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    check_files(db.store(), &mut findings)?;
    let total: u64 = runs.values().map(|(run, _)| run.reference().stored_bytes()).sum();
    let mut meter = Meter::new(observer, total);
    let mut refer_to_long_values = 0;
    for (run, keyspace) in runs.into_values() {
        let found_before = findings.len();
        let mut read_bytes = 0;
        check_run_pages(&run, &keyspace, 0, &mut findings, &mut |bytes, _, _| {
            read_bytes += bytes / PASSES;
            meter.advance(bytes / PASSES)
        })?;
        if findings.len() == found_before {
            match run.check_filters().and_then(|()| run.check_entries()) {
                Ok(entries) => refer_to_long_values += entries,
                Err(error) => findings.push(Finding::of_error(error, DATA_FILE, Some(&keyspace))?),
            }
        }
        meter.advance(run.reference().stored_bytes().saturating_sub(read_bytes))?;
    }
    if findings.is_empty() {
        for keyspace in db.store().keyspaces() {
            if let Err(error) = check_values(db.store(), &keyspace) {
                findings.push(Finding::of_error(error, DATA_FILE, Some(&keyspace.name))?);
            }
            if let Err(error) = keyspace.view.load().tree.check_retained() {
                findings.push(Finding::of_error(error, DATA_FILE, Some(&keyspace.name))?);
            }
        }
    }
    for keyspace in db.store().keyspaces().iter().filter(|keyspace| keyspace.full_merge.has_operator()) {
        check_merges(&Keyspace::new(db, Arc::clone(keyspace)), &mut findings, &mut meter)?;
    }
    if db.store().long_values.keyspace().is_some() || refer_to_long_values > 0 {
        for keyspace in
            db.store().keyspaces().into_iter().filter(|found| &*found.name != LONG_VALUES_KEYSPACE)
        {
            check_pieces(&Keyspace::new(db, keyspace), &mut findings, &mut meter)?;
        }
    }
    Ok(findings)
}

/// Reads all values in pieces referenced by the entries of a keyspace.
fn check_pieces(keyspace: &Keyspace, findings: &mut Vec<Finding>, meter: &mut Meter<'_, '_>) -> Result<()> {
    let mut broken = 0_u64;
    for (number, entry) in keyspace.iter()?.map_while(Result::ok).enumerate() {
        if number.is_multiple_of(ENTRIES_BETWEEN_CHECKS) {
            meter.advance(0)?;
        }
        let read = entry.long_value().map(|reader| read_pieces(reader, meter));
        let Some(Err(error)) = read else { continue };
        broken += 1;
        let mut finding = Finding::of_error(error, DATA_FILE, Some(keyspace.name()))?;
        finding.keyspace = Some(keyspace.name().to_owned());
        finding.what = format!("the value of key {}: {}", shown(entry.key()), finding.what);
        if broken <= REFUSED_MAX {
            findings.push(finding);
        }
    }
    if broken > REFUSED_MAX {
        let what = format!("{} more values in pieces cannot be read", broken - REFUSED_MAX);
        findings.push(Finding::about(DATA_FILE, Some(keyspace.name()), what));
    }
    Ok(())
}

fn read_pieces(reader: Result<ValueReader>, meter: &mut Meter<'_, '_>) -> Result<()> {
    let mut reader = reader?;
    while reader.skip_piece()? {
        meter.advance(0)?;
    }
    Ok(())
}

/// Checks that the merge operator of a keyspace accepts all stored data. Damage that ends the iteration was
/// reported earlier.
fn check_merges(keyspace: &Keyspace, findings: &mut Vec<Finding>, meter: &mut Meter<'_, '_>) -> Result<()> {
    let mut refused = 0_u64;
    for (number, entry) in keyspace.iter()?.map_while(Result::ok).enumerate() {
        let checked = match entry.value() {
            Ok(value) => keyspace.core.full_merge.check_value(entry.key(), &value),
            Err(error) if entry.base_with_operands().is_some() => Err(error),
            // Unreadable, which was reported earlier, or too long to be merged.
            Err(_) => Ok(()),
        };
        if let Err(error) = checked {
            refused += 1;
            if refused <= REFUSED_MAX {
                let what = format!("key {}: {error}", shown(entry.key()));
                findings.push(Finding::about("", Some(keyspace.name()), what));
            }
        }
        if number.is_multiple_of(ENTRIES_BETWEEN_CHECKS) {
            meter.advance(0)?;
        }
    }
    if refused > REFUSED_MAX {
        let what = format!("the merge operator refuses {} more entries", refused - REFUSED_MAX);
        findings.push(Finding::about("", Some(keyspace.name()), what));
    }
    Ok(())
}

impl Db {
    /// Verifies the store at the given [`VerifyLevel`]; [`VerifyLevel::Full`] reads all of it. Writes
    /// nothing.
    ///
    /// ```
    /// # fn main() -> testudo::Result<()> {
    /// # let directory = std::env::temp_dir().join(format!("testudo-doc-verify-{}", std::process::id()));
    /// # let db = testudo::Db::builder(&directory).temporary().open()?;
    /// # let users = db.keyspace("users", testudo::KeyspaceOptions::default())?;
    /// use testudo::VerifyLevel;
    ///
    /// let report = db.verify(VerifyLevel::Full)?;
    /// for finding in &report.findings {
    ///     eprintln!("{finding}");
    /// }
    /// assert!(report.is_valid());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: `Closed`, also if the store is closed during the check; `Io`; `Cancelled` by the observer.
    /// Damage is a finding, not an error.
    pub fn verify<'a>(&self, options: impl Into<VerifyOptions<'a>>) -> Result<VerifyReport> {
        let VerifyOptions { level, mut observer } = options.into();
        self.store().read_throughout(|| verify(self, level, observer.get()))
    }
}
