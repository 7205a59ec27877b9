//! What is left of the files around the data: which store it is, its manifest, its log.
//!
//! **Invariants**
//! - A manifest counts only as a whole: as recovery would take it, or if the log reaches back to it, so that nothing can be
//!   missing between. Otherwise only the keyspaces that it names are believed.

use std::{collections::BTreeMap, path::Path};

use testudo_base::{Error, ErrorKind, Result, StoreId, sync::Arc};
use testudo_env::{Env, File, OpenMode, OpenOptions};
use testudo_storage::{
    DATA_FILE, Floor, ManifestSurvey, SUPERBLOCK_FILE, Superblock, list_manifests, manifest_file_name,
    survey_manifest, survey_superblock,
};
use testudo_wal::{LogSurvey, survey_log};

use crate::{long_work::Meter, salvage::page_scan};

/// What is left besides the data.
#[derive(Debug)]
pub(crate) struct Evidence {
    pub(crate) store: StoreId,
    pub(crate) floor: Floor,
    /// The newest manifest of which anything can be read.
    pub(crate) manifest: Option<ManifestSurvey>,
    /// Whether its state is the truth, together with the log.
    pub(crate) manifest_counts: bool,
    pub(crate) log: LogSurvey,
    /// `None` if the file is gone.
    pub(crate) data: Option<Arc<dyn File>>,
    pub(crate) data_bytes: u64,
    pub(crate) findings: Vec<String>,
}

/// Looks at everything but the pages.
pub(crate) fn gather(env: &Arc<dyn Env>, directory: &Path, meter: &mut Meter<'_, '_>) -> Result<Evidence> {
    let mut findings = Vec::new();
    let superblock = newest_superblock(&**env, directory, &mut findings)?;
    let log = survey_log(env, directory)?;
    let data = open_data(&**env, directory, &mut findings)?;
    let data_bytes = data.as_ref().map_or(Ok(0), |data| data.len()).map_err(|e| Error::io(DATA_FILE, e))?;
    let store = find_store(superblock.as_ref(), &log, data.as_ref(), data_bytes, &mut findings, meter)?;
    let superblock = superblock.filter(|superblock| superblock.store == store);
    let manifest = find_manifest(&**env, directory, store, superblock.as_ref(), &mut findings)?;
    let manifest_counts = manifest
        .as_ref()
        .is_some_and(|manifest| counts(manifest, superblock.as_ref(), &log, store, &mut findings));
    for segment in log.segments().iter().filter(|segment| segment.store.is_some_and(|id| id != store)) {
        findings.push(format!("log segment {} belongs to another store", segment.number));
    }
    let floor = superblock.map(|superblock| superblock.floor).unwrap_or_default();
    Ok(Evidence { store, floor, manifest, manifest_counts, log, data, data_bytes, findings })
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

/// The store's id: what superblock and log agree on; where they do not, or are gone, the data file decides.
fn find_store(
    superblock: Option<&Superblock>,
    log: &LogSurvey,
    data: Option<&Arc<dyn File>>,
    data_bytes: u64,
    findings: &mut Vec<String>,
    meter: &mut Meter<'_, '_>,
) -> Result<StoreId> {
    let mut votes: BTreeMap<u128, u32> = BTreeMap::new();
    for segment in log.segments() {
        if let Some(store) = segment.store {
            *votes.entry(store.0).or_default() += 1;
        }
    }
    let of_log = votes.into_iter().max_by_key(|(_, count)| *count).map(|(id, _)| StoreId(id));
    let of_superblock = superblock.map(|superblock| superblock.store);
    if let Some(store) = of_superblock.or(of_log)
        && of_log.is_none_or(|of_log| of_log == store)
    {
        return Ok(store);
    }
    let of_data = data.map(|data| page_scan::find_store(&**data, data_bytes, meter)).transpose()?.flatten();
    if of_superblock.is_some() {
        findings.push("superblock and log belong to different stores".to_owned());
    }
    of_data.or(of_superblock).or(of_log).ok_or_else(|| {
        let message =
            "nothing tells which store this was: superblock, log and every footer of a run are lost";
        Error::new(ErrorKind::Corruption, message)
    })
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

/// Whether the state of the manifest, together with the log, is all there is to know.
fn counts(
    manifest: &ManifestSurvey,
    superblock: Option<&Superblock>,
    log: &LogSurvey,
    store: StoreId,
    findings: &mut Vec<String>,
) -> bool {
    let name = manifest_file_name(manifest.number);
    let is_cut = match superblock {
        Some(superblock) if superblock.manifest == manifest.number => {
            manifest.end < superblock.floor.manifest_bytes
        }
        Some(superblock) if superblock.manifest > manifest.number => true,
        _ => {
            // The superblock is lost, or was one before the last: nothing says how long the manifest should be. An older state is as good if the log holds all that came after it.
            let start = manifest.state.log_seqno.0 + 1;
            log.first_seqno(store).is_none_or(|first| first.0 > start)
        }
    };
    if let Some(why) = manifest.damage.as_deref().filter(|_| manifest.has_later_edits || is_cut) {
        findings.push(format!("{name} at offset {}: {why}", manifest.end));
    } else if is_cut {
        findings.push(format!("{name} at offset {}: not known to be whole", manifest.end));
    }
    manifest.edits > 0 && !is_cut && !manifest.has_later_edits
}
