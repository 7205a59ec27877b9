//! Reads a possibly damaged manifest, for salvage and repair.
//!
//! **Invariants**
//! - Unless later edits prove damage, the state is that of the valid edits.
//! - Edits after the damage contribute only changes that depend on no other edit: the catalogue of keyspaces.
//! - Nothing is written; memory is bounded by the length of the file plus a constant.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use testudo_base::{Error, KeyspaceId, PAGE_SIZE, Result, StoreId, num::u64_of};
use testudo_env::{EntryType, Env, OpenMode, OpenOptions, read_sparse_leniently};

use crate::{
    KeyspaceRecord, ManifestState,
    manifest::manifest_format::{Change, Decoded, RecordSeed, decode_record},
};

/// Maximum length of a manifest that is read.
const MAX_FILE_BYTES: u64 = 8 << 30;

/// Readable contents of a manifest.
#[derive(Clone, Debug, Default)]
pub struct ManifestSurvey {
    /// Number of the manifest.
    pub number: u64,
    /// The state up to the first invalid edit.
    pub state: ManifestState,
    /// Number of valid edits before it.
    pub edits: u64,
    /// Number of the last valid edit; 0 if there is none.
    pub last_edit: u64,
    /// End of the last valid edit.
    pub end: u64,
    /// Reason why the next bytes are not an edit; `None` if the file ends there, or only zeros follow.
    pub damage: Option<String>,
    /// Whether valid edits follow the damage, so that it is not a torn tail.
    pub has_later_edits: bool,
    /// The catalogue, including changes of later edits.
    pub keyspaces: BTreeMap<KeyspaceId, KeyspaceRecord>,
    /// Keyspaces dropped by any edit.
    pub dropped: BTreeSet<KeyspaceId>,
}

/// Returns the name of a manifest file.
pub fn manifest_file_name(number: u64) -> String {
    format!("manifest-{number:010}")
}

/// Returns the numbers of the manifests in a directory, ascending.
pub fn list_manifests(env: &dyn Env, directory: &Path) -> Result<Vec<u64>> {
    let entries = env.list_dir(directory).map_err(|e| Error::io(directory.display().to_string(), e))?;
    let files = entries.iter().filter(|entry| entry.entry_type == EntryType::File);
    let mut numbers: Vec<u64> = files
        .filter_map(|entry| entry.name.strip_prefix("manifest-")?.parse().ok())
        .filter(|&number| entries.iter().any(|entry| entry.name == manifest_file_name(number)))
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Reads manifest `number` of `store` as far as possible.
///
/// Errors: `Io` if the file cannot be opened or read at all.
pub fn survey_manifest(
    env: &dyn Env,
    directory: &Path,
    store: StoreId,
    number: u64,
) -> Result<ManifestSurvey> {
    let name = manifest_file_name(number);
    let options = OpenOptions { mode: OpenMode::Read, direct: false };
    let file = env.open(&directory.join(&name), options).map_err(|e| Error::io(&name, e))?;
    let length = file.len().map_err(|e| Error::io(&name, e))?;
    if length > MAX_FILE_BYTES {
        let damage = Some("the file exceeds the maximum length of a manifest".to_owned());
        return Ok(ManifestSurvey { number, damage, ..ManifestSurvey::default() });
    }
    let bytes = read_sparse_leniently(&*file, length);
    let mut survey = ManifestSurvey { number, ..ManifestSurvey::default() };
    survey.read(&bytes, RecordSeed::new(store, number));
    Ok(survey)
}

impl ManifestSurvey {
    fn read(&mut self, bytes: &[u8], seed: RecordSeed) {
        let mut at = self.read_valid_part(bytes, seed);
        self.end = u64_of(at);
        self.keyspaces.clone_from(&self.state.keyspaces);
        if self.damage.is_none() {
            return;
        }
        while let Some(rest) = bytes.get(at..) {
            if let Decoded::Record { edit, edit_number, .. } = decode_record(rest, seed)
                && (self.edits == 0 || edit_number > self.last_edit)
            {
                self.has_later_edits = true;
                edit.iter().for_each(|change| self.record_later(change));
            }
            at += PAGE_SIZE;
        }
    }

    /// Applies valid edits; returns the end of the last one.
    fn read_valid_part(&mut self, bytes: &[u8], seed: RecordSeed) -> usize {
        let mut at = 0;
        while at < bytes.len() {
            let (edit, length) = match decode_record(&bytes[at..], seed) {
                Decoded::Record { edit, edit_number, bytes }
                    if self.edits == 0 || edit_number.checked_sub(1) == Some(self.last_edit) =>
                {
                    self.last_edit = edit_number;
                    (edit, bytes)
                }
                Decoded::Record { .. } => {
                    // No crash leaves a valid edit out of order.
                    (self.damage, self.has_later_edits) = (Some("an edit is missing".to_owned()), true);
                    return at;
                }
                Decoded::DamagedPayload(why) => {
                    self.damage = Some(why.0.to_owned());
                    return at;
                }
                Decoded::NoRecord => {
                    if bytes[at..].iter().any(|&byte| byte != 0) {
                        self.damage = Some("not a record".to_owned());
                    }
                    return at;
                }
            };
            for change in &edit {
                if let Err(why) = self.state.apply(change) {
                    // The state contains half an edit now; the flags report it as unusable.
                    (self.damage, self.has_later_edits) = (Some(why.0.to_owned()), true);
                    return at;
                }
                if let Change::DropKeyspace(id) = change {
                    self.dropped.insert(*id);
                }
            }
            self.edits += 1;
            at = (at + length).next_multiple_of(PAGE_SIZE);
        }
        at
    }

    fn record_later(&mut self, change: &Change) {
        match change {
            Change::CreateKeyspace(id, name, options) => {
                let (name, options) = (name.clone(), options.clone());
                let flushed = self.state.log_seqno;
                self.keyspaces.entry(*id).or_insert(KeyspaceRecord { name, options, flushed });
            }
            Change::DropKeyspace(id) => {
                self.keyspaces.remove(id);
                self.dropped.insert(*id);
            }
            Change::SetOptions(id, options) => {
                if let Some(record) = self.keyspaces.get_mut(id) {
                    record.options.clone_from(options);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
