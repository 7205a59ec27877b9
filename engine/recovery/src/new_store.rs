//! Builds a complete store from copied runs, a state and a tail, in a directory that holds none.
//!
//! Steps: lock, mark `UNFINISHED`, pages into `data`, the tail into a new log, manifest, superblock, check,
//! remove the mark. A directory with the mark is never opened as a store; building a store there again starts
//! over.
//!
//! **Invariants**
//! - A directory with any other content is refused and left untouched.
//! - Pages keep their numbers and runs their ids, so objects need no change. Each page is verified for its
//!   source store and sealed for the new one, whose id its footers state.
//! - The mark is removed only after everything is durable and has been opened for a check.
//! - A failed build leaves nothing behind; a crashed one leaves the mark.

use std::path::{Path, PathBuf};

use testudo_base::{
    Error, Incarnation, Opening, PAGE_BYTES, PAGE_SIZE, Result, Seqno, StoreId,
    num::{u32_of, u64_of, usize_of},
    sync::Arc,
};
use testudo_env::{DirLock, Env, File, OpenMode, OpenOptions};
use testudo_run::{PageWalk, ReadPages, RunRecord, RunRef};
use testudo_storage::{
    DATA_FILE, Manifest, ManifestState, PAGE_HEADER_BYTES, PageIdentity, PageKind, payload_of, seal_pages,
};
use testudo_store::{
    commits::batch_format::{Operation, encode_operation, operation_bytes},
    directory::{self, LOCK_FILE, LockAs, UNFINISHED_FILE},
    long_work::Meter,
};
use testudo_wal::{NoListener, Wal, WalOptions, WalStart};

use crate::open;

/// Target size in bytes of the tail's commits.
const COMMIT_BYTES: usize = 256 << 10;

/// A run to copy into a new store.
pub struct CopiedRun<'r, 'p> {
    pub reference: &'r RunRef,
    /// The store that it belongs to.
    pub store: StoreId,
    /// Reads its pages.
    pub read: &'r mut ReadPages<'p>,
    /// Builds the error for an invalid page.
    pub damaged: &'r dyn Fn(u32, &str) -> Error,
}

/// A store under construction.
#[derive(Debug)]
pub struct NewStore {
    env: Arc<dyn Env>,
    directory: PathBuf,
    id: StoreId,
    lock: Option<Arc<dyn DirLock>>,
    data: Option<Arc<dyn File>>,
    made_directory: bool,
    is_finished: bool,
}

impl NewStore {
    /// Begins a store in `directory`, which does not exist, is empty, or holds an unfinished store.
    ///
    /// Errors: `Invalid` for any other directory, `Locked` if another process is building a store there.
    pub fn begin(env: &Arc<dyn Env>, directory: &Path) -> Result<Self> {
        let (env, made_directory) = directory::anchor_or_make(env, directory)?;
        directory::check_makes_way(directory, &directory::list(&*env, directory)?.unwrap_or_default())?;
        let id = StoreId(u128::from(env.random_u64()) << 64 | u128::from(env.random_u64()));
        let mut new = Self {
            env,
            directory: directory.to_owned(),
            id,
            lock: None,
            data: None,
            made_directory,
            is_finished: false,
        };
        let lock = directory::lock(&*new.env, directory, LockAs::Creator)?;
        let names = directory::list(&*new.env, directory)?.unwrap_or_default();
        directory::check_makes_way(directory, &names)?;
        // From here on the content is ours, and is removed if the build fails.
        new.lock = Some(lock);
        if !names.iter().any(|name| name == UNFINISHED_FILE) {
            new.create(UNFINISHED_FILE, false)?;
        }
        new.sync_names()?;
        directory::sync_own_name(&*new.env, directory)?;
        new.remove_files()?;
        new.data = Some(new.create(DATA_FILE, true)?);
        Ok(new)
    }

    fn create(&self, name: &str, direct: bool) -> Result<Arc<dyn File>> {
        let path = self.directory.join(name);
        let options = OpenOptions { mode: OpenMode::CreateNew, direct };
        self.env.open(&path, options).map_err(|e| directory::io(&path, e))
    }

    fn sync_names(&self) -> Result<()> {
        self.env.sync_dir(&self.directory).map_err(|e| directory::io(&self.directory, e))
    }

    /// Removes all files except the lock and the mark.
    fn remove_files(&self) -> Result<()> {
        for name in directory::list(&*self.env, &self.directory)?.unwrap_or_default() {
            if ![LOCK_FILE, UNFINISHED_FILE].contains(&name.as_str()) {
                let path = self.directory.join(name);
                self.env.remove_file(&path).map_err(|e| directory::io(&path, e))?;
            }
        }
        Ok(())
    }

    /// Copies a run of another store.
    pub fn copy_run(&self, run: CopiedRun<'_, '_>, meter: &mut Meter<'_, '_>) -> Result<()> {
        let CopiedRun { reference, store: from, read, damaged } = run;
        debug_assert!(self.lock.is_some() && from != self.id, "a run of another store");
        let mut walk = PageWalk::new(reference, from, 0);
        while let Some(stretch) = walk.next_stretch(read)? {
            let mut at = 0;
            for block in stretch.blocks {
                if let Some(why) = block.damage {
                    return Err(damaged(block.page, why));
                }
                let bytes = &mut stretch.bytes[at..at + usize_of(u64::from(block.pages)) * PAGE_SIZE];
                let payload_bytes = payload_of(bytes).len();
                if block.identity.kind == PageKind::Footer {
                    RunRecord::restate_store(&mut bytes[PAGE_HEADER_BYTES..], self.id);
                }
                seal_pages(bytes, &PageIdentity { store: self.id, ..block.identity }, payload_bytes);
                at += bytes.len();
            }
            debug_assert_eq!(at, stretch.bytes.len(), "blocks fill the stretch");
            self.write_pages(reference, stretch.first_page, stretch.bytes)?;
            meter.advance(u64_of(at))?;
        }
        Ok(())
    }

    fn write_pages(&self, reference: &RunRef, first_page: u32, bytes: &[u8]) -> Result<()> {
        let data = self.data.as_ref().expect("`begin` created the data file");
        debug_assert!(bytes.len().is_multiple_of(PAGE_SIZE), "whole pages");
        let (mut page, mut rest) = (first_page, bytes);
        while !rest.is_empty() {
            let (physical, room) = reference
                .locate(page)
                .ok_or_else(|| Error::corruption(DATA_FILE, 0, "a run has fewer pages than it says"))?;
            let (chunk, after) = rest.split_at(rest.len().min(usize_of(u64::from(room)) * PAGE_SIZE));
            data.write_at(physical * PAGE_BYTES, chunk).map_err(|e| Error::io(DATA_FILE, e))?;
            page += u32_of(chunk.len() / PAGE_SIZE);
            rest = after;
        }
        Ok(())
    }

    /// Completes the store: `state` describes the runs' place in the trees; each operation that `tail` pushes
    /// follows as part of a commit after `seqno`.
    pub fn finish(
        mut self,
        state: &ManifestState,
        seqno: Seqno,
        tail: impl FnOnce(&mut TailWriter) -> Result<()>,
    ) -> Result<()> {
        let data = self.data.take().expect("`begin` created the data file");
        let end_page = state.live_spans().map(|(span, _)| span.end_page()).max().unwrap_or(0);
        data.set_len(end_page * PAGE_BYTES)
            .and_then(|()| data.sync())
            .map_err(|e| Error::io(DATA_FILE, e))?;
        let mut writer = TailWriter::new(&self, seqno);
        tail(&mut writer)?;
        let last_seqno = writer.close()?;
        debug_assert!(last_seqno >= seqno, "the tail follows the runs");
        debug_assert!(
            state.keyspaces.values().all(|keyspace| keyspace.flushed <= seqno),
            "the trees hold nothing after the copied commit"
        );
        let mut state = state.clone();
        state.openings = vec![Opening { incarnation: writer.incarnation, first_segment: 1 }];
        (state.log_segment, state.log_seqno) = (1, seqno);
        state.keyspaces.values_mut().for_each(|keyspace| keyspace.flushed = seqno);
        let manifest = Manifest::create(Arc::clone(&self.env), &self.directory, self.id, &state.as_edit())?;
        manifest.close(last_seqno)?;
        drop(manifest);
        open::check_unfinished(&self.env, &self.directory)?;
        self.sync_names()?;
        let mark = self.directory.join(UNFINISHED_FILE);
        self.env.remove_file(&mark).map_err(|e| directory::io(&mark, e))?;
        self.is_finished = true;
        self.sync_names()
    }
}

impl Drop for NewStore {
    fn drop(&mut self) {
        if self.is_finished || self.lock.is_none() {
            return;
        }
        // If a file cannot be removed, the mark stays and identifies the rest.
        self.data = None;
        let remove = |name: &str| self.env.remove_file(&self.directory.join(name)).is_ok();
        if self.remove_files().is_ok() && remove(UNFINISHED_FILE) && remove(LOCK_FILE) && self.made_directory
        {
            let _ = self.env.remove_dir(&self.directory);
        }
    }
}

/// The error for an invalid page of a live run.
pub fn damaged_page(reference: &RunRef, page: u32, why: &str) -> Error {
    let offset = reference.locate(page).map_or(0, |(physical, _)| physical.saturating_mul(PAGE_BYTES));
    let what = format!("{why} (keyspace {}, run {})", reference.keyspace, reference.id);
    Error::corruption(DATA_FILE, offset, what)
}

/// Writes the tail as ordinary commits to the log of the new store.
#[derive(Debug)]
pub struct TailWriter {
    env: Arc<dyn Env>,
    directory: PathBuf,
    id: StoreId,
    seqno: Seqno,
    incarnation: Incarnation,
    /// `None` until the first write: if there is none, the first opening begins the log.
    wal: Option<Arc<Wal>>,
    payload: Vec<u8>,
    operations: u32,
}

impl TailWriter {
    fn new(store: &NewStore, seqno: Seqno) -> Self {
        let (env, directory) = (Arc::clone(&store.env), store.directory.clone());
        let incarnation = Incarnation(env.random_u64().max(1));
        let (payload, operations) = (Vec::new(), 0);
        Self { env, directory, id: store.id, seqno, incarnation, wal: None, payload, operations }
    }

    /// Appends an operation.
    pub fn push(&mut self, operation: &Operation<'_>) -> Result<()> {
        let start = self.payload.len();
        self.payload.resize(start + operation_bytes(operation), 0);
        encode_operation(&mut self.payload[start..], operation);
        self.operations += 1;
        if self.payload.len() < COMMIT_BYTES {
            return Ok(());
        }
        self.commit()
    }

    fn commit(&mut self) -> Result<()> {
        if self.operations == 0 {
            return Ok(());
        }
        if self.wal.is_none() {
            let start = WalStart {
                next_seqno: Seqno(self.seqno.0 + 1),
                recovered_seqno: self.seqno,
                ..WalStart::new_store(self.incarnation)
            };
            let options = WalOptions { buffer_count: 2, ..WalOptions::new(self.id) };
            // The manifest is written, and states the log as durable, after all of the log is.
            let env = Arc::clone(&self.env);
            self.wal = Some(Wal::create(env, &self.directory, options, start, Arc::new(NoListener))?);
        }
        debug_assert!(!self.payload.is_empty(), "operations have bytes");
        let wal = self.wal.as_ref().expect("just created");
        wal.wait_for_space(self.payload.len())?;
        wal.reserve(self.payload.len(), self.operations)?.fill(|out| out.copy_from_slice(&self.payload));
        self.payload.clear();
        self.operations = 0;
        Ok(())
    }

    /// Makes all commits durable; returns the last seqno.
    fn close(&mut self) -> Result<Seqno> {
        self.commit()?;
        let Some(wal) = &self.wal else { return Ok(self.seqno) };
        let last = wal.last_reserved_seqno();
        debug_assert!(last > self.seqno, "the log begins with the first commit");
        wal.close()?;
        Ok(last)
    }
}
