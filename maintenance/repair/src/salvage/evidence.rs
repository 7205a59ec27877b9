//! Evidence in the files around the data: store id, manifest and log.
//!
//! **Invariants**
//! - A manifest is used only if complete: as recovery would accept it, or if the log reaches back to it, so
//!   that nothing can be missing in between. Otherwise only its list of keyspaces is trusted.
//! - The proofs of recovery are used here too: superblock, watermark, and the log's records of edits and
//!   incarnations.

use std::{collections::BTreeMap, path::Path};

use testudo_base::{Error, ErrorKind, Result, Seqno, StoreId, sync::Arc};
use testudo_env::{Env, File, OpenMode, OpenOptions};
use testudo_options::stored_tree::check_known;
use testudo_storage::{
    DATA_FILE, ManifestSurvey, SUPERBLOCK_FILE, Superblock, Watermark, check_superblock, list_manifests,
    manifest_file_name, read_watermark, survey_manifest, survey_superblock,
};
use testudo_store::{long_work::Meter, values::tail_values_format::read_tail};
use testudo_wal::{LogEvidence, LogSurvey, SurveyedSegment, survey_log};

use crate::salvage::page_scan;

/// Evidence found outside the data pages.
#[derive(Debug)]
pub(crate) struct Evidence {
    pub(crate) store: StoreId,
    /// Commits and edits that superblock, watermark and log prove to have been durable.
    pub(crate) watermark: Watermark,
    /// The newest manifest that is at least partly readable.
    pub(crate) manifest: Option<ManifestSurvey>,
    /// Whether its state, together with the log, is authoritative.
    pub(crate) manifest_counts: bool,
    pub(crate) log: LogSurvey,
    /// Evidence about the log in the rest of the store, if the manifest counts.
    pub(crate) of_log: LogEvidence,
    /// Reasons why an unknown number of commits may be lost.
    pub(crate) log_findings: Vec<String>,
    /// `None` if the file does not exist.
    pub(crate) data: Option<Arc<dyn File>>,
    pub(crate) data_bytes: u64,
    pub(crate) findings: Vec<String>,
}

/// Reads everything except the pages.
pub(crate) fn gather(env: &Arc<dyn Env>, directory: &Path, meter: &mut Meter<'_, '_>) -> Result<Evidence> {
    let mut findings = Vec::new();
    let superblock = newest_superblock(&**env, directory, &mut findings)?;
    let mut log = survey_log(env, directory)?;
    let data = open_data(&**env, directory, &mut findings)?;
    let data_bytes = data.as_ref().map_or(Ok(0), |data| data.len()).map_err(|e| Error::io(DATA_FILE, e))?;
    let store = find_store(superblock.as_ref(), &log, data.as_ref(), data_bytes, &mut findings, meter)?;
    let superblock = superblock.filter(|superblock| superblock.store == store);
    let is_foreign =
        |segment: &&SurveyedSegment| segment.has_records() && segment.store.is_some_and(|id| id != store);
    for segment in log.segments().iter().filter(is_foreign) {
        findings.push(format!("log segment {} belongs to another store", segment.number));
    }
    match read_tail(&**env, directory, store, 0) {
        Ok(tail) => log.add_tail(tail)?,
        Err(error) if error.kind() == ErrorKind::Unsupported => return Err(error),
        Err(error) => findings.push(format!("the tail of the log cannot be read: {error}")),
    }
    meter.expect_more(log.segments().iter().map(|segment| segment.bytes).sum());
    log.scan(store, |bytes| meter.advance(bytes))?;
    let stated = superblock.map(|superblock| superblock.watermark).unwrap_or_default();
    let of_log = Watermark { edit: log.newest_edit(), ..Watermark::default() };
    let watermark = stated.max(read_watermark(&**env, directory, store)).max(of_log);
    let manifest = find_manifest(&**env, directory, store, superblock.as_ref(), &mut findings)?;
    if let Some(manifest) = &manifest {
        check_known(&manifest.keyspaces)?;
    }
    let mut validator =
        ManifestValidator { superblock, watermark, first_seqno: log.first_seqno(store), findings };
    let manifest_counts = manifest.as_ref().is_some_and(|manifest| validator.counts(manifest));
    let mut findings = validator.findings;
    let of_log = manifest.as_ref().filter(|_| manifest_counts).map(|manifest| of_log_in(manifest, watermark));
    let log_findings = of_log.as_ref().map(|of_log| log.compare(of_log)).unwrap_or_default();
    findings.extend(log_findings.iter().cloned());
    let of_log = of_log.unwrap_or_default();
    debug_assert!(manifest.is_some() || !manifest_counts, "only a manifest counts");
    let evidence = Evidence {
        store,
        watermark,
        manifest,
        manifest_counts,
        log,
        of_log,
        log_findings,
        data,
        data_bytes,
        findings,
    };
    Ok(evidence)
}

/// Evidence about the log in the rest of the store.
fn of_log_in(manifest: &ManifestSurvey, watermark: Watermark) -> LogEvidence {
    let state = &manifest.state;
    LogEvidence {
        first_segment: state.log_segment,
        durable_seqno: if watermark.seqno > state.log_seqno { watermark.seqno } else { Seqno(0) },
        openings: Some(state.openings.clone()),
        newest_edit: Some(manifest.last_edit),
        tail: None,
    }
}

fn newest_superblock(
    env: &dyn Env,
    directory: &Path,
    findings: &mut Vec<String>,
) -> Result<Option<Superblock>> {
    let slots = survey_superblock(env, directory)?;
    let newest = slots.into_iter().flatten().max_by_key(|slot| slot.generation);
    if newest.is_none() {
        findings.push(format!("{SUPERBLOCK_FILE}: neither slot can be read"));
    }
    Ok(newest)
}

fn open_data(env: &dyn Env, directory: &Path, findings: &mut Vec<String>) -> Result<Option<Arc<dyn File>>> {
    match env.open(&directory.join(DATA_FILE), OpenOptions { mode: OpenMode::Read, direct: false }) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            findings.push(format!("{DATA_FILE}: the file is missing"));
            Ok(None)
        }
        Err(error) => Err(Error::io(DATA_FILE, error)),
    }
}

/// Determines the store's id from superblock and log; if they disagree or are lost, the data file decides.
fn find_store(
    superblock: Option<&Superblock>,
    log: &LogSurvey,
    data: Option<&Arc<dyn File>>,
    data_bytes: u64,
    findings: &mut Vec<String>,
    meter: &mut Meter<'_, '_>,
) -> Result<StoreId> {
    let of_superblock = superblock.map(|superblock| superblock.store);
    let of_log = store_of_log(log);
    match (of_superblock, of_log) {
        (Some(store), None) | (None, Some(store)) => return Ok(store),
        (Some(store), Some(of_log)) if store == of_log => return Ok(store),
        _ => {}
    }
    let of_data = data.map(|data| page_scan::find_store(&**data, data_bytes, meter)).transpose()?.flatten();
    if of_superblock.is_some() {
        findings.push("superblock and log belong to different stores".to_owned());
    }
    of_data.or(of_superblock).or(of_log).ok_or_else(|| {
        let message = "the store cannot be identified: superblock, log and all run footers are lost";
        Error::new(ErrorKind::Corruption, message)
    })
}

/// The store id in most segments of the log.
fn store_of_log(log: &LogSurvey) -> Option<StoreId> {
    let mut votes: BTreeMap<u128, u32> = BTreeMap::new();
    for store in log.segments().iter().filter_map(|segment| segment.store) {
        *votes.entry(store.0).or_default() += 1;
    }
    votes.into_iter().max_by_key(|(_, count)| *count).map(|(id, _)| StoreId(id))
}

fn find_manifest(
    env: &dyn Env,
    directory: &Path,
    store: StoreId,
    superblock: Option<&Superblock>,
    findings: &mut Vec<String>,
) -> Result<Option<ManifestSurvey>> {
    let numbers = list_manifests(env, directory)?;
    let named = superblock.map(|superblock| superblock.manifest);
    if let Some(named) = named.filter(|named| !numbers.contains(named)) {
        findings.push(format!("{}: the file is missing", manifest_file_name(named)));
    }
    let order = named.into_iter().filter(|named| numbers.contains(named));
    let others = numbers.iter().rev().copied().filter(|number| Some(*number) != named);
    for number in order.chain(others) {
        match survey_manifest(env, directory, store, number) {
            Ok(survey) if survey.edits > 0 || !survey.keyspaces.is_empty() => return Ok(Some(survey)),
            Ok(survey) => {
                let why = survey.damage.as_deref().unwrap_or("the file is empty");
                findings.push(format!("{} at offset 0: {why}", manifest_file_name(number)));
            }
            Err(error) => findings.push(error.to_string()),
        }
    }
    Ok(None)
}

/// Validates that a manifest belongs to the store and is complete.
struct ManifestValidator {
    superblock: Option<Superblock>,
    watermark: Watermark,
    /// The first seqno that the log can hold, if its oldest segment states it.
    first_seqno: Option<Seqno>,
    findings: Vec<String>,
}

impl ManifestValidator {
    /// Whether the state of the manifest, together with the log, is complete.
    fn counts(&mut self, manifest: &ManifestSurvey) -> bool {
        let name = manifest_file_name(manifest.number);
        let is_cut = self.is_cut(manifest);
        if let Some(why) = manifest.damage.as_deref().filter(|_| manifest.has_later_edits || is_cut) {
            self.findings.push(format!("{name} at offset {}: {why}", manifest.end));
        } else if is_cut {
            self.findings.push(format!("{name} at offset {}: not known to be complete", manifest.end));
        }
        manifest.edits > 0 && !is_cut && !manifest.has_later_edits && self.belongs(manifest)
    }

    fn is_cut(&self, manifest: &ManifestSurvey) -> bool {
        manifest.last_edit < self.watermark.edit
            || match self.superblock {
                Some(superblock) if superblock.manifest == manifest.number => false,
                Some(superblock) if superblock.manifest > manifest.number => true,
                _ => {
                    // The superblock is lost, or older than the manifest, so the expected length of the
                    // manifest is unknown. An older state is equally good if the log holds everything after
                    // it.
                    let start = manifest.state.log_seqno.0.saturating_add(1);
                    self.first_seqno.is_none_or(|first| first.0 > start)
                }
            }
    }

    /// Whether manifest and superblock belong to the same copy of the store.
    fn belongs(&mut self, manifest: &ManifestSurvey) -> bool {
        let Some(superblock) = self.superblock else { return true };
        let outcome = check_superblock(&superblock, &manifest.state, manifest.last_edit);
        if let Err(error) = &outcome {
            self.findings.push(error.to_string());
        }
        outcome.is_ok() || superblock.manifest != manifest.number
    }
}
