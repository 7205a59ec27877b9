//! The open store: what all handles and background threads share.
//!
//! **Lock order**: stripes, `flush_lock`, `commit`, `catalogue`, a keyspace's `idle`, then the locks inside
//! log, manifest and data file.
//!
//! **Invariants**
//! - The commit lock is held to assign seqnos, to seal a buffer, to publish a view and to register a
//!   snapshot.
//! - `flush_lock` is held by whoever flushes, runs a job, or changes the catalogue: one at a time.

pub(crate) mod budget;
pub(crate) mod executor;
pub(crate) mod held_space;
pub(crate) mod in_flight;
pub(crate) mod shares;
pub(crate) mod snapshot_views;
pub(crate) mod stripes;
pub(crate) mod view;

use std::{collections::BTreeMap, path::PathBuf};

use crossbeam_utils::CachePadded;
use testudo_base::{
    Error, ErrorKind, KeyspaceId, Result, Seqno, StoreId,
    chunks::ChunkPool,
    merge_operator::{Folding, MergeOperators},
    oversized_keys::OversizedKeys,
    planted,
    sync::{
        Arc, Condvar, Mutex, RwLock,
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};
use testudo_contract::{Executor, Progress, RunIds, Work};
use testudo_env::Env;
use testudo_memtable::Memtable;
use testudo_records::{KeyspaceRecords, RecordCache};
use testudo_storage::{DataFile, Manifest};
use testudo_wal::Wal;

use crate::{
    flush::stages::Stages,
    handles::options::{Durability, KeyspaceOptions},
    status::publisher::Publisher,
    store::{
        budget::Budget, held_space::NearlyFull, in_flight::InFlight, snapshot_views::Holdings,
        stripes::Stripes, view::KeyspaceCore,
    },
    write::{backpressure::Backpressure, space_guard::SpaceGuard},
};

/// The keyspaces by name and by id.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    pub(crate) by_name: BTreeMap<String, Arc<KeyspaceCore>>,
    pub(crate) by_id: BTreeMap<KeyspaceId, Arc<KeyspaceCore>>,
}

/// Live snapshots: how many at each seqno.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    pub(crate) live: Mutex<BTreeMap<Seqno, usize>>,
    newest: AtomicU64,
}

impl Snapshots {
    /// The newest live snapshot. Exact under the commit lock.
    pub(crate) fn newest(&self) -> Option<Seqno> {
        Some(Seqno(self.newest.load(Acquire))).filter(|seqno| seqno.0 > 0)
    }

    /// Registers a snapshot. REQUIRES: the commit lock is held.
    pub(crate) fn register(&self, seqno: Seqno) {
        let mut live = self.live.lock();
        *live.entry(seqno).or_default() += 1;
        self.newest.store(live.last_key_value().map_or(0, |(seqno, _)| seqno.0), Release);
    }

    pub(crate) fn release(&self, seqno: Seqno) {
        let mut live = self.live.lock();
        if let Some(count) = live.get_mut(&seqno) {
            *count -= 1;
            if *count == 0 {
                live.remove(&seqno);
            }
        }
        self.newest.store(live.last_key_value().map_or(0, |(seqno, _)| seqno.0), Release);
    }
}

/// Counts of what users and the background did.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) user_bytes: AtomicU64,
    pub(crate) user_writes: AtomicU64,
    pub(crate) flushes: AtomicU64,
    /// Reads and writes until the last round of flushing.
    pub(crate) reads_flushed: AtomicU64,
    pub(crate) writes_flushed: AtomicU64,
    pub(crate) jobs: AtomicU64,
    pub(crate) stages: Stages,
}

/// Wakes the background threads.
#[derive(Debug, Default)]
pub(crate) struct Wakeup {
    pub(crate) is_woken: Mutex<bool>,
    pub(crate) changed: Condvar,
}

impl Wakeup {
    pub(crate) fn wake(&self) {
        *self.is_woken.lock() = true;
        self.changed.notify_all();
    }
}

/// Everything that an open store consists of.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) env: Arc<dyn Env>,
    pub(crate) directory: PathBuf,
    pub(crate) id: StoreId,
    pub(crate) memory: Budget,
    pub(crate) default_durability: Durability,
    pub(crate) merge_operators: MergeOperators,
    /// Keys whose next operand is to be checked by reading.
    pub(crate) oversized_keys: Arc<OversizedKeys>,
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) data: Arc<DataFile>,
    /// `None` in a store that is open for reading only.
    pub(crate) wal: Option<Arc<Wal>>,
    /// How far recovery has come; what a read-only store shows.
    pub(crate) recovered_seqno: AtomicU64,
    pub(crate) run_ids: Arc<RunIds>,
    pub(crate) arena_pool: Arc<ChunkPool>,
    pub(crate) records: Arc<RecordCache>,
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) is_stepped: bool,
    /// Steps so far, in stepped execution.
    pub(crate) steps: AtomicU32,
    pub(crate) space: SpaceGuard,
    pub(crate) nearly_full: NearlyFull,
    /// On lines of its own, as what every commit changes.
    pub(crate) commit: CachePadded<Mutex<()>>,
    pub(crate) flush_lock: Mutex<()>,
    pub(crate) stripes: Stripes,
    pub(crate) in_flight: InFlight,
    pub(crate) catalogue: RwLock<Catalogue>,
    pub(crate) snapshots: Snapshots,
    pub(crate) holdings: Holdings,
    pub(crate) backpressure: Backpressure,
    pub(crate) counters: CachePadded<Counters>,
    pub(crate) wakeup: Wakeup,
    pub(crate) is_closing: AtomicBool,
    /// What other processes are told.
    pub(crate) publisher: Publisher,
    has_failed: AtomicBool,
    failure: Mutex<Option<Error>>,
    /// Why flushing cannot go on for now.
    stall: Mutex<Option<Error>>,
}

/// What opening hands over to make a store.
pub(crate) struct StoreParts {
    pub(crate) env: Arc<dyn Env>,
    pub(crate) directory: PathBuf,
    pub(crate) memory: Budget,
    pub(crate) default_durability: Durability,
    pub(crate) merge_operators: MergeOperators,
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) data: Arc<DataFile>,
    pub(crate) run_ids: Arc<RunIds>,
    pub(crate) arena_pool: Arc<ChunkPool>,
    pub(crate) executor: Arc<dyn Executor>,
    pub(crate) is_stepped: bool,
    pub(crate) space: SpaceGuard,
}

impl Store {
    pub(crate) fn new(parts: StoreParts) -> Self {
        let records = RecordCache::new(&parts.arena_pool, parts.memory.total());
        let oversized_keys = Arc::new(OversizedKeys::default());
        oversized_keys.set_value_bytes_max(parts.memory.max_value_bytes());
        Self {
            id: parts.manifest.store(),
            env: parts.env,
            directory: parts.directory,
            backpressure: Backpressure::new(parts.memory.shares().write_buffers),
            memory: parts.memory,
            default_durability: parts.default_durability,
            merge_operators: parts.merge_operators,
            oversized_keys,
            manifest: parts.manifest,
            data: parts.data,
            wal: None,
            recovered_seqno: 0.into(),
            run_ids: parts.run_ids,
            records,
            arena_pool: parts.arena_pool,
            executor: parts.executor,
            is_stepped: parts.is_stepped,
            steps: 0.into(),
            space: parts.space,
            nearly_full: NearlyFull::default(),
            commit: CachePadded::new(Mutex::new(())),
            flush_lock: Mutex::new(()),
            stripes: Stripes::new(),
            in_flight: InFlight::new(),
            catalogue: RwLock::default(),
            snapshots: Snapshots::default(),
            holdings: Holdings::default(),
            counters: CachePadded::default(),
            wakeup: Wakeup::default(),
            is_closing: false.into(),
            publisher: Publisher::default(),
            has_failed: false.into(),
            failure: Mutex::new(None),
            stall: Mutex::new(None),
        }
    }

    /// An empty memtable for a keyspace that folds operands like this.
    pub(crate) fn new_table(&self, folding: &Arc<Folding>) -> Memtable {
        Memtable::with_folding(Arc::clone(&self.arena_pool), Arc::clone(folding))
    }

    /// How a keyspace of this name with these options folds operands.
    pub(crate) fn folding(&self, keyspace: &str, options: &KeyspaceOptions) -> Arc<Folding> {
        let name = options.merge_operator_name();
        self.merge_operators.folding_of_store(keyspace, name, &self.oversized_keys)
    }

    /// The cached records of a keyspace that was just opened or created.
    pub(crate) fn new_records(&self, keyspace: KeyspaceId) -> KeyspaceRecords {
        KeyspaceRecords::new(&self.records, keyspace)
    }

    /// The log. `Unsupported` in a store that is open for reading only.
    pub(crate) fn wal(&self) -> Result<&Arc<Wal>> {
        self.wal
            .as_ref()
            .ok_or_else(|| Error::new(ErrorKind::Unsupported, "the store is open for reading only"))
    }

    /// The last seqno that was assigned.
    pub(crate) fn last_seqno(&self) -> Seqno {
        let recovered = || Seqno(self.recovered_seqno.load(Relaxed));
        self.wal.as_ref().map_or_else(recovered, |wal| wal.last_reserved_seqno())
    }

    /// What a tree works with.
    pub(crate) fn work(&self, keyspace: &KeyspaceCore, progress: Arc<Progress>) -> Work {
        Work {
            data: Arc::clone(&self.data),
            keyspace: keyspace.id,
            keyspace_name: Arc::clone(&keyspace.name),
            folding: Arc::clone(&keyspace.folding),
            run_ids: Arc::clone(&self.run_ids),
            executor: Arc::clone(&self.executor),
            progress,
        }
    }

    /// All keyspaces.
    pub(crate) fn keyspaces(&self) -> Vec<Arc<KeyspaceCore>> {
        self.catalogue.read().by_id.values().cloned().collect()
    }

    /// Fails if the store was closed: its pages may belong to whoever opened it next.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_closing.load(Relaxed) && !planted!("closed-store-still-read") {
            return Err(closed());
        }
        Ok(())
    }

    /// Runs a read of a user. One that fails while the store is being closed says only that: what it came
    /// across may be another writer's.
    ///
    /// Errors: `Closed`, and those of `read`.
    #[inline]
    pub(crate) fn read<R>(&self, read: impl FnOnce() -> Result<R>) -> Result<R> {
        self.check_open()?;
        read().map_err(|error| self.closed_or(error))
    }

    /// The same for a read whose answer may tell of damage: it is none if the store was closed meanwhile.
    pub(crate) fn read_throughout<R>(&self, read: impl FnOnce() -> Result<R>) -> Result<R> {
        let answer = self.read(read)?;
        self.check_open()?;
        Ok(answer)
    }

    /// `Closed` if the store is, else `error`.
    #[cold]
    pub(crate) fn closed_or(&self, error: Error) -> Error {
        // The lock is released after the flag was set: who sees pages of the next writer sees the flag.
        if self.is_closing.load(Acquire) { closed() } else { error }
    }

    /// Fails if the store must not be written to any more.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.has_failed.load(Relaxed) || self.is_closing.load(Relaxed) {
            return Err(self.why_not_writable());
        }
        Ok(())
    }

    fn why_not_writable(&self) -> Error {
        if let Some(failure) = &*self.failure.lock() {
            let message = format!("writes stopped after a failure in the background: {failure}");
            return Error::new(ErrorKind::Poisoned, message);
        }
        closed()
    }

    /// Stops all further writes; the first failure is kept.
    pub(crate) fn poison(&self, error: &Error) {
        self.failure.lock().get_or_insert_with(|| error.clone());
        self.has_failed.store(true, Release);
        self.backpressure.flush_ended(&*self.env);
        self.wakeup.wake();
    }

    pub(crate) fn set_stall(&self, stall: Option<Error>) {
        *self.stall.lock() = stall;
    }

    /// Fails with the reason if flushing cannot go on for now.
    pub(crate) fn check_not_stalled(&self) -> Result<()> {
        self.stall.lock().clone().map_or(Ok(()), Err)
    }

    /// Makes everything follow the budget.
    pub(crate) fn rebalance_memory(&self) {
        let _rebalancing = self.memory.rebalancing();
        let shares = self.memory.shares();
        self.oversized_keys.set_value_bytes_max(self.memory.max_value_bytes());
        self.arena_pool.set_limit(shares.chunks());
        self.data.set_cache_bytes(shares.page_cache());
        self.bound_buffers();
        self.wakeup.wake();
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Acquire)
    }
}

#[cold]
fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the store is closed")
}
