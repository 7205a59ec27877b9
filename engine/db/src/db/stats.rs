//! Statistics of a store and of a keyspace, as plain data.

use testudo_base::{num::u64_of, sync::atomic::Ordering::Relaxed};
use testudo_flush::govern::moving_price::price_of_moving;
use testudo_options::families::is_of_family;
use testudo_store::{
    Store, background::stages::Stage, keyspace::KeyspaceCore, memory::metadata::metadata_bytes,
    warm_restart::restore_state::RestoreState,
};
use testudo_values::LargeValues;

/// Statistics of a store. Counters start at zero when it is opened; sizes are current, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct DbStats {
    /// Bytes of keys and values written by users.
    pub user_bytes_written: u64,
    /// Writes by users.
    pub user_writes: u64,
    /// Bytes written to the log.
    pub wal_bytes_written: u64,
    /// Bytes of large values that commits wrote to value logs instead of the log.
    pub value_log_bytes: u64,
    /// Bytes written to the data file.
    pub data_bytes_written: u64,
    /// Bytes written to the manifest.
    pub manifest_bytes_written: u64,
    /// Bytes written to the file `hot-set`, for the warm restart.
    pub hot_set_bytes_written: u64,
    /// Bytes written to log, data file, manifest and `hot-set` together.
    pub device_bytes_written: u64,
    /// Bytes read from the data file and from `hot-set`.
    pub device_bytes_read: u64,
    /// Page reads for queries; a count.
    pub page_reads: u64,
    /// Bytes of page reads for queries.
    pub page_read_bytes: u64,
    /// Large sequential reads, by scans and background work; a count.
    pub stream_reads: u64,
    /// Bytes of large sequential reads.
    pub stream_read_bytes: u64,
    /// Tombstones that iterators skipped one by one to reach the next entry; a count.
    pub tombstones_passed: u64,
    /// Bytes of memory of gaps: ranges of keys in which an iterator found only tombstones, and which later
    /// iterators seek past.
    pub gap_bytes: u64,
    /// Page cache hits.
    pub cache_hits: u64,
    /// Page cache misses.
    pub cache_misses: u64,
    /// Bytes of pages in the cache.
    pub cache_used_bytes: u64,
    /// Maximum bytes of pages in the cache.
    pub cache_capacity_bytes: u64,
    /// Record cache hits.
    pub record_hits: u64,
    /// Record cache misses.
    pub record_misses: u64,
    /// Records inserted into the record cache.
    pub record_inserts: u64,
    /// Records evicted from the record cache.
    pub record_evictions: u64,
    /// Records in the record cache; a count.
    pub cached_records: u64,
    /// Bytes of the record cache and its index.
    pub record_cache_bytes: u64,
    /// Bytes of memory that the page cache borrows beyond its own share; write buffers and records do not
    /// need it at the moment.
    pub cache_borrowed_bytes: u64,
    /// Target size of the record cache in bytes, out of the memory that it shares with borrowed pages. The
    /// split follows the reads that each of the two would have saved with more memory.
    pub record_due_bytes: u64,
    /// State of reading back the pages and records that were hot before the store was opened.
    pub restore_state: RestoreState,
    /// Pages restored because they were in the page cache before the store was opened.
    pub restored_pages: u64,
    /// Restored pages that were used since.
    pub restored_page_hits: u64,
    /// Pages that merges inserted into the page cache in place of pages that queries used.
    pub warmed_pages: u64,
    /// Records restored because they were in the record cache before the store was opened.
    pub restored_records: u64,
    /// Record cache hits on restored records.
    pub restored_record_hits: u64,
    /// Bytes read to restore pages and records.
    pub restore_bytes_read: u64,
    /// Bytes of memory of memtables, including memory that neither they nor cached records use.
    pub memtable_bytes: u64,
    /// Bytes of log segments that are still needed.
    pub wal_live_bytes: u64,
    /// Bytes that the data file occupies on the device.
    pub data_file_bytes: u64,
    /// Bytes of extents that the durable state refers to.
    pub live_bytes: u64,
    /// Bytes of extents held only by memory: work in progress, snapshots.
    pub held_bytes: u64,
    /// Bytes of the data file that can be reused.
    pub free_bytes: u64,
    /// Length of the current manifest.
    pub manifest_bytes: u64,
    /// Device space reserved for a full device, in bytes; less than [`DbStats::whole_reserve_bytes`] while
    /// the device is full.
    pub reserve_bytes: u64,
    /// Size of the whole reserve.
    pub whole_reserve_bytes: u64,
    /// Bytes on the device of data file, log, manifest, the reserve and, unless it is disabled, the file for
    /// a warm restart: everything but a few kilobytes.
    pub disk_bytes: u64,
    /// Flush rounds.
    pub flushes: u64,
    /// Time of flush rounds until the log was synced, in microseconds.
    pub flush_log_micros: u64,
    /// Time of planning, merging and writing runs, in microseconds.
    pub flush_apply_micros: u64,
    /// Time of syncing the data file, in microseconds.
    pub flush_data_micros: u64,
    /// Time of writing and syncing manifest edits, in microseconds.
    pub flush_edit_micros: u64,
    /// Time of publishing the new trees and releasing the log, in microseconds.
    pub flush_publish_micros: u64,
    /// Duration of the longest flush round, in microseconds.
    pub max_flush_micros: u64,
    /// Bytes of memtables that were flushed.
    pub flushed_bytes: u64,
    /// Writes that never reached a tree: newer writes replaced them in the write buffer, or they were folded
    /// into another entry. Updated when the buffer is flushed; a count.
    pub dropped_before_flush_entries: u64,
    /// Bytes of keys and values of `dropped_before_flush_entries`.
    pub dropped_before_flush_bytes: u64,
    /// Entries that merges of flushes and jobs dropped: shadowed entries, tombstones with nothing below them,
    /// operands and the entries they change; a count.
    pub dropped_in_merges_entries: u64,
    /// Bytes of keys and values of `dropped_in_merges_entries`.
    pub dropped_in_merges_bytes: u64,
    /// Entries made from operands and the entries they change, which themselves count as dropped; a count.
    /// Each flushed write and each of these is either in the tree or counted as dropped.
    pub folded_entries: u64,
    /// Bytes of keys and values of `folded_entries`.
    pub folded_bytes: u64,
    /// Background jobs of trees, flushes excluded.
    pub jobs: u64,
    /// Jobs whose result was discarded because a flush had changed their input.
    pub jobs_overtaken: u64,
    /// Total time for which writers were throttled, in microseconds.
    pub throttled_micros: u64,
    /// Number of times a writer waited because the write memory was exhausted.
    pub write_stalls: u64,
    /// Longest delay of a writer, in microseconds.
    pub max_stall_micros: u64,
    /// Syncs of the log.
    pub wal_syncs: u64,
    /// Last assigned sequence number (seqno).
    pub seqno: u64,
    /// Last durable seqno: every write up to it is on disk.
    pub durable_seqno: u64,
    /// Number of keyspaces.
    pub keyspaces: u64,
    /// Memory budget, in bytes.
    pub memory_bytes: u64,
    /// Share of the memory budget for write buffers, in bytes.
    pub write_memory_bytes: u64,
    /// 1 while the store adjusts that share automatically, 0 while it is fixed.
    pub write_memory_auto: u64,
    /// Automatic changes of that share; a count.
    pub write_memory_changes: u64,
    /// Size of write memory that the store estimates as optimal: one more byte saves as much rewriting there
    /// as reads in the caches.
    pub write_memory_wanted_bytes: u64,
    /// First input of that estimate: bytes that users wrote recently.
    pub write_memory_seen_bytes: u64,
    /// Second input: device reads that slightly larger caches would have saved recently; a count.
    pub write_memory_seen_misses: u64,
    /// Size at which the write buffer of a single keyspace is flushed (χ), in bytes.
    pub flush_distance_bytes: u64,
    /// Estimated bytes of metadata that cannot be evicted: keyspaces, nodes of trees, references to runs, the
    /// state of the manifest. The caches shrink by the part of it beyond a 24th of the budget (at most 24
    /// MiB). For budgets from 32 to 168 MiB that threshold is higher, up to 7 MiB.
    pub metadata_bytes: u64,
    /// Live snapshots; a count.
    pub snapshots: u64,
    /// Bytes of memory that open iterators use for pages and entries. If it exceeds an eighth of the budget,
    /// they keep less and are slower.
    pub iterator_bytes: u64,
}

impl DbStats {
    pub(crate) fn of(store: &Store) -> Self {
        let (io, cache, space) = (store.data.io_stats(), store.data.cache_stats(), store.data.space_stats());
        let records = store.records.stats();
        let manifest = store.manifest.stats();
        let wal = store.log.wal.as_ref().map(|wal| wal.stats()).unwrap_or_default();
        let wal_live_bytes = store.log.wal.as_ref().map_or(0, |wal| wal.live_bytes());
        let reserve_file_bytes = store.space.reserve_bytes();
        let (held_bytes, whole_held_bytes) = store.nearly_full.held_bytes();
        let data_file_bytes = store.data.allocated_bytes().unwrap_or(0);
        let keyspaces = store.keyspaces();
        let shares = store.memory.shares();
        let counters = &store.counters;
        let dropped = counters.drops.get();
        let decision = store.memory.last_decision();
        let pressure = &store.backpressure;
        Self {
            user_bytes_written: counters.user_bytes.sum(),
            user_writes: counters.user_writes.sum(),
            wal_bytes_written: wal.bytes_written,
            value_log_bytes: store.value_logs.bytes(),
            data_bytes_written: io.written_bytes,
            manifest_bytes_written: manifest.bytes_written,
            hot_set_bytes_written: store.warm.bytes_written(),
            device_bytes_written: wal.bytes_written
                + io.written_bytes
                + manifest.bytes_written
                + store.warm.bytes_written(),
            device_bytes_read: io.page_read_bytes + io.stream_read_bytes + store.warm.file_bytes_read(),
            page_reads: io.page_reads,
            page_read_bytes: io.page_read_bytes,
            stream_reads: io.stream_reads,
            stream_read_bytes: io.stream_read_bytes,
            tombstones_passed: counters.tombstones_passed.sum(),
            gap_bytes: store.gap_bytes.load(Relaxed),
            cache_hits: cache.hits,
            cache_misses: cache.misses,
            cache_used_bytes: cache.used_bytes,
            cache_capacity_bytes: cache.capacity_bytes,
            record_hits: records.hits,
            record_misses: records.misses,
            record_inserts: records.inserted,
            record_evictions: records.evicted,
            cached_records: records.records,
            record_cache_bytes: records.used_bytes,
            cache_borrowed_bytes: store.arena_pool.division().page_bytes(),
            record_due_bytes: store.arena_pool.division().record_due_bytes(),
            restore_state: store.warm.state(),
            restored_pages: cache.restored,
            restored_page_hits: cache.restored_hits,
            warmed_pages: cache.warmed,
            restored_records: records.restored,
            restored_record_hits: records.restored_hits,
            restore_bytes_read: store.warm.bytes_read(),
            memtable_bytes: store.arena_pool.used_bytes().saturating_sub(records.used_bytes),
            wal_live_bytes,
            data_file_bytes,
            live_bytes: space.live_bytes,
            held_bytes: space.held_bytes,
            free_bytes: space.free_bytes,
            manifest_bytes: manifest.file_bytes,
            reserve_bytes: reserve_file_bytes + held_bytes,
            whole_reserve_bytes: store.space.whole_reserve_bytes() + whole_held_bytes,
            disk_bytes: data_file_bytes
                + wal_live_bytes
                + manifest.file_bytes
                + reserve_file_bytes
                + store.warm.file_bytes(),
            flushes: counters.flushes.load(Relaxed),
            flush_log_micros: counters.stages.micros(Stage::Log),
            flush_apply_micros: counters.stages.micros(Stage::Apply),
            flush_data_micros: counters.stages.micros(Stage::Data),
            flush_edit_micros: counters.stages.micros(Stage::Edit),
            flush_publish_micros: counters.stages.micros(Stage::Publish),
            max_flush_micros: counters.stages.max_micros(),
            flushed_bytes: counters.stages.bytes(),
            dropped_before_flush_entries: dropped.in_buffers.dropped_entries,
            dropped_before_flush_bytes: dropped.in_buffers.dropped_bytes,
            dropped_in_merges_entries: dropped.in_merges.dropped_entries,
            dropped_in_merges_bytes: dropped.in_merges.dropped_bytes,
            folded_entries: dropped.in_buffers.made_entries + dropped.in_merges.made_entries,
            folded_bytes: dropped.in_buffers.made_bytes + dropped.in_merges.made_bytes,
            jobs: counters.jobs.load(Relaxed),
            jobs_overtaken: counters.jobs_overtaken.load(Relaxed),
            throttled_micros: pressure.throttled_micros.load(Relaxed),
            write_stalls: pressure.stalls.load(Relaxed),
            max_stall_micros: pressure.max_stall_micros.load(Relaxed),
            wal_syncs: wal.syncs,
            seqno: store.last_seqno().0,
            durable_seqno: store
                .log
                .wal
                .as_ref()
                .map_or_else(|| store.last_seqno(), |wal| wal.durable_seqno())
                .0,
            keyspaces: u64_of(keyspaces.len()),
            memory_bytes: shares.total,
            write_memory_bytes: shares.write_buffers,
            write_memory_auto: store.memory.is_auto().into(),
            write_memory_changes: decision.changes,
            write_memory_wanted_bytes: rounded(decision.wanted * shares.total as f64),
            write_memory_seen_bytes: rounded(decision.written),
            write_memory_seen_misses: rounded(decision.missed),
            flush_distance_bytes: shares.flush_distance(),
            metadata_bytes: metadata_bytes(store),
            snapshots: u64_of(store.snapshots.live.lock().values().sum()),
            iterator_bytes: store.iterators.bytes(),
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates and is not negative")]
fn rounded(value: f64) -> u64 {
    value.round() as u64
}

/// Statistics of one keyspace, in bytes unless stated otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct KeyspaceStats {
    /// Name of its tree; while it moves, of the tree it moves to.
    pub tree: String,
    /// Name of the tree it moves from, if it is moving to another family; same as `tree` if values return to
    /// their keys ([`Placement::automatic`](testudo_values::Placement::automatic)).
    pub moving_from: Option<String>,
    /// While it moves: bytes of entries that have moved.
    pub moved_bytes: u64,
    /// While it moves: bytes of entries that have not moved yet.
    pub left_bytes: u64,
    /// Levels of nodes above the leaves; a count.
    pub height: u64,
    /// Nodes; a count.
    pub nodes: u64,
    /// Non-empty leaves; a count.
    pub leaves: u64,
    /// Runs in node buffers; a count.
    pub buffered_runs: u64,
    /// Bytes of entries waiting in node buffers.
    pub buffered_bytes: u64,
    /// Bytes of entries in leaves.
    pub leaf_bytes: u64,
    /// Entries stored, shadowed ones included; a count.
    pub entries: u64,
    /// Tombstones stored; a count.
    pub tombstones: u64,
    /// Bytes of runs in the data file, including those of value segments.
    pub stored_bytes: u64,
    /// Value segments; a count.
    pub value_segments: u64,
    /// Bytes of values in value segments.
    pub value_bytes: u64,
    /// Part of `value_bytes` that is garbage: no entry of the tree refers to it.
    pub dead_value_bytes: u64,
    /// Part of `stored_bytes` in merged runs that queries still use in place of live ones, in an lsbm tree.
    pub retained_bytes: u64,
    /// Retained runs that were dropped because they were damaged. No record is lost: queries use the live
    /// runs. Counted since the opening or the last change of tree; a count.
    pub retained_damaged_runs: u64,
    /// Levels of an lsbm tree that retain no more runs, because most keys merged into them are already there;
    /// detected again after each opening; a count.
    pub frozen_levels: u64,
    /// Pages of a treeline tree that were replaced since their run was written; a count.
    pub replaced_pages: u64,
    /// Overflow pages of a treeline tree, for entries that did not fit into replaced pages; a count.
    pub overflow_pages: u64,
    /// Bytes of values of medium pairs in value segments; these values return to their keys at the bottom of
    /// the tree.
    pub transient_value_bytes: u64,
    /// Part of `transient_value_bytes` that is garbage: no entry of the tree refers to it.
    pub dead_transient_value_bytes: u64,
    /// 1 if values of large pairs are stored with their keys because the thresholds have moved, else 0.
    pub large_values_with_keys: u64,
    /// If the thresholds move automatically: excess cost to scans and merges of the current place of large
    /// values over the alternative, in bytes. See [`Placement`](testudo_values::Placement) and decision 0053.
    pub large_values_excess_bytes: u64,
    /// Excess at which the thresholds move; 0 if they do not, because there are no large values or they are
    /// long.
    pub large_values_limit_bytes: u64,
    /// Memory of its memtables, in bytes.
    pub memtable_bytes: u64,
    /// Keys in its memtables; a count.
    pub memtable_entries: u64,
    /// Writes that never reached a tree: newer writes replaced them in the write buffer, or they were folded
    /// into another entry. Updated when the buffer is flushed; a count.
    pub dropped_before_flush_entries: u64,
    /// Bytes of keys and values of `dropped_before_flush_entries`.
    pub dropped_before_flush_bytes: u64,
    /// Entries that merges of its flushes and jobs dropped: shadowed entries, tombstones with nothing below
    /// them, operands and the entries they change; a count.
    pub dropped_in_merges_entries: u64,
    /// Bytes of keys and values of `dropped_in_merges_entries`.
    pub dropped_in_merges_bytes: u64,
    /// Entries made from operands and the entries they change, which themselves count as dropped; a count.
    /// Each flushed write and each of these is either in the tree or counted as dropped.
    pub folded_entries: u64,
    /// Bytes of keys and values of `folded_entries`.
    pub folded_bytes: u64,
    /// Seqno up to which all its writes are in its tree.
    pub flushed_seqno: u64,
}

impl KeyspaceStats {
    pub(crate) fn of(store: &Store, core: &KeyspaceCore) -> Self {
        let view = core.view.load();
        let tree = view.tree.stats();
        let dropped = core.drops.get();
        let flushed = store.manifest.with_state(|state| state.keyspaces.get(&core.id).map(|k| k.flushed));
        let moving = tree.moving.unwrap_or_default();
        let chosen = view.options.chosen_tree();
        let left = |left| if is_of_family(left, chosen) { chosen } else { left };
        let large_values = view.options.large_values();
        let costs = view.tree.value_costs();
        let limit = costs.and_then(|_| price_of_moving(&*view.tree, large_values)).unwrap_or(0);
        Self {
            tree: chosen.to_string(),
            moving_from: view.options.moving_from().map(|tree| left(tree).to_string()),
            moved_bytes: moving.moved_bytes,
            left_bytes: moving.left_bytes,
            height: u64::from(tree.height),
            nodes: tree.nodes,
            leaves: tree.leaves,
            buffered_runs: tree.buffered_runs,
            buffered_bytes: tree.buffered_bytes,
            leaf_bytes: tree.leaf_bytes,
            entries: tree.entries,
            tombstones: tree.tombstones,
            stored_bytes: tree.stored_bytes,
            value_segments: tree.value_segments,
            value_bytes: tree.value_bytes,
            dead_value_bytes: tree.dead_value_bytes,
            retained_bytes: tree.retained_bytes,
            retained_damaged_runs: tree.retained_damaged_runs,
            frozen_levels: tree.frozen_levels,
            replaced_pages: tree.replaced_pages,
            overflow_pages: tree.overflow_pages,
            transient_value_bytes: tree.transient_value_bytes,
            dead_transient_value_bytes: tree.dead_transient_value_bytes,
            large_values_with_keys: (large_values == LargeValues::WithKeys).into(),
            large_values_excess_bytes: costs.map_or(0, |costs| costs.excess(large_values)),
            large_values_limit_bytes: limit,
            memtable_bytes: view.buffers().map(|buffer| buffer.table.memory_bytes()).sum(),
            memtable_entries: view.buffers().map(|buffer| u64_of(buffer.table.len())).sum(),
            dropped_before_flush_entries: dropped.in_buffers.dropped_entries,
            dropped_before_flush_bytes: dropped.in_buffers.dropped_bytes,
            dropped_in_merges_entries: dropped.in_merges.dropped_entries,
            dropped_in_merges_bytes: dropped.in_merges.dropped_bytes,
            folded_entries: dropped.in_buffers.made_entries + dropped.in_merges.made_entries,
            folded_bytes: dropped.in_buffers.made_bytes + dropped.in_merges.made_bytes,
            flushed_seqno: flushed.unwrap_or_default().0,
        }
    }
}
