//! Checking an open store: the structure in memory, the references, and every page on the device.
//!
//! **Invariants**
//! - Nothing is written. Background work is held off only while references are counted.

use std::collections::BTreeMap;

use testudo_base::{Error, ErrorKind, ExtentSpan, Result, RunId, sync::Arc};
use testudo_run::Run;
use testudo_storage::DATA_FILE;

use crate::{
    Observer,
    findings::{Finding, check_files, check_run_pages},
    long_work::Meter,
    store::Store,
};

/// How much [`crate::Db::verify`] reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyLevel {
    /// Structure and references, from memory.
    Fast,
    /// Also superblock, manifest and sealed log as bytes, and every page of every run: checksums, identities, order of keys,
    /// filters.
    Full,
}

/// What [`crate::Db::verify`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct VerifyReport {
    /// Keyspaces checked.
    pub keyspaces: u64,
    /// Entries in their trees.
    pub entries: u64,
    /// Bytes of runs that were checked.
    pub bytes: u64,
    /// What is wrong; empty if all is sound.
    pub findings: Vec<String>,
}

impl VerifyReport {
    /// Whether nothing was found.
    pub fn is_sound(&self) -> bool {
        self.findings.is_empty()
    }
}

pub(crate) fn verify(store: &Store, level: VerifyLevel, observer: &mut Observer<'_>) -> Result<VerifyReport> {
    let mut report = VerifyReport::default();
    let mut runs: BTreeMap<RunId, (Arc<Run>, String)> = BTreeMap::new();
    for keyspace in store.keyspaces() {
        let tree = Arc::clone(&keyspace.view.load().tree);
        let stats = tree.stats();
        report.keyspaces += 1;
        report.entries += stats.entries;
        report.bytes += stats.stored_bytes;
        match tree.check_invariants(false) {
            Err(error) if error.kind() == ErrorKind::Corruption => {
                report.findings.push(format!("keyspace {:?}: {error}", keyspace.name));
            }
            outcome => outcome?,
        }
        for run in tree.runs() {
            let id = run.reference().id;
            let (first, _) = runs.entry(id).or_insert_with(|| (Arc::clone(&run), keyspace.name.to_string()));
            if first.reference() != run.reference() {
                report.findings.push(format!("keyspace {:?}: run {id} is stated in two ways", keyspace.name));
            }
        }
    }
    match check_references(store) {
        Err(error) if error.kind() == ErrorKind::Corruption => report.findings.push(error.to_string()),
        outcome => outcome?,
    }
    if level == VerifyLevel::Full {
        let findings = check_contents(store, runs, observer)?;
        report.findings.extend(findings.iter().map(Finding::to_string));
    }
    Ok(report)
}

/// Reads everything: files, the pages of all runs, and the entries of those whose pages are sound.
fn check_contents(
    store: &Store,
    runs: BTreeMap<RunId, (Arc<Run>, String)>,
    observer: &mut Observer<'_>,
) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    check_files(store, &mut findings)?;
    // Pages first, then entries.
    let total: u64 = runs.values().map(|(run, _)| run.reference().stored_bytes()).sum();
    let mut meter = Meter::new(observer, 2 * total);
    for (run, keyspace) in runs.into_values() {
        let found_before = findings.len();
        check_run_pages(&run, &keyspace, 0, &mut findings, &mut |bytes, _, _| meter.advance(bytes))?;
        if findings.len() == found_before
            && let Err(error) = run.check_filters().and_then(|()| run.check_entries())
        {
            findings.push(Finding::of_error(error, DATA_FILE, Some(&keyspace))?);
        }
        meter.advance(run.reference().stored_bytes())?;
    }
    Ok(findings)
}

/// Checks every tree and the references; fails with the first finding.
pub(crate) fn check_structure(store: &Store, deep: bool) -> Result<()> {
    for keyspace in store.keyspaces() {
        let tree = Arc::clone(&keyspace.view.load().tree);
        tree.check_invariants(deep).map_err(|e| e.context(&format!("keyspace {:?}", keyspace.name)))?;
    }
    check_references(store)
}

/// Counts the references of all trees and compares them with the manifest and with the table of extents.
fn check_references(store: &Store) -> Result<()> {
    let _round = store.rounds.lock();
    if store.has_failed() {
        return Ok(());
    }
    let mut counted: BTreeMap<ExtentSpan, u32> = BTreeMap::new();
    for keyspace in store.keyspaces() {
        for span in keyspace.view.load().tree.references() {
            *counted.entry(span).or_default() += 1;
        }
    }
    let stated: BTreeMap<ExtentSpan, u32> = store.manifest.with_state(|state| state.live_spans().collect());
    let live: BTreeMap<ExtentSpan, u32> = store.data.extents().references().into_iter().collect();
    if counted != stated {
        return Err(Error::new(ErrorKind::Corruption, "manifest: references do not match the trees"));
    }
    if stated != live {
        return Err(Error::new(ErrorKind::Corruption, "the table of extents does not match the manifest"));
    }
    Ok(())
}
