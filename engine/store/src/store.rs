//! The open store: state shared by all handles and background threads.
//!
//! **Lock order**: stripes, `flush_lock`, `catalogue_lock`, `commit`, `catalogue`, a keyspace's `idle`, then
//! the locks inside log, manifest and data file.
//!
//! **Invariants**
//! - The commit lock is held to assign seqnos, to seal a buffer, to publish a view and to register a
//!   snapshot.
//! - `flush_lock` is held to flush, to install a job, to drop or change a keyspace and to release the log:
//!   one at a time.
//! - `catalogue_lock` is held to create and to drop keyspaces. A creation does not wait for flushes.

use std::{path::PathBuf, sync::OnceLock, time::Duration};

use crossbeam_utils::CachePadded;
use testudo_base::{
    Error, KeyspaceId, Result, Seqno, StoreId,
    chunks::ChunkPool,
    merge_operator::{FullMerge, MergeOperators},
    striped::StripedCount,
    sync::{
        Arc, Mutex, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        is_held,
    },
};
use testudo_contract::{Progress, RunIds, Tree, Work};
use testudo_env::Env;
use testudo_memtable::Memtable;
use testudo_options::{Durability, StoredOptions};
use testudo_records::{KeyspaceRecords, RecordCache};
use testudo_run::KeyBounds;
use testudo_storage::{DataFile, Manifest};
use testudo_wal::Wal;

use crate::{
    background::{
        background_work::BackgroundWork, drop_totals::DropTotals, executor::Executors, idle::IDLE_AFTER,
        stages::Stages,
    },
    begin_writing::Beginning,
    catalogue::Catalogue,
    commits::{backpressure::Backpressure, buffered_keyspaces::BufferedKeyspaces, commit_order::CommitOrder},
    health::Health,
    keyspace::{KeyspaceCore, View, WriteBuffer},
    log::Log,
    memory::{budget::Budget, iterator_memory::IteratorMemory},
    merging::Merging,
    publisher::Publisher,
    snapshots::open_snapshots::Snapshots,
    space::{nearly_full::NearlyFull, space_guard::SpaceGuard},
    values::{long_values::LongValues, value_logs::ValueLogs},
    warm_restart::WarmRestart,
};

/// Steps without a flush after which a keyspace is idle in stepped execution, which has no clock.
const IDLE_STEPS: u32 = 8;

/// Counters of user operations and background work.
#[derive(Debug, Default)]
pub struct Counters {
    pub user_bytes: StripedCount,
    pub user_writes: StripedCount,
    /// Tombstones that iterators have skipped.
    pub tombstones_passed: StripedCount,
    pub flushes: AtomicU64,
    /// Reads and writes until the last flush round.
    pub reads_flushed: AtomicU64,
    pub writes_flushed: AtomicU64,
    pub jobs: AtomicU64,
    pub jobs_overtaken: AtomicU64,
    /// Totals of all keyspaces, including dropped ones.
    pub drops: DropTotals,
    pub stages: Stages,
}

/// State of an open store.
#[derive(Debug)]
pub struct Store {
    pub env: Arc<dyn Env>,
    pub directory: PathBuf,
    pub id: StoreId,
    pub memory: Budget,
    pub default_durability: Durability,
    pub merging: Merging,
    pub manifest: Arc<Manifest>,
    /// The first edit of this opening.
    pub beginning: Arc<Beginning>,
    pub data: Arc<DataFile>,
    pub log: Log,
    pub run_ids: Arc<RunIds>,
    pub arena_pool: Arc<ChunkPool>,
    pub records: Arc<RecordCache>,
    pub background: BackgroundWork,
    pub space: SpaceGuard,
    pub nearly_full: NearlyFull,
    pub commits: CommitOrder,
    pub flush_lock: Mutex<()>,
    pub catalogue_lock: Mutex<()>,
    pub value_logs: Arc<ValueLogs>,
    /// Whether a tree with separated values was seen since the opening.
    pub has_separated_values: AtomicBool,
    pub catalogue: RwLock<Catalogue>,
    /// Keyspaces of the catalogue with entries in write buffers.
    pub buffered: BufferedKeyspaces,
    /// Settings of the keyspace that was opened last, shared with the next one if equal.
    last_options: Mutex<Arc<StoredOptions>>,
    pub long_values: LongValues,
    pub snapshots: Snapshots,
    pub iterators: IteratorMemory,
    pub backpressure: Backpressure,
    /// Bytes of the gaps of all keyspaces.
    pub gap_bytes: Arc<AtomicU64>,
    pub counters: CachePadded<Counters>,
    pub health: Health,
    /// State of the status file that other processes read.
    pub publisher: Publisher,
    pub warm: WarmRestart,
}

/// Inputs of [`Store::new`], made by opening.
pub struct StoreParts {
    pub env: Arc<dyn Env>,
    pub directory: PathBuf,
    pub memory: Budget,
    pub default_durability: Durability,
    pub merge_operators: MergeOperators,
    pub manifest: Arc<Manifest>,
    pub data: Arc<DataFile>,
    pub run_ids: Arc<RunIds>,
    pub arena_pool: Arc<ChunkPool>,
    pub executors: Executors,
    pub is_stepped: bool,
    pub space: SpaceGuard,
    pub warm_restart: bool,
    pub record_cache: bool,
}

impl Store {
    pub fn new(parts: StoreParts) -> Self {
        debug_assert_eq!(parts.manifest.store(), parts.data.store(), "manifest and data are of one store");
        let records = if parts.record_cache {
            RecordCache::new(&parts.arena_pool, parts.memory.total())
        } else {
            RecordCache::without_records(&parts.arena_pool)
        };
        parts.data.borrow_cache_from(&parts.arena_pool);
        parts.data.set_record_bytes_max(records.record_bytes_max());
        let merging = Merging::new(parts.merge_operators, parts.memory.max_value_bytes());
        let beginning = Arc::new(Beginning::new(
            Arc::clone(&parts.env),
            parts.directory.clone(),
            Arc::clone(&parts.manifest),
            Arc::clone(&parts.data),
            Arc::clone(&parts.run_ids),
        ));
        Self {
            id: parts.manifest.store(),
            health: Health::new(parts.env.process()),
            env: parts.env,
            directory: parts.directory,
            backpressure: Backpressure::new(parts.memory.shares().write_buffers),
            memory: parts.memory,
            default_durability: parts.default_durability,
            merging,
            manifest: parts.manifest,
            beginning,
            value_logs: ValueLogs::new(&parts.data),
            has_separated_values: false.into(),
            data: parts.data,
            log: Log::default(),
            run_ids: parts.run_ids,
            records,
            arena_pool: parts.arena_pool,
            background: BackgroundWork::new(parts.executors, parts.is_stepped),
            space: parts.space,
            nearly_full: NearlyFull::default(),
            commits: CommitOrder::default(),
            flush_lock: Mutex::new(()),
            catalogue_lock: Mutex::new(()),
            last_options: Mutex::default(),
            catalogue: RwLock::default(),
            buffered: BufferedKeyspaces::default(),
            long_values: LongValues::default(),
            snapshots: Snapshots::default(),
            iterators: IteratorMemory::default(),
            gap_bytes: Arc::default(),
            counters: CachePadded::default(),
            publisher: Publisher::default(),
            warm: WarmRestart::new(parts.warm_restart),
        }
    }

    /// Creates an empty memtable that merges operands with `full_merge`.
    pub fn new_table(&self, full_merge: &Arc<FullMerge>) -> Memtable {
        Memtable::with_full_merge(Arc::clone(&self.arena_pool), Arc::clone(full_merge))
    }

    /// The full merge of a keyspace with this name and these options.
    pub fn full_merge(&self, keyspace: &Arc<str>, options: &StoredOptions) -> Arc<FullMerge> {
        self.merging.full_merge(keyspace, options)
    }

    /// Creates the cached records of a keyspace that was just opened or created.
    pub fn new_records(&self, keyspace: KeyspaceId) -> KeyspaceRecords {
        KeyspaceRecords::new(&self.records, keyspace)
    }

    /// The WAL.
    ///
    /// Errors: `Unsupported` in a store that is open for reading only.
    pub fn wal(&self) -> Result<&Arc<Wal>> {
        self.log.wal()
    }

    /// The last seqno that was assigned.
    pub fn last_seqno(&self) -> Seqno {
        self.log.last_seqno()
    }

    /// The context in which a tree of `keyspace` works.
    pub fn work(&self, keyspace: &KeyspaceCore, progress: Arc<Progress>) -> Work {
        Work {
            data: Arc::clone(&self.data),
            keyspace: keyspace.id,
            keyspace_name: Arc::clone(&keyspace.name),
            full_merge: Arc::clone(&keyspace.full_merge),
            values: None,
            run_ids: Arc::clone(&self.run_ids),
            executor: Arc::clone(&self.background.executor),
            progress,
            keys: KeyBounds::default(),
        }
    }

    /// The context in which a tree of `keyspace` runs a job.
    pub fn job_work(&self, keyspace: &KeyspaceCore, progress: &Arc<Progress>) -> Work {
        let executor = Arc::clone(&self.background.job_executor);
        Work { executor, ..self.work(keyspace, Arc::clone(progress)) }
    }

    /// A keyspace that was just opened or created, without write buffers.
    pub fn new_keyspace(
        &self,
        id: KeyspaceId,
        name: &str,
        options: StoredOptions,
        tree: Arc<dyn Tree>,
    ) -> Arc<KeyspaceCore> {
        let name: Arc<str> = Arc::from(name);
        let full_merge = self.full_merge(&name, &options);
        let table = self.new_table(&full_merge);
        let view = View {
            active: WriteBuffer::new(table, options.placement_in_force(), None),
            sealed: Vec::new(),
            tree,
            records: self.new_records(id),
            full_merge,
            options: self.shared_options(options),
            held: OnceLock::new(),
        };
        KeyspaceCore::new(id, name, view, self.background_time())
    }

    /// These settings, in memory that a keyspace before may have, too.
    pub fn shared_options(&self, options: StoredOptions) -> Arc<StoredOptions> {
        let mut last = self.last_options.lock();
        if **last != options {
            *last = Arc::new(options);
        }
        Arc::clone(&last)
    }

    /// All keyspaces.
    pub fn keyspaces(&self) -> Vec<Arc<KeyspaceCore>> {
        self.catalogue.read().by_id.values().cloned().collect()
    }

    /// Whether `flush_lock` is held, for assertions.
    pub fn is_flush_locked(&self) -> bool {
        is_held(&self.flush_lock)
    }

    /// Whether this process is a child forked from the one that opened the store.
    #[inline]
    pub fn is_forked(&self) -> bool {
        self.health.is_forked()
    }

    /// Fails if the store was closed: its pages may belong to the next opening.
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        self.health.check_open()
    }

    /// Runs a read of a user. A read that fails while the store is being closed reports `Closed`: it may have
    /// seen pages of another writer.
    ///
    /// Errors: `Closed`, and those of `read`.
    #[inline]
    pub fn read<R>(&self, read: impl FnOnce() -> Result<R>) -> Result<R> {
        self.check_open()?;
        read().map_err(|error| self.closed_or(error))
    }

    /// Same for a read of the keyspace of this name; damage errors name it.
    pub fn read_of<R>(&self, keyspace: &str, read: impl FnOnce() -> Result<R>) -> Result<R> {
        self.read(read).map_err(|error| error.in_keyspace(keyspace))
    }

    /// Same for a read whose result may report damage: fails if the store was closed while it ran.
    pub fn read_throughout<R>(&self, read: impl FnOnce() -> Result<R>) -> Result<R> {
        let answer = self.read(read)?;
        self.check_open()?;
        Ok(answer)
    }

    /// Returns `Closed` if the store is closed, else `error`.
    #[cold]
    pub fn closed_or(&self, error: Error) -> Error {
        self.health.closed_or(error)
    }

    /// Fails if the store no longer accepts writes.
    #[inline]
    pub fn check_writable(&self) -> Result<()> {
        self.health.check_writable()
    }

    /// Stops all further writes; the first failure is kept. A transient error does not stop writes: the
    /// failed operation had no effect and is retried.
    pub fn poison(&self, error: &Error) {
        if error.is_transient() {
            return;
        }
        self.health.fail(error);
        self.backpressure.flush_ended(&*self.env);
        self.background.wake_all();
    }

    pub fn has_failed(&self) -> bool {
        self.health.has_failed()
    }

    /// Limit on the bytes that a job reads, and on those that it writes, by the pace of the device and its
    /// free space.
    pub fn job_bytes_max(&self) -> u64 {
        self.background.limits.job_bytes_max().min(self.nearly_full.job_bytes_max())
    }

    /// The clock by which keyspaces become idle. In stepped execution it advances with each step.
    pub fn background_time(&self) -> Duration {
        if self.background.is_stepped {
            IDLE_AFTER / IDLE_STEPS * self.background.steps.load(Relaxed)
        } else {
            self.env.monotonic()
        }
    }
}
