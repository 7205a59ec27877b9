//! Statistics of a store and of a keyspace, as plain data.
//!
//! **Invariants**
//! - A statistic is declared once, as a field of a group: type, unit, documentation and published name.

mod metric;
mod of_keyspace;
mod of_store;

use testudo_store::{Store, background::drop_totals::Dropped, keyspace::KeyspaceCore};

pub(crate) use self::metric::{Description, Stat, StatGroup};
use self::metric::{stat_group, stat_groups};
pub use self::{
    metric::{Metric, MetricUnit, MetricValue},
    of_keyspace::{KeyspaceTreeStats, MemtableStats, MovingStats, ValueStats},
    of_store::{
        FlushStats, IoStats, JobStats, LogStats, MemoryStats, PageCacheStats, RecordCacheStats, RestoreStats,
        ScanStats, SpaceStats, StallStats, StateStats, WriteMemoryStats, WriteStats,
    },
};

stat_groups! {
    /// Statistics of a store. Counters start at zero when it is opened; sizes are current, in bytes.
    pub struct DbStats {
        /// Writes of users.
        pub writes: WriteStats,
        /// Log and sequence numbers.
        pub log: LogStats,
        /// Input and output of the device.
        pub io: IoStats,
        /// Iterators.
        pub scans: ScanStats,
        /// Page cache.
        pub page_cache: PageCacheStats,
        /// Record cache.
        pub record_cache: RecordCacheStats,
        /// Warm restart.
        pub restore: RestoreStats,
        /// Use of memory.
        pub memory: MemoryStats,
        /// Write buffers' share of the memory budget, and its governor.
        pub write_memory: WriteMemoryStats,
        /// Space on the device.
        pub space: SpaceStats,
        /// Flushes.
        pub flush: FlushStats,
        /// Entries that writes, flushes and jobs dropped.
        pub merges: MergeStats,
        /// Background jobs of trees.
        pub jobs: JobStats,
        /// Backpressure on writers.
        pub stalls: StallStats,
        /// Keyspaces and snapshots.
        pub state: StateStats,
    }
}

impl DbStats {
    /// Returns all statistics with their published names, group by group.
    pub fn metrics(&self) -> Vec<Metric<'_>> {
        StatGroup::metrics(self)
    }

    pub(crate) fn of(store: &Store) -> Self {
        Self {
            writes: WriteStats::of(store),
            log: LogStats::of(store),
            io: IoStats::of(store),
            scans: ScanStats::of(store),
            page_cache: PageCacheStats::of(store),
            record_cache: RecordCacheStats::of(store),
            restore: RestoreStats::of(store),
            memory: MemoryStats::of(store),
            write_memory: WriteMemoryStats::of(store),
            space: SpaceStats::of(store),
            flush: FlushStats::of(store),
            merges: MergeStats::of(&store.counters.drops.get()),
            jobs: JobStats::of(store),
            stalls: StallStats::of(store),
            state: StateStats::of(store),
        }
    }
}

stat_groups! {
    /// Statistics of one keyspace, in bytes unless stated otherwise.
    pub struct KeyspaceStats {
        /// Its tree.
        pub tree: KeyspaceTreeStats,
        /// Progress of a change of tree.
        pub moving: MovingStats,
        /// Values outside the tree's runs.
        pub values: ValueStats,
        /// Write buffers.
        pub memtables: MemtableStats,
        /// Entries that writes, flushes and jobs dropped.
        pub merges: MergeStats,
    }
}

impl KeyspaceStats {
    /// Returns all statistics with their published names, group by group.
    pub fn metrics(&self) -> Vec<Metric<'_>> {
        StatGroup::metrics(self)
    }

    pub(crate) fn of(store: &Store, core: &KeyspaceCore) -> Self {
        let view = core.view.load();
        let tree = view.tree.stats();
        Self {
            tree: KeyspaceTreeStats::of(store, core, &view, &tree),
            moving: MovingStats::of(&view, &tree),
            values: ValueStats::of(&view, &tree),
            memtables: MemtableStats::of(core, &view),
            merges: MergeStats::of(&core.drops.get()),
        }
    }
}

stat_group! {
    /// Entries that never reached a tree or were dropped by merges, of a store or a keyspace.
    #[group("merges")]
    pub struct MergeStats {
        /// Writes that never reached a tree: newer writes replaced them in the write buffer, or they were
        /// folded into another entry. Updated when the buffer is flushed; a count.
        #[metric("dropped_before_flush_entries", Count)]
        pub dropped_before_flush_entries: u64,
        /// Bytes of keys and values of `dropped_before_flush_entries`.
        #[metric("dropped_before_flush_bytes", Bytes)]
        pub dropped_before_flush_bytes: u64,
        /// Entries that merges of flushes and jobs dropped: shadowed entries, tombstones with nothing below
        /// them, operands and the entries they change; a count.
        #[metric("dropped_in_merges_entries", Count)]
        pub dropped_entries: u64,
        /// Bytes of keys and values of `dropped_entries`.
        #[metric("dropped_in_merges_bytes", Bytes)]
        pub dropped_bytes: u64,
        /// Entries made from operands and the entries they change, which themselves count as dropped; a
        /// count. Each flushed write and each of these is either in the tree or counted as dropped.
        #[metric("folded_entries", Count)]
        pub folded_entries: u64,
        /// Bytes of keys and values of `folded_entries`.
        #[metric("folded_bytes", Bytes)]
        pub folded_bytes: u64,
    }
}

impl MergeStats {
    fn of(dropped: &Dropped) -> Self {
        let Dropped { in_buffers, in_merges } = dropped;
        Self {
            dropped_before_flush_entries: in_buffers.dropped_entries,
            dropped_before_flush_bytes: in_buffers.dropped_bytes,
            dropped_entries: in_merges.dropped_entries,
            dropped_bytes: in_merges.dropped_bytes,
            folded_entries: in_buffers.made_entries + in_merges.made_entries,
            folded_bytes: in_buffers.made_bytes + in_merges.made_bytes,
        }
    }
}

#[cfg(test)]
mod tests;
