//! The manifest: a log of atomic, durable edits, and its replay.
//!
//! Length: one lock and everything done under it.
//!
//! Data flow: `commit` appends one record, syncs it, then raises the durable watermark in the superblock, so
//! that a later truncation of the manifest is detected. When the log is much longer than the state, the state
//! is written as the first record of a new file, and the superblock switches to it. Edit numbers continue
//! across files.
//!
//! **Invariants**
//! - The state in memory is the result of all durable records.
//! - The superblock records each edit before the next one is written: it lags by at most one edit.
//! - Opening writes nothing: an apparent leftover may belong to a newer superblock that was lost.
//! - After a failed write or sync, the durability of the last record is unknown: all later commits fail
//!   (`Poisoned`). After a transient failure nothing was written, and the state is unchanged.
//! - Replay ends at the first invalid record; that is a torn tail only if no valid record follows.

mod failure;
pub(crate) mod manifest_format;
mod rotation;
pub(crate) mod state;
pub(crate) mod superblock;
pub(crate) mod survey;
pub(crate) mod watermark;

use std::path::{Path, PathBuf};

use testudo_base::{
    Error, ErrorKind, Incarnation, PAGE_SIZE, Result, Seqno, StoreId,
    num::u64_of,
    planted,
    sync::{Arc, Mutex},
};
use testudo_env::{Env, File, OpenMode, OpenOptions, read_sparse};

use crate::{
    SUPERBLOCK_FILE, Superblock, SuperblockFile, Watermark,
    manifest::{
        manifest_format::{Change, Decoded, RecordSeed, decode_record, encode_record_in_chunks},
        state::ManifestState,
        survey::list_manifests,
        watermark::{COUNT_MAX, WatermarkFile, read_watermark},
    },
};

/// Maximum length of a manifest: the states of the largest stores are a small part of it.
const MAX_BYTES: u64 = 4 << 30;

#[derive(Debug)]
struct Log {
    file: Arc<dyn File>,
    seed: RecordSeed,
    end: u64,
    snapshot_bytes: u64,
    last_edit: u64,
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
    /// Whether edits are written; otherwise they only change the state in memory.
    is_writable: bool,
    log: Mutex<Log>,
    /// Lock order: after `log`; never held during a sync.
    known: Mutex<Known>,
    bytes_written: std::sync::atomic::AtomicU64,
}

/// The durable watermark, and where it is recorded.
#[derive(Debug, Default)]
struct Known {
    watermark: Watermark,
    /// Watermark recorded in the superblock.
    stated: Watermark,
    /// Newest log segment of this opening that is durable up to the watermark, and its value at the last
    /// superblock write.
    segment: u64,
    stated_segment: u64,
    file: Option<WatermarkFile>,
    /// Whether the superblock on the device marks the store as closed and includes the newest edit.
    is_closing_stated: bool,
}

impl Known {
    fn raise(&mut self, watermark: Watermark) {
        self.watermark = self.watermark.max(watermark);
        if let Some(file) = &mut self.file {
            file.write(&self.watermark);
        }
    }
}

/// Size and write counters of the manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManifestStats {
    /// Length of the current file.
    pub file_bytes: u64,
    /// Bytes written since the store was opened.
    pub bytes_written: u64,
    /// Number of the current file.
    pub number: u64,
    /// Number of the newest edit.
    pub last_edit: u64,
}

/// Returns the name of a manifest file.
fn file_name(number: u64) -> String {
    format!("manifest-{number:010}")
}

/// Whether `name` is a valid name of a manifest file.
fn is_file_name(name: &str) -> bool {
    name.strip_prefix("manifest-")
        .is_some_and(|digits| digits.len() >= 10 && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

impl Manifest {
    /// Creates manifest 1 with `first` as its state, then the superblock. The store exists once this returns.
    pub fn create(env: Arc<dyn Env>, directory: &Path, store: StoreId, first: &[Change]) -> Result<Self> {
        let mut state = ManifestState::default();
        apply_all(&mut state, first)?;
        let (file, seed, end) = write_snapshot(&*env, directory, store, (1, 0), &state)?;
        let superblock = Superblock {
            store,
            generation: 1,
            manifest: 1,
            watermark: Watermark::default(),
            incarnation: newest_incarnation(&state),
            is_closed: true,
        };
        let superblock_file = SuperblockFile::create(&*env, directory, &superblock)?;
        let log = Log {
            file,
            seed,
            end,
            snapshot_bytes: end,
            last_edit: 0,
            superblock_file,
            superblock: Superblock { is_closed: false, ..superblock },
            state,
            failure: None,
        };
        Ok(Self::from_log(env, directory, log, Watermark::default()))
    }

    /// Opens and replays the current manifest. With `writable`, edits are written, and the next edit
    /// overwrites a torn tail.
    ///
    /// Errors: `Corruption` for damage before the tail, and if superblock or watermark record edits or
    /// openings that are missing; `Unsupported` for a format unknown to this build.
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
            return Err(Error::corruption(
                &name,
                MAX_BYTES,
                "the file exceeds the maximum length of a manifest",
            ));
        }
        let bytes = read_sparse(&*file, length).map_err(|e| Error::io(&name, e))?;
        let seed = RecordSeed::new(superblock.store, superblock.manifest);
        let Replayed { state, last_edit, end, snapshot_bytes } = replay(&bytes, seed, &name)?;
        let proven = superblock.watermark.max(read_watermark(&*env, directory, superblock.store));
        if last_edit < proven.edit {
            return Err(Error::corruption(&name, end, "the file ends before edits that were durable"));
        }
        check_superblock(&superblock, &state, last_edit)?;
        // A newer edit than at the close comes from an opening that failed.
        let was_closed = superblock.is_closed && last_edit == superblock.watermark.edit;
        let log = Log {
            file,
            seed,
            end,
            snapshot_bytes,
            last_edit,
            superblock_file,
            superblock: Superblock { is_closed: false, ..superblock },
            state,
            failure: None,
        };
        let watermark = Watermark { edit: last_edit, ..proven };
        let manifest = Self::from_log(env, directory, log, watermark);
        manifest.known.lock().is_closing_stated = was_closed;
        Ok(Self { was_closed, is_writable: writable, ..manifest })
    }

    fn from_log(env: Arc<dyn Env>, directory: &Path, log: Log, watermark: Watermark) -> Self {
        let directory = directory.to_owned();
        let known = Known { watermark, stated: log.superblock.watermark, ..Known::default() };
        let (log, known) = (Mutex::new(log), Mutex::new(known));
        let bytes_written = 0.into();
        Self { env, directory, was_closed: true, is_writable: true, log, known, bytes_written }
    }

    /// Starts recording the watermark in the file `watermark`. REQUIRES: the rest of the store has been found
    /// valid.
    pub fn begin_writing(&self) {
        if self.is_writable {
            let file = WatermarkFile::open(&*self.env, &self.directory, self.store());
            self.known.lock().file = file;
        }
    }

    /// Id of the store.
    pub fn store(&self) -> StoreId {
        self.log.lock().superblock.store
    }

    /// Calls `look` with the committed state.
    pub fn with_state<R>(&self, look: impl FnOnce(&ManifestState) -> R) -> R {
        look(&self.log.lock().state)
    }

    /// Commits `edit` atomically. After `Ok` it survives a crash. A read-only manifest only changes its state
    /// in memory.
    ///
    /// Errors: after `Io` or `OutOfSpace` the manifest is poisoned: the edit may or may not be durable. After
    /// a transient error nothing was written, and the manifest stays usable.
    pub fn commit(&self, edit: &[Change]) -> Result<()> {
        let mut log = self.log.lock();
        if let Some(failure) = &log.failure {
            let message = format!("the manifest failed earlier: {failure}");
            return Err(Error::new(ErrorKind::Poisoned, message));
        }
        // The superblock may not record the last edit found at opening yet. It must be written before the
        // state changes: it must not record an opening that is not durable.
        if self.is_writable
            && log.superblock.watermark.edit < log.last_edit
            && let Err(error) = self.write_superblock(&mut log)
        {
            return Err(log.fail(error));
        }
        // An edit that contradicts the state is a bug; the state in memory is unusable afterwards.
        if let Err(error) = apply_all(&mut log.state, edit) {
            log.failure = Some(error.clone());
            return Err(error);
        }
        if !self.is_writable {
            return Ok(());
        }
        if let Err(error) = self.append(&mut log, edit) {
            let error =
                if log.reread().is_err() { error.lasting("an edit may be partly written") } else { error };
            return Err(log.fail(error));
        }
        // The edit is durable. If this superblock write fails transiently, it is retried before the next
        // edit.
        if let Err(error) = self.write_superblock(&mut log)
            && !error.is_transient()
        {
            return Err(log.fail(error));
        }
        if log.end > rotation::worth_rotating(log.snapshot_bytes)
            && let Err(error) = self.rotate(&mut log)
        {
            log.fail(error);
        }
        Ok(())
    }

    fn append(&self, log: &mut Log, edit: &[Change]) -> Result<()> {
        debug_assert!(log.end.is_multiple_of(u64_of(PAGE_SIZE)), "records must start at page boundaries");
        let name = || file_name(log.superblock.manifest);
        if log.last_edit >= COUNT_MAX {
            return Err(Error::corruption(name(), log.end, "edit numbers are exhausted"));
        }
        let write_at = |offset, chunk: &[u8]| log.file.write_at(log.end + offset, chunk);
        let written = encode_record_in_chunks(edit.iter(), log.last_edit + 1, log.seed, write_at);
        let bytes = written.map_err(|e| Error::io(name(), e))?;
        if !planted!("manifest-edit-unsynced") {
            log.file.sync().map_err(|e| Error::io(name(), e))?;
        }
        log.end += bytes;
        log.last_edit += 1;
        self.known.lock().raise(Watermark { edit: log.last_edit, ..Watermark::default() });
        self.count(bytes);
        Ok(())
    }

    fn count(&self, bytes: u64) {
        self.bytes_written.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
    }

    /// Whether the store is new, or was closed cleanly before this opening.
    pub fn was_closed(&self) -> bool {
        self.was_closed
    }

    /// Rewrites the manifest to a new file after a crash: the bytes read may be in the OS cache alone, and a
    /// sync after a failed one would not write them. If the device is full, the file is only synced.
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
        outcome.map_err(|error| log.fail(error))
    }

    fn rotate(&self, log: &mut Log) -> Result<()> {
        // A newer file may exist that this superblock does not know.
        let newest = list_manifests(&*self.env, &self.directory)?.pop().unwrap_or_default();
        let old = log.superblock.manifest;
        let number = newest.max(old).checked_add(1);
        let number =
            number.ok_or_else(|| Error::corruption(SUPERBLOCK_FILE, 0, "manifest numbers are exhausted"))?;
        debug_assert!(number > old, "manifest numbers must ascend");
        let (store, edit) = (log.superblock.store, log.last_edit);
        let (file, seed, end) =
            write_snapshot(&*self.env, &self.directory, store, (number, edit), &log.state)?;
        log.superblock.manifest = number;
        if let Err(error) = self.write_superblock(log) {
            log.superblock.manifest = old;
            return Err(error);
        }
        log.file = file;
        log.seed = seed;
        log.end = end;
        log.snapshot_bytes = end;
        self.count(end);
        // A file whose removal fails is removed at the next opening.
        let _ = self.env.remove_file(&self.directory.join(file_name(old)));
        Ok(())
    }

    /// Removes manifests left over by interrupted rotations. REQUIRES: the rest of the store has been found
    /// valid.
    pub fn remove_strays(&self) -> Result<()> {
        let current = file_name(self.log.lock().superblock.manifest);
        let entries = self.env.list_dir(&self.directory).map_err(|e| Error::io("store directory", e))?;
        for entry in entries {
            if is_file_name(&entry.name) && entry.name != current {
                let path = self.directory.join(&entry.name);
                self.env.remove_file(&path).map_err(|e| Error::io(entry.name, e))?;
            }
        }
        Ok(())
    }

    /// Returns the durable watermark: right after opening, the maximum of superblock, manifest and watermark
    /// file.
    pub fn watermark(&self) -> Watermark {
        self.known.lock().watermark
    }

    /// Records that the log is durable up to `seqno`, whose record is in `segment`. The superblock includes
    /// it at the next edit, or at once, synced, if `segment` is newer than the superblock's.
    ///
    /// Errors: those of writing the superblock.
    pub fn record_durable(&self, segment: u64, seqno: Seqno) -> Result<()> {
        let is_known = {
            let mut known = self.known.lock();
            known.raise(Watermark { edit: 0, seqno });
            known.segment = segment;
            known.stated_segment >= segment
        };
        if is_known { Ok(()) } else { self.state_watermark() }
    }

    /// Writes the watermark to the superblock, if it is not there yet.
    pub fn state_watermark(&self) -> Result<()> {
        let is_stated = {
            let known = self.known.lock();
            known.stated == known.watermark
        };
        if is_stated { Ok(()) } else { self.change_superblock(|_| {}) }
    }

    /// Records in the superblock that everything up to `seqno` is durable and that the store was closed,
    /// unless it says so already.
    pub fn close(&self, seqno: Seqno) -> Result<()> {
        let is_stated = {
            let mut known = self.known.lock();
            known.raise(Watermark { edit: 0, seqno });
            known.is_closing_stated && known.stated == known.watermark
        };
        if is_stated {
            return Ok(());
        }
        self.shorten()?;
        self.change_superblock(|superblock| superblock.is_closed = true)
    }

    /// Rotates the log if most of it is obsolete, to speed up the next opening. If the device is full or
    /// another resource is short, nothing changes.
    pub fn shorten(&self) -> Result<()> {
        let mut log = self.log.lock();
        let number = log.superblock.manifest;
        let worth = rotation::worth_shortening(log.snapshot_bytes);
        if log.failure.is_some() || log.end <= worth || planted!("manifest-never-shortened") {
            return Ok(());
        }
        match self.rotate(&mut log) {
            Err(error) if error.is_shortage() && log.superblock.manifest == number => Ok(()),
            outcome => outcome.map_err(|error| log.fail(error)),
        }
    }

    fn change_superblock(&self, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        let mut log = self.log.lock();
        if let Some(failure) = &log.failure {
            return Err(failure.clone());
        }
        let before = log.superblock;
        change(&mut log.superblock);
        self.write_superblock(&mut log).map_err(|error| {
            log.superblock = before;
            log.fail(error)
        })
    }

    /// Writes the superblock with the current watermark.
    fn write_superblock(&self, log: &mut Log) -> Result<()> {
        let (known, segment) = {
            let known = self.known.lock();
            (known.watermark, known.segment)
        };
        let watermark = Watermark { edit: log.last_edit, ..known };
        let stated = log.superblock.watermark;
        debug_assert!(
            watermark.edit >= stated.edit && watermark.seqno >= stated.seqno,
            "the watermark never decreases"
        );
        let generation = log.superblock.generation + 1;
        let incarnation = newest_incarnation(&log.state);
        let superblock = Superblock { generation, watermark, incarnation, ..log.superblock };
        log.superblock_file.write(&superblock)?;
        log.superblock = superblock;
        let mut known = self.known.lock();
        (known.stated, known.stated_segment) = (watermark, segment);
        known.is_closing_stated = superblock.is_closed;
        drop(known);
        self.count(u64_of(PAGE_SIZE));
        Ok(())
    }

    /// Bytes by which the manifest may grow before [`Manifest::shorten`] rotates it, plus the size of the new
    /// snapshot.
    pub fn growth_bytes(&self) -> u64 {
        let log = self.log.lock();
        rotation::worth_shortening(log.snapshot_bytes).saturating_sub(log.end) + log.snapshot_bytes
    }

    /// Returns sizes and write counters.
    pub fn stats(&self) -> ManifestStats {
        let log = self.log.lock();
        ManifestStats {
            file_bytes: log.end,
            bytes_written: self.bytes_written.load(std::sync::atomic::Ordering::Relaxed),
            number: log.superblock.manifest,
            last_edit: log.last_edit,
        }
    }
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
    (number, edit): (u64, u64),
    state: &ManifestState,
) -> Result<(Arc<dyn File>, RecordSeed, u64)> {
    let name = file_name(number);
    let path = directory.join(&name);
    let options = OpenOptions { mode: OpenMode::CreateNew, direct: false };
    let file = match env.open(&path, options) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            // Left over by an interrupted rotation: the superblock never named it.
            env.remove_file(&path).and_then(|()| env.open(&path, options))
        }
        opened => opened,
    };
    let file = file.map_err(|e| Error::io(&name, e))?;
    let seed = RecordSeed::new(store, number);
    let write_at = |offset, chunk: &[u8]| file.write_at(offset, chunk);
    let end = encode_record_in_chunks(state.changes(), edit, seed, write_at);
    let end = end.map_err(|e| Error::io(&name, e))?;
    file.sync().map_err(|e| Error::io(&name, e))?;
    env.sync_dir(directory).map_err(|e| Error::io(&name, e))?;
    Ok((file, seed, end))
}

/// Returns the incarnation of the newest opening; 0 if there was none.
fn newest_incarnation(state: &ManifestState) -> Incarnation {
    state.openings.last().map(|opening| opening.incarnation).unwrap_or_default()
}

/// Checks that superblock and manifest belong together: that each contains the other's openings and edits.
///
/// Errors: `Corruption`.
pub fn check_superblock(superblock: &Superblock, state: &ManifestState, last_edit: u64) -> Result<()> {
    let damage = |why| Err(Error::corruption(SUPERBLOCK_FILE, 0, why));
    let incarnation = superblock.incarnation;
    let is_known = state.openings.iter().any(|opening| opening.incarnation == incarnation);
    if incarnation.0 != 0 && !is_known {
        return damage("superblock and manifest belong to different copies of the store");
    }
    if last_edit > superblock.watermark.edit.saturating_add(1) && !planted!("old-superblock-believed") {
        return damage("the superblock is older than the manifest");
    }
    Ok(())
}

/// Result of a replay.
struct Replayed {
    state: ManifestState,
    last_edit: u64,
    /// End of the last valid record.
    end: u64,
    /// Length of the first record.
    snapshot_bytes: u64,
}

fn replay(bytes: &[u8], seed: RecordSeed, name: &str) -> Result<Replayed> {
    let mut state = ManifestState::default();
    let (mut at, mut last_edit, mut snapshot_bytes) = (0usize, None::<u64>, 0u64);
    while at < bytes.len() {
        match decode_record(&bytes[at..], seed) {
            Decoded::Record { edit, edit_number, bytes: length }
                if last_edit.is_none_or(|last| edit_number.checked_sub(1) == Some(last))
                    && edit_number <= COUNT_MAX =>
            {
                for change in &edit {
                    state.apply(change).map_err(|d| Error::corruption(name, u64_of(at), d.0))?;
                }
                at = (at + length).next_multiple_of(PAGE_SIZE);
                if last_edit.is_none() {
                    snapshot_bytes = u64_of(at);
                }
                last_edit = Some(edit_number);
            }
            Decoded::Record { .. } => {
                return Err(Error::corruption(name, u64_of(at), "an edit is missing"));
            }
            damaged => {
                let why = if let Decoded::DamagedPayload(d) = damaged { d.0 } else { "not a record" };
                if last_edit.is_none_or(|last| valid_record_follows(&bytes[at..], seed, last)) {
                    return Err(Error::corruption(name, u64_of(at), why));
                }
                break;
            }
        }
    }
    let Some(last_edit) = last_edit else {
        return Err(Error::corruption(name, 0, "the manifest is empty"));
    };
    Ok(Replayed { state, last_edit, end: u64_of(at), snapshot_bytes })
}

/// Whether a valid later record proves that the damaged one was durable: edits are synced one by one.
fn valid_record_follows(bytes: &[u8], seed: RecordSeed, last_edit: u64) -> bool {
    (PAGE_SIZE..bytes.len()).step_by(PAGE_SIZE).any(|at| {
        let record = decode_record(&bytes[at..], seed);
        matches!(record, Decoded::Record { edit_number, .. } if edit_number > last_edit.saturating_add(1))
    })
}

#[cfg(test)]
mod tests;
