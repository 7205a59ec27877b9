//! Groups of [`KeyspaceStats`](super::KeyspaceStats), each with the function that fills it.

use testudo_base::{num::u64_of, sync::atomic::Ordering::Relaxed};
use testudo_contract::TreeStats;
use testudo_flush::govern::moving_price::price_of_moving;
use testudo_options::families::is_of_family;
use testudo_store::{
    Store,
    keyspace::{KeyspaceCore, View},
};
use testudo_values::LargeValues;

use super::metric::{Description, MetricUnit, Stat, StatGroup, stat_group};

stat_group! {
    /// Tree of a keyspace.
    #[group("tree")]
    pub struct KeyspaceTreeStats {
        /// Name of its tree; while it moves, of the tree it moves to.
        #[metric("tree", Text)]
        pub name: String,
        /// Levels of nodes above the leaves; a count.
        #[metric("height", Count)]
        pub height: u64,
        /// Nodes; a count.
        #[metric("nodes", Count)]
        pub nodes: u64,
        /// Non-empty leaves; a count.
        #[metric("leaves", Count)]
        pub leaves: u64,
        /// Runs in node buffers; a count.
        #[metric("buffered_runs", Count)]
        pub buffered_runs: u64,
        /// Bytes of entries waiting in node buffers.
        #[metric("buffered_bytes", Bytes)]
        pub buffered_bytes: u64,
        /// Bytes of entries in leaves.
        #[metric("leaf_bytes", Bytes)]
        pub leaf_bytes: u64,
        /// Entries stored, shadowed ones included; a count.
        #[metric("entries", Count)]
        pub entries: u64,
        /// Tombstones stored; a count.
        #[metric("tombstones", Count)]
        pub tombstones: u64,
        /// Bytes of runs in the data file, including those of value segments.
        #[metric("stored_bytes", Bytes)]
        pub stored_bytes: u64,
        /// Part of `stored_bytes` in merged runs that queries still use in place of live ones, in an lsbm
        /// tree.
        #[metric("retained_bytes", Bytes)]
        pub retained_bytes: u64,
        /// Retained runs that were dropped because they were damaged. No record is lost: queries use the live
        /// runs. Counted since the opening or the last change of tree; a count.
        #[metric("retained_damaged_runs", Count)]
        pub retained_damaged_runs: u64,
        /// Levels of an lsbm tree that retain no more runs, because most keys merged into them are already
        /// there; detected again after each opening; a count.
        #[metric("frozen_levels", Count)]
        pub frozen_levels: u64,
        /// Pages of a treeline tree that were replaced since their run was written; a count.
        #[metric("replaced_pages", Count)]
        pub replaced_pages: u64,
        /// Overflow pages of a treeline tree, for entries that did not fit into replaced pages; a count.
        #[metric("overflow_pages", Count)]
        pub overflow_pages: u64,
        /// Bytes of records in a treeline tree that cannot be updated page by page, because values of their
        /// sizes continue in the next page: their runs are rewritten.
        #[metric("continued_bytes", Bytes)]
        pub continued_bytes: u64,
        /// Pages that a treeline tree replaced. Counted since the opening or the last change of tree, as the
        /// following seven are; a count.
        #[metric("pages_replaced", Count)]
        pub pages_replaced: u64,
        /// Pages of a treeline tree that were split: some of their entries went to overflow pages; a count.
        #[metric("pages_overflowed", Count)]
        pub pages_overflowed: u64,
        /// Pages of a treeline tree that were joined with others; a count.
        #[metric("pages_joined", Count)]
        pub pages_joined: u64,
        /// Slot groups of a treeline tree that were moved because scans found their pages scattered; a
        /// count.
        #[metric("groups_moved", Count)]
        pub groups_moved: u64,
        /// New keys that came into pages of a treeline tree; a count.
        #[metric("page_inserts", Count)]
        pub page_inserts: u64,
        /// Of those, new keys on pages of a treeline tree that needed no overflow page for them: they met
        /// free space, which forecasts leave; a count.
        #[metric("forecast_hits", Count)]
        pub forecast_hits: u64,
        /// Runs of a treeline tree that few records came into, but that were rewritten: these were on more
        /// than a sixth of the pages, or the run had become too long or too sparse; a count.
        #[metric("runs_rewritten", Count)]
        pub runs_rewritten: u64,
        /// Flushes of a treeline tree straight into pages; a count.
        #[metric("direct_flushes", Count)]
        pub direct_flushes: u64,
        /// Bytes of index and filter pages of a leveled, lsbm or treeline tree.
        #[metric("index_bytes", Bytes)]
        pub index_bytes: u64,
        /// Seqno up to which all writes of the keyspace are in its tree.
        #[metric("flushed_seqno", Seqno)]
        pub flushed_seqno: u64,
    }
}

impl KeyspaceTreeStats {
    pub(super) fn of(store: &Store, core: &KeyspaceCore, view: &View, tree: &TreeStats) -> Self {
        let flushed = store.manifest.with_state(|state| state.keyspaces.get(&core.id).map(|k| k.flushed));
        Self {
            name: view.options.tree().to_string(),
            height: u64::from(tree.height),
            nodes: tree.nodes,
            leaves: tree.leaves,
            buffered_runs: tree.buffered_runs,
            buffered_bytes: tree.buffered_bytes,
            leaf_bytes: tree.leaf_bytes,
            entries: tree.entries,
            tombstones: tree.tombstones,
            stored_bytes: tree.stored_bytes,
            retained_bytes: tree.retained_bytes,
            retained_damaged_runs: tree.retained_damaged_runs,
            frozen_levels: tree.frozen_levels,
            replaced_pages: tree.replaced_pages,
            overflow_pages: tree.overflow_pages,
            continued_bytes: tree.continued_bytes,
            pages_replaced: tree.page_updates.replaced,
            pages_overflowed: tree.page_updates.overflowed,
            pages_joined: tree.page_updates.joined,
            groups_moved: tree.page_updates.moved_groups,
            page_inserts: tree.page_updates.inserts,
            forecast_hits: tree.page_updates.forecast_hits,
            runs_rewritten: tree.page_updates.rewritten_runs,
            direct_flushes: tree.page_updates.direct_flushes,
            index_bytes: tree.index_bytes,
            flushed_seqno: flushed.unwrap_or_default().0,
        }
    }
}

stat_group! {
    /// Progress of a keyspace that changes its tree.
    #[group("moving")]
    pub struct MovingStats {
        /// Name of the tree that the keyspace moves from, if it is moving to another family; the name of its
        /// tree if values return to their keys (`Placement::automatic`).
        #[metric("moving_from", Text)]
        pub from: Option<String>,
        /// While the keyspace moves: bytes of entries that have moved.
        #[metric("moved_bytes", Bytes)]
        pub moved_bytes: u64,
        /// While the keyspace moves: bytes of entries that have not moved yet.
        #[metric("left_bytes", Bytes)]
        pub left_bytes: u64,
    }
}

impl MovingStats {
    pub(super) fn of(view: &View, tree: &TreeStats) -> Self {
        let moving = tree.moving.unwrap_or_default();
        let chosen = view.options.tree();
        let left = |left| if is_of_family(left, chosen) { chosen } else { left };
        Self {
            from: view.options.moving_from().map(|tree| left(tree).to_string()),
            moved_bytes: moving.moved_bytes,
            left_bytes: moving.left_bytes,
        }
    }
}

stat_group! {
    /// Values outside the tree's runs.
    #[group("values")]
    pub struct ValueStats {
        /// Value segments; a count.
        #[metric("value_segments", Count)]
        pub segments: u64,
        /// Bytes of values in value segments.
        #[metric("value_bytes", Bytes)]
        pub bytes: u64,
        /// Part of `bytes` that is garbage: no entry of the tree refers to it.
        #[metric("dead_value_bytes", Bytes)]
        pub dead_bytes: u64,
        /// Bytes of values of medium pairs in value segments; these values return to their keys at the bottom
        /// of the tree.
        #[metric("transient_value_bytes", Bytes)]
        pub transient_bytes: u64,
        /// Part of `transient_bytes` that is garbage: no entry of the tree refers to it.
        #[metric("dead_transient_value_bytes", Bytes)]
        pub dead_transient_bytes: u64,
        /// Whether values of large pairs are stored with their keys because the thresholds have moved.
        #[metric("large_values_with_keys", Flag)]
        pub large_with_keys: bool,
        /// If the thresholds move automatically: excess cost to scans and merges of the current place of
        /// large values over the alternative, in bytes. See `Placement` and decision 0053.
        #[metric("large_values_excess_bytes", Bytes)]
        pub large_excess_bytes: u64,
        /// Excess at which the thresholds move; 0 if they do not, because there are no large values or they
        /// are long.
        #[metric("large_values_limit_bytes", Bytes)]
        pub large_limit_bytes: u64,
    }
}

impl ValueStats {
    pub(super) fn of(view: &View, tree: &TreeStats) -> Self {
        let large_values = view.options.large_values();
        let costs = view.tree.value_costs();
        let limit = costs.and_then(|_| price_of_moving(&*view.tree, large_values));
        Self {
            segments: tree.value_segments,
            bytes: tree.value_bytes,
            dead_bytes: tree.dead_value_bytes,
            transient_bytes: tree.transient_value_bytes,
            dead_transient_bytes: tree.dead_transient_value_bytes,
            large_with_keys: large_values == LargeValues::WithKeys,
            large_excess_bytes: costs.map_or(0, |costs| costs.excess(large_values)),
            large_limit_bytes: limit.unwrap_or(0),
        }
    }
}

stat_group! {
    /// Write buffers of a keyspace.
    #[group("memtables")]
    pub struct MemtableStats {
        /// Memory of its memtables, in bytes.
        #[metric("memtable_bytes", Bytes)]
        pub bytes: u64,
        /// Keys in its memtables; a count.
        #[metric("memtable_entries", Count)]
        pub entries: u64,
        /// Time for which writers waited for jobs of this keyspace, or because it exceeded its own share of
        /// the write memory or the capacity of a write buffer, in microseconds.
        #[metric("delayed_micros", Micros)]
        pub delayed_micros: u64,
    }
}

impl MemtableStats {
    pub(super) fn of(core: &KeyspaceCore, view: &View) -> Self {
        Self {
            delayed_micros: core.delayed_micros.load(Relaxed),
            bytes: view.buffers().map(|buffer| buffer.table.memory_bytes()).sum(),
            entries: view.buffers().map(|buffer| u64_of(buffer.table.len())).sum(),
        }
    }
}
