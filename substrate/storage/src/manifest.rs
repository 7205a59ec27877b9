//! The manifest: a log of edits, each of which becomes durable atomically, and its replay.
//!
//! Data flow: `commit` appends one record and syncs it, then raises the floor in the superblock, so that a manifest that
//! is cut short later cannot pass for an older state. When the log has
//! grown well beyond the state, the state is written as the first record of a new file and the superblock is
//! pointed at it.
//!
//! **Invariants**
//! - The state in memory is the sum of the records that are durable.
//! - After a failed write or sync nothing is known about the last record: all later commits fail (`Poisoned`).
//! - Replay ends at the first unsound record; that is a torn tail only if no sound record follows.

use std::path::{Path, PathBuf};

use testudo_base::{
    Error, ErrorKind, PAGE_SIZE, Result, Seqno, StoreId,
    num::{u64_of, usize_of},
    planted,
    sync::{Arc, Mutex},
};
use testudo_env::{Env, File, OpenMode, OpenOptions};

use crate::{
    Floor, Superblock, SuperblockFile,
    manifest_format::{Change, Decoded, RecordSeed, decode_record, encode_record},
    manifest_state::ManifestState,
};

/// A log shorter than this is not worth a snapshot.
const MIN_ROTATE_BYTES: u64 = 1 << 20;
/// No manifest is longer: the states of the largest stores are a small part of it.
const MAX_BYTES: u64 = 4 << 30;

#[derive(Debug)]
struct Log {
    file: Arc<dyn File>,
    seed: RecordSeed,
    end: u64,
    snapshot_bytes: u64,
    next_edit: u64,
    superblock_file: SuperblockFile,
    superblock: Superblock,
    state: ManifestState,
    failure: Option<Error>,
}

/// The open manifest of a store.
#[derive(Debug)]
pub struct Manifest {
    env: Arc<dyn Env>,
    directory: PathBuf,
    was_closed: bool,
    log: Mutex<Log>,
    bytes_written: std::sync::atomic::AtomicU64,
}

/// Size and work of the manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManifestStats {
    /// Length of the current file.
    pub file_bytes: u64,
    /// Bytes written since the store was opened.
    pub bytes_written: u64,
    /// Number of the current file.
    pub number: u64,
    /// Number of the next edit in it.
    pub next_edit: u64,
}

/// The name of a manifest file.
fn file_name(number: u64) -> String {
    format!("manifest-{number:010}")
}

impl Manifest {
    /// Creates manifest 1 with `first` as its state, then the superblock. The store exists once this returns.
    pub fn create(env: Arc<dyn Env>, directory: &Path, store: StoreId, first: &[Change]) -> Result<Self> {
        let mut state = ManifestState::default();
        apply_all(&mut state, first)?;
        let (file, seed, end) = write_snapshot(&*env, directory, store, 1, &state)?;
        let superblock = Superblock {
            store,
            generation: 1,
            manifest: 1,
            floor: Floor { manifest_bytes: end, last_seqno: Seqno(0) },
            is_closed: true,
        };
        let superblock_file = SuperblockFile::create(&*env, directory, &superblock)?;
        let log = Log {
            file,
            seed,
            end,
            snapshot_bytes: end,
            next_edit: 1,
            superblock_file,
            superblock: Superblock { is_closed: false, ..superblock },
            state,
            failure: None,
        };
        Ok(Self::from_log(env, directory, log))
    }

    /// Reads the current manifest. With `writable` a torn tail is overwritten by the next edit.
    ///
    /// Errors: `Corruption` for damage before the tail, `Unsupported` for a format this build does not know.
    pub fn open(env: Arc<dyn Env>, directory: &Path, writable: bool) -> Result<Self> {
        let (superblock_file, superblock) = SuperblockFile::open(&*env, directory, writable)?;
        let name = file_name(superblock.manifest);
        let mode = if writable { OpenMode::Write } else { OpenMode::Read };
        let file = env.open(&directory.join(&name), OpenOptions { mode, direct: false }).map_err(|e| {
            if e.kind() == std::io::ErrorKind::NotFound {
                return Error::corruption(&name, 0, "the manifest that the superblock names is missing");
            }
            Error::io(&name, e)
        })?;
        let length = file.len().map_err(|e| Error::io(&name, e))?;
        if length > MAX_BYTES {
            return Err(Error::corruption(&name, MAX_BYTES, "the file is longer than any manifest"));
        }
        let mut bytes = vec![0u8; usize_of(length)];
        file.read_at(0, &mut bytes).map_err(|e| Error::io(&name, e))?;
        let seed = RecordSeed::new(superblock.store, superblock.manifest);
        let (state, next_edit, end, snapshot_bytes) = replay(&bytes, seed, &name)?;
        if end < superblock.floor.manifest_bytes {
            return Err(Error::corruption(&name, end, "the file ends before edits that were durable"));
        }
        // An edit that the closing did not know of comes from an opening that failed.
        let was_closed = superblock.is_closed && end == superblock.floor.manifest_bytes;
        let log = Log {
            file,
            seed,
            end,
            snapshot_bytes,
            next_edit,
            superblock_file,
            superblock: Superblock { is_closed: false, ..superblock },
            state,
            failure: None,
        };
        let manifest = Self { was_closed, ..Self::from_log(env, directory, log) };
        if writable {
            manifest.remove_strays()?;
        }
        Ok(manifest)
    }

    fn from_log(env: Arc<dyn Env>, directory: &Path, log: Log) -> Self {
        let directory = directory.to_owned();
        Self { env, directory, was_closed: true, log: Mutex::new(log), bytes_written: 0.into() }
    }

    /// Id of the store.
    pub fn store(&self) -> StoreId {
        self.log.lock().superblock.store
    }

    /// A look at the committed state.
    pub fn with_state<R>(&self, look: impl FnOnce(&ManifestState) -> R) -> R {
        look(&self.log.lock().state)
    }

    /// Makes `edit` durable, all of it or nothing. Once this returns `Ok` it survives a crash.
    ///
    /// Errors: after `Io` or `OutOfSpace` the manifest is poisoned: it is not known whether the edit is durable.
    pub fn commit(&self, edit: &[Change]) -> Result<()> {
        let mut log = self.log.lock();
        if let Some(failure) = &log.failure {
            let message = format!("the manifest failed earlier: {failure}");
            return Err(Error::new(ErrorKind::Poisoned, message));
        }
        // An edit that contradicts the state is a bug of ours; the state in memory is then worth nothing.
        if let Err(error) = apply_all(&mut log.state, edit) {
            log.failure = Some(error.clone());
            return Err(error);
        }
        let floor_seqno = log.superblock.floor.last_seqno;
        let appended = self.append(&mut log, edit).and_then(|()| self.write_floor(&mut log, floor_seqno));
        if let Err(error) = appended {
            log.failure = Some(error.clone());
            return Err(error);
        }
        let worth = (log.snapshot_bytes * 4).max(MIN_ROTATE_BYTES);
        if log.end > worth
            && let Err(error) = self.rotate(&mut log)
        {
            log.failure = Some(error);
        }
        Ok(())
    }

    fn append(&self, log: &mut Log, edit: &[Change]) -> Result<()> {
        let record = padded(encode_record(edit, log.next_edit, log.seed));
        let name = || file_name(log.superblock.manifest);
        log.file.write_at(log.end, &record).map_err(|e| Error::io(name(), e))?;
        if !planted!("manifest-edit-unsynced") {
            log.file.sync().map_err(|e| Error::io(name(), e))?;
        }
        log.end += u64_of(record.len());
        log.next_edit += 1;
        self.count(record.len());
        Ok(())
    }

    fn count(&self, bytes: usize) {
        self.bytes_written.fetch_add(u64_of(bytes), std::sync::atomic::Ordering::Relaxed);
    }

    /// Whether the store was closed properly before it was opened, or is new.
    pub fn was_closed(&self) -> bool {
        self.was_closed
    }

    /// Writes the manifest once more, to a fresh file. After a crash: what was read may have stood in caches alone, where a
    /// later sync would not find it after one that failed. On a full device it is only synced.
    pub fn rewrite(&self) -> Result<()> {
        let mut log = self.log.lock();
        let number = log.superblock.manifest;
        if planted!("manifest-synced-in-place") {
            return log.file.sync().map_err(|e| Error::io(file_name(number), e));
        }
        let outcome = match self.rotate(&mut log) {
            Err(error) if error.kind() == ErrorKind::OutOfSpace && log.superblock.manifest == number => {
                log.file.sync().map_err(|e| Error::io(file_name(number), e))
            }
            outcome => outcome,
        };
        if let Err(error) = &outcome {
            log.failure = Some(error.clone());
        }
        outcome
    }

    fn rotate(&self, log: &mut Log) -> Result<()> {
        let number = log.superblock.manifest + 1;
        let store = log.superblock.store;
        let (file, seed, end) = write_snapshot(&*self.env, &self.directory, store, number, &log.state)?;
        let floor = Floor { manifest_bytes: end, ..log.superblock.floor };
        let generation = log.superblock.generation + 1;
        let superblock = Superblock { generation, manifest: number, floor, ..log.superblock };
        log.superblock_file.write(&superblock)?;
        let old = std::mem::replace(&mut log.superblock, superblock).manifest;
        log.file = file;
        log.seed = seed;
        log.end = end;
        log.snapshot_bytes = end;
        log.next_edit = 1;
        self.count(usize_of(end) + PAGE_SIZE);
        // A manifest that stays behind is removed at the next open.
        let _ = self.env.remove_file(&self.directory.join(file_name(old)));
        Ok(())
    }

    /// Removes manifests that an interrupted rotation left behind.
    fn remove_strays(&self) -> Result<()> {
        let current = file_name(self.log.lock().superblock.manifest);
        let entries = self.env.list_dir(&self.directory).map_err(|e| Error::io("store directory", e))?;
        for entry in entries {
            if entry.name.starts_with("manifest-") && entry.name != current {
                let path = self.directory.join(&entry.name);
                self.env.remove_file(&path).map_err(|e| Error::io(entry.name, e))?;
            }
        }
        Ok(())
    }

    /// The log is known to have reached this seqno, durably.
    pub fn floor_seqno(&self) -> Seqno {
        self.log.lock().superblock.floor.last_seqno
    }

    /// Notes that everything up to `last_seqno` is durable; when a store is opened and, with `is_closed`, when it is closed.
    pub fn raise_floor(&self, last_seqno: Seqno, is_closed: bool) -> Result<()> {
        let mut log = self.log.lock();
        if let Some(failure) = &log.failure {
            return Err(failure.clone());
        }
        log.superblock.is_closed = is_closed;
        let outcome = self.write_floor(&mut log, last_seqno);
        if let Err(error) = &outcome {
            log.failure = Some(error.clone());
        }
        outcome
    }

    fn write_floor(&self, log: &mut Log, last_seqno: Seqno) -> Result<()> {
        let floor = Floor { manifest_bytes: log.end, last_seqno };
        let generation = log.superblock.generation + 1;
        let superblock = Superblock { generation, floor, ..log.superblock };
        log.superblock_file.write(&superblock)?;
        log.superblock = superblock;
        self.count(PAGE_SIZE);
        Ok(())
    }

    /// Size and work.
    pub fn stats(&self) -> ManifestStats {
        let log = self.log.lock();
        ManifestStats {
            file_bytes: log.end,
            bytes_written: self.bytes_written.load(std::sync::atomic::Ordering::Relaxed),
            number: log.superblock.manifest,
            next_edit: log.next_edit,
        }
    }
}

/// Records stand in pages of their own: a write that is cut short must not tear what was durable before.
fn padded(mut record: Vec<u8>) -> Vec<u8> {
    record.resize(record.len().next_multiple_of(PAGE_SIZE), 0);
    record
}

fn apply_all(state: &mut ManifestState, edit: &[Change]) -> Result<()> {
    for change in edit {
        state.apply(change).map_err(|damage| {
            Error::new(ErrorKind::Poisoned, format!("an edit contradicts the committed state: {}", damage.0))
        })?;
    }
    Ok(())
}

fn write_snapshot(
    env: &dyn Env,
    directory: &Path,
    store: StoreId,
    number: u64,
    state: &ManifestState,
) -> Result<(Arc<dyn File>, RecordSeed, u64)> {
    let name = file_name(number);
    let path = directory.join(&name);
    let options = OpenOptions { mode: OpenMode::CreateNew, direct: false };
    let file = match env.open(&path, options) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            // Left behind by an interrupted rotation: the superblock never named it.
            env.remove_file(&path).and_then(|()| env.open(&path, options))
        }
        opened => opened,
    };
    let file = file.map_err(|e| Error::io(&name, e))?;
    let seed = RecordSeed::new(store, number);
    let record = padded(encode_record(&state.as_edit(), 0, seed));
    file.write_at(0, &record).map_err(|e| Error::io(&name, e))?;
    file.sync().map_err(|e| Error::io(&name, e))?;
    env.sync_dir(directory).map_err(|e| Error::io(&name, e))?;
    Ok((file, seed, u64_of(record.len())))
}

/// The state, the number of the next edit, the end of the last sound record and the snapshot's length.
fn replay(bytes: &[u8], seed: RecordSeed, name: &str) -> Result<(ManifestState, u64, u64, u64)> {
    let mut state = ManifestState::default();
    let (mut at, mut next_edit, mut snapshot_bytes) = (0usize, 0u64, 0u64);
    while at < bytes.len() {
        match decode_record(&bytes[at..], seed) {
            Decoded::Record { edit, edit_number, bytes: length } if edit_number == next_edit => {
                for change in &edit {
                    state.apply(change).map_err(|d| Error::corruption(name, u64_of(at), d.0))?;
                }
                at = (at + length).next_multiple_of(PAGE_SIZE);
                next_edit += 1;
                if next_edit == 1 {
                    snapshot_bytes = u64_of(at);
                }
            }
            Decoded::Record { .. } => {
                return Err(Error::corruption(name, u64_of(at), "an edit is missing"));
            }
            damaged => {
                let why = if let Decoded::DamagedPayload(d) = damaged { d.0 } else { "not a record" };
                if next_edit == 0 || sound_record_follows(&bytes[at..], seed, next_edit) {
                    return Err(Error::corruption(name, u64_of(at), why));
                }
                break;
            }
        }
    }
    if next_edit == 0 {
        return Err(Error::corruption(name, 0, "the manifest is empty"));
    }
    Ok((state, next_edit, u64_of(at), snapshot_bytes))
}

/// Whether anything after the damage proves that it was once durable: edits are synced one by one.
fn sound_record_follows(bytes: &[u8], seed: RecordSeed, missing_edit: u64) -> bool {
    (PAGE_SIZE..bytes.len()).step_by(PAGE_SIZE).any(|at| {
        matches!(decode_record(&bytes[at..], seed), Decoded::Record { edit_number, .. } if edit_number > missing_edit)
    })
}

#[cfg(test)]
mod tests;
