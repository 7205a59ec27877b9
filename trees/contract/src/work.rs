//! The resources that a tree works with: the data file, run ids, workers, and a progress report.

use std::fmt;

use testudo_base::{
    DropCounts, DropSink, Entry, KeyspaceId, Kind, MergeDrops, ReferenceDrops, Result, RunId, Seqno,
    ValueReference,
    merge_operator::FullMerge,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use testudo_run::KeyBounds;
use testudo_storage::DataFile;

/// A task for [`Executor::run_all`].
pub type Task = Box<dyn FnOnce() + Send>;

/// Executes independent tasks in parallel.
pub trait Executor: Send + Sync + fmt::Debug {
    /// Runs all tasks, in any order, several at once; returns when all have ended. If a task panics, this
    /// call panics after the others have ended.
    fn run_all(&self, tasks: Vec<Task>);

    /// Maximum number of concurrent tasks.
    fn workers(&self) -> usize {
        1
    }
}

/// Runs tasks one after the other on the calling thread.
#[derive(Debug)]
pub struct InlineExecutor;

impl Executor for InlineExecutor {
    fn run_all(&self, tasks: Vec<Task>) {
        for task in tasks {
            task();
        }
    }
}

/// Allocator of run ids; each is returned once.
#[derive(Debug)]
pub struct RunIds(AtomicU64);

impl RunIds {
    /// Creates an allocator whose first id is `id`.
    pub fn starting_at(id: RunId) -> Self {
        Self(AtomicU64::new(id.0))
    }

    /// Allocates an id.
    pub fn take(&self) -> RunId {
        RunId(self.0.fetch_add(1, Relaxed))
    }

    /// Returns the next id without allocating it.
    pub fn next(&self) -> RunId {
        RunId(self.0.load(Relaxed))
    }
}

/// Progress of a unit of background work in bytes of input, which back-pressure reads, and the entries it
/// dropped.
#[derive(Debug, Default)]
pub struct Progress {
    total: AtomicU64,
    done: AtomicU64,
    drops: Mutex<MergeDrops>,
}

impl Progress {
    /// Adds `bytes` to the expected work.
    pub fn expect(&self, bytes: u64) {
        self.total.fetch_add(bytes, Relaxed);
    }

    /// Adds `bytes` to the completed work.
    pub fn advance(&self, bytes: u64) {
        self.done.fetch_add(bytes, Relaxed);
    }

    /// Records entries that the work dropped, and those that it made of them.
    pub fn record_drops(&self, drops: MergeDrops) {
        *self.drops.lock() += drops;
    }

    /// Takes the counts of [`Progress::record_drops`] since the last call.
    pub fn take_drops(&self) -> DropCounts {
        std::mem::take(&mut self.drops.lock().counts)
    }

    /// Takes the dropped value references of [`Progress::record_drops`] since the last call.
    pub fn take_reference_drops(&self) -> ReferenceDrops {
        std::mem::take(&mut self.drops.lock().references)
    }

    /// Returns completed and total bytes.
    pub fn state(&self) -> (u64, u64) {
        (self.done.load(Relaxed), self.total.load(Relaxed))
    }
}

/// Records each entry that a merge drops in a [`Progress`].
#[derive(Clone, Debug)]
pub struct RecordedDrops(pub Arc<Progress>);

impl DropSink for RecordedDrops {
    fn dropped(&mut self, entry: &Entry<'_>) {
        self.0.drops.lock().dropped(entry);
    }

    fn made(&mut self, entry: &Entry<'_>) {
        self.0.drops.lock().made(entry);
    }
}

/// Height above the bottom at which a tree writes runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Height {
    /// Nothing older is below them.
    Bottom,
    /// Directly above the bottom: the second-lowest level, or nodes whose children are leaves.
    Next,
    /// Anywhere above that, or unknown.
    Upper,
}

/// The separated values, to which references in a tree's entries point.
pub trait SeparatedValues: Send + Sync + fmt::Debug {
    /// Reads the value of `key` at `reference`.
    ///
    /// Errors: `Corruption` if it is not there; `Io`.
    fn read(&self, key: &[u8], reference: &ValueReference) -> Result<Vec<u8>>;
    /// Reads the values of several keys in one batch.
    ///
    /// Errors: as [`SeparatedValues::read`]; an error of one value fails all.
    fn read_together(&self, wanted: &[(&[u8], ValueReference)]) -> Result<Vec<Vec<u8>>>;
    /// Returns the reference of an entry whose value moves back to its key when a whole range is rewritten.
    ///
    /// Errors: `Corruption` if it cannot be read.
    fn comes_back(&self, entry: &Entry<'_>) -> Result<Option<ValueReference>>;
    /// Factor, at least 1, by which a range of the tree with `tree_bytes` grows when values move back to it.
    fn parts_with_values(&self, tree_bytes: u64) -> u64;
    /// Approximate bytes of values that the work separates, which updates do not count.
    fn separated_bytes(&self) -> u64;
    /// Approximate bytes of live separated values, except those in transient segments.
    fn permanent_bytes(&self) -> u64;
    /// Approximate bytes of live values that move back by themselves.
    fn returning_bytes(&self) -> u64;
    /// Whether levels are sized by whole pairs, values included.
    fn sizes_levels_by_pairs(&self) -> bool;
    /// Returns the placement policy for a sequence of runs. `newest_seqno`: newest seqno of the runs.
    fn placing(&self, newest_seqno: Seqno, height: Height) -> Box<dyn PlaceValues>;
    /// Like [`SeparatedValues::placing`], for pages updated in a run of the bottom. It moves values back and
    /// separates none, so that an abandoned update leaves no garbage.
    fn placing_in_pages(&self, newest_seqno: Seqno) -> Box<dyn PlaceValues>;
}

/// Places values with their keys, or separates them, in key order.
pub trait PlaceValues: Send + fmt::Debug {
    /// Returns the replacement of an entry, if it is not written as it is: a reference instead of a value, or
    /// the value instead of a reference.
    ///
    /// Errors: those of reading and writing values.
    fn place(&mut self, entry: &Entry<'_>) -> Result<Option<(Kind, &[u8])>>;
}

/// Resources and settings of a tree's work.
#[derive(Clone, Debug)]
pub struct Work {
    /// Data file for new runs.
    pub data: Arc<DataFile>,
    /// Id of the tree's keyspace.
    pub keyspace: KeyspaceId,
    /// Name of the keyspace, stored in runs.
    pub keyspace_name: Arc<str>,
    /// Full merge of its operands.
    pub full_merge: Arc<FullMerge>,
    /// Separated values; `None` if there are none.
    pub values: Option<Arc<dyn SeparatedValues>>,
    /// Ids for new runs.
    pub run_ids: Arc<RunIds>,
    /// Runs parts of the work in parallel.
    pub executor: Arc<dyn Executor>,
    /// Progress report of the work.
    pub progress: Arc<Progress>,
    /// The tree's range of keys. It is queried for no others.
    pub keys: KeyBounds,
}

impl Work {
    /// Approximate bytes written for `counted` bytes of a tree, including values that it separates.
    pub fn bytes_with_values(&self, counted: u64) -> u64 {
        counted + self.values.as_ref().map_or(0, |values| values.separated_bytes())
    }

    /// Returns the same for a tree with these keys.
    #[must_use]
    pub fn within(&self, keys: &KeyBounds) -> Self {
        Self { keys: self.keys.intersection(keys), ..self.clone() }
    }
}
