//! What a tree is given to work with: the data file, run ids, workers, and a place to report progress.

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

/// A piece of work for [`Executor::run_all`].
pub type Task = Box<dyn FnOnce() + Send>;

/// Executes independent tasks in parallel.
pub trait Executor: Send + Sync + fmt::Debug {
    /// Runs all tasks, in any order, several at once; returns when all have ended. A task that panics is
    /// reported by a panic of this call, after the others have ended.
    fn run_all(&self, tasks: Vec<Task>);

    /// How many tasks are done at once, at most.
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

/// Gives out run ids, each once.
#[derive(Debug)]
pub struct RunIds(AtomicU64);

impl RunIds {
    /// The first id to give out.
    pub fn starting_at(id: RunId) -> Self {
        Self(AtomicU64::new(id.0))
    }

    /// A fresh id.
    pub fn take(&self) -> RunId {
        RunId(self.0.fetch_add(1, Relaxed))
    }

    /// The id that would be given out next.
    pub fn next(&self) -> RunId {
        RunId(self.0.load(Relaxed))
    }
}

/// How far a piece of background work has come, in bytes of input, read by the backpressure rule; and which
/// entries ended with it.
#[derive(Debug, Default)]
pub struct Progress {
    total: AtomicU64,
    done: AtomicU64,
    drops: Mutex<MergeDrops>,
}

impl Progress {
    /// States how much there is to do, beside what was stated before.
    pub fn expect(&self, bytes: u64) {
        self.total.fetch_add(bytes, Relaxed);
    }

    /// Reports that this much more is done.
    pub fn advance(&self, bytes: u64) {
        self.done.fetch_add(bytes, Relaxed);
    }

    /// Reports entries that the work found dead, and those that it made of such.
    pub fn record_drops(&self, drops: MergeDrops) {
        *self.drops.lock() += drops;
    }

    /// What was counted by [`Progress::record_drops`] since this was asked last.
    pub fn take_drops(&self) -> DropCounts {
        std::mem::take(&mut self.drops.lock().counts)
    }

    /// The references to values that [`Progress::record_drops`] was told of since this was asked last.
    pub fn take_reference_drops(&self) -> ReferenceDrops {
        std::mem::take(&mut self.drops.lock().references)
    }

    /// Bytes done and bytes in all.
    pub fn state(&self) -> (u64, u64) {
        (self.done.load(Relaxed), self.total.load(Relaxed))
    }
}

/// Tells a piece of work of each entry that a merge drops.
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

/// How high above its bottom a tree writes runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Height {
    /// Nothing older lies below them.
    Bottom,
    /// Right above the bottom: the last but one of the levels, or nodes whose children are leaves.
    Next,
    /// Anywhere above that, or where it is not known.
    Upper,
}

/// The values that references in the entries of a tree lead to.
pub trait OutlyingValues: Send + Sync + fmt::Debug {
    /// The value of `key` that `reference` leads to.
    ///
    /// Errors: `Corruption` if it is not there; `Io`.
    fn read(&self, key: &[u8], reference: &ValueReference) -> Result<Vec<u8>>;
    /// The values of several keys, read together.
    ///
    /// Errors: as [`OutlyingValues::read`]; one of any value is that of all.
    fn read_together(&self, wanted: &[(&[u8], ValueReference)]) -> Result<Vec<Vec<u8>>>;
    /// The reference of an entry whose value comes back to its key where a whole range is written anew.
    ///
    /// Errors: `Corruption` if it cannot be read.
    fn comes_back(&self, entry: &Entry<'_>) -> Result<Option<ValueReference>>;
    /// How many times as large a range of the tree, which has so many bytes, becomes by that; at least 1.
    fn parts_with_values(&self, tree_bytes: u64) -> u64;
    /// About how many bytes of values the work takes outside, which updates do not count.
    fn outlying_bytes(&self) -> u64;
    /// About how many bytes of values lie outside and live, without those that come back by themselves.
    fn staying_bytes(&self) -> u64;
    /// About how many do that come back by themselves.
    fn returning_bytes(&self) -> u64;
    /// Whether levels are sized by pairs, with the values of these.
    fn sizes_levels_by_pairs(&self) -> bool;
    /// Who puts the values of a sequence of runs where they belong. `newest_seqno`: how new the runs are.
    fn placing(&self, newest_seqno: Seqno, height: Height) -> Box<dyn PlaceValues>;
    /// The same for pages that are updated in a run of the bottom: it brings values back, and puts none
    /// outside, so that an update that comes to nothing leaves nothing behind.
    fn placing_in_pages(&self, newest_seqno: Seqno) -> Box<dyn PlaceValues>;
}

/// Puts values where they belong while runs are written, whose entries come in the order of their keys.
pub trait PlaceValues: Send + fmt::Debug {
    /// What is written instead of an entry, if it is not the entry itself: a reference instead of a value, or
    /// a value instead of the reference to it.
    ///
    /// Errors: those of reading and writing values.
    fn place(&mut self, entry: &Entry<'_>) -> Result<Option<(Kind, &[u8])>>;
}

/// What a tree works with.
#[derive(Clone, Debug)]
pub struct Work {
    /// Where runs are written.
    pub data: Arc<DataFile>,
    /// Whose tree it is.
    pub keyspace: KeyspaceId,
    /// Its name, which runs state.
    pub keyspace_name: Arc<str>,
    /// How its operands become values.
    pub full_merge: Arc<FullMerge>,
    /// Where values lie that entries refer to; `None` if none do.
    pub values: Option<Arc<dyn OutlyingValues>>,
    /// Ids for new runs.
    pub run_ids: Arc<RunIds>,
    /// Runs parts of the work in parallel.
    pub executor: Arc<dyn Executor>,
    /// Where to report.
    pub progress: Arc<Progress>,
    /// The keys that are the tree's. It is asked for no others.
    pub keys: KeyBounds,
}

impl Work {
    /// About how many bytes are written where a tree counts so many: values that go outside are work, too.
    pub fn bytes_with_values(&self, counted: u64) -> u64 {
        counted + self.values.as_ref().map_or(0, |values| values.outlying_bytes())
    }

    /// The same for a tree that has these keys.
    #[must_use]
    pub fn within(&self, keys: &KeyBounds) -> Self {
        Self { keys: self.keys.intersection(keys), ..self.clone() }
    }
}
