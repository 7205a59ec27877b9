//! Statistics of a store and of a keyspace, as plain data.

use testudo_base::{num::u64_of, sync::atomic::Ordering::Relaxed};
use testudo_flush::govern::moving_price::price_of_moving;
use testudo_options::families::is_of_family;
use testudo_store::{
    Store, background::stages::Stage, keyspace::KeyspaceCore, memory::metadata::metadata_bytes,
    warm_restart::restore_state::RestoreState,
};
use testudo_values::LargeValues;

/// Statistics of a store. Counts are since it was opened; sizes are of this moment, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct DbStats {
    /// Bytes of keys and values that users wrote.
    pub user_bytes_written: u64,
    /// Writes that users made.
    pub user_writes: u64,
    /// Bytes written to the log.
    pub wal_bytes_written: u64,
    /// Bytes of large values that commits wrote to value logs instead of the log.
    pub value_log_bytes: u64,
    /// Bytes written to the data file.
    pub data_bytes_written: u64,
    /// Bytes written to the manifest.
    pub manifest_bytes_written: u64,
    /// Bytes written to the file that says what was hot, for the warm restart.
    pub hot_set_bytes_written: u64,
    /// What was written to log, data file, manifest and that file.
    pub device_bytes_written: u64,
    /// Bytes read from the data file, and from that one.
    pub device_bytes_read: u64,
    /// Reads of pages for queries.
    pub page_reads: u64,
    /// Bytes of those.
    pub page_read_bytes: u64,
    /// Reads of large pieces, by scans and background work.
    pub stream_reads: u64,
    /// Bytes of those.
    pub stream_read_bytes: u64,
    /// Tombstones that iterators passed one by one to come to the next entry; a count.
    pub tombstones_passed: u64,
    /// Bytes of memory of gaps: ranges of keys in which an iterator found nothing but tombstones, and which
    /// later ones seek past.
    pub gap_bytes: u64,
    /// Look-ups that found their page in the cache.
    pub cache_hits: u64,
    /// Look-ups that did not.
    pub cache_misses: u64,
    /// Bytes of pages in the cache.
    pub cache_used_bytes: u64,
    /// Most bytes of pages that may be in the cache.
    pub cache_capacity_bytes: u64,
    /// Look-ups that found their record in the record cache.
    pub record_hits: u64,
    /// Look-ups that did not.
    pub record_misses: u64,
    /// Records put into the record cache.
    pub record_inserts: u64,
    /// Records that made room for others.
    pub record_evictions: u64,
    /// Records in the record cache; a count.
    pub cached_records: u64,
    /// Bytes of the record cache and its index.
    pub record_cache_bytes: u64,
    /// Bytes of pages beyond those that the page cache has in any case: memory that write buffers and records
    /// do not use.
    pub cache_borrowed_bytes: u64,
    /// Bytes that the record cache should have of what it and borrowed pages hold together: the border
    /// between them follows what each would have saved with more memory.
    pub record_due_bytes: u64,
    /// Whether what was hot before the store was opened is being read back.
    pub restore_state: RestoreState,
    /// Pages put back into the page cache because it held them before the store was opened.
    pub restored_pages: u64,
    /// Those of them that were used.
    pub restored_page_hits: u64,
    /// Pages put into the page cache by merges, because they took the place of pages that queries used.
    pub warmed_pages: u64,
    /// Records put back into the record cache because it held them before.
    pub restored_records: u64,
    /// Look-ups that found one of these.
    pub restored_record_hits: u64,
    /// Bytes read to put pages and records back.
    pub restore_bytes_read: u64,
    /// Bytes of memtables, and of memory that neither they nor cached records use.
    pub memtable_bytes: u64,
    /// Bytes of log segments still needed.
    pub wal_live_bytes: u64,
    /// Bytes that the data file occupies on the device.
    pub data_file_bytes: u64,
    /// Bytes of extents that the durable state refers to.
    pub live_bytes: u64,
    /// Bytes of extents that only memory holds: work under way, snapshots.
    pub held_bytes: u64,
    /// Bytes of the data file that can be reused.
    pub free_bytes: u64,
    /// Length of the current manifest.
    pub manifest_bytes: u64,
    /// Bytes of the device kept back for when it is full; less than [`DbStats::whole_reserve_bytes`] while it
    /// is.
    pub reserve_bytes: u64,
    /// Bytes that are kept back otherwise.
    pub whole_reserve_bytes: u64,
    /// Bytes that data file, log, manifest, the reserve and, unless that is switched off, the file for a warm
    /// restart occupy on the device: all files but a few kilobytes.
    pub disk_bytes: u64,
    /// Rounds of flushing.
    pub flushes: u64,
    /// Time of these rounds until the log was synced, in microseconds.
    pub flush_log_micros: u64,
    /// Time of planning, merging and writing runs.
    pub flush_apply_micros: u64,
    /// Time of syncing the data file.
    pub flush_data_micros: u64,
    /// Time of writing and syncing manifest edits.
    pub flush_edit_micros: u64,
    /// Time of publishing the new trees and releasing the log.
    pub flush_publish_micros: u64,
    /// Longest round.
    pub max_flush_micros: u64,
    /// Bytes of memtables that were flushed.
    pub flushed_bytes: u64,
    /// Writes that never reached a tree: before their write buffer was flushed, newer ones of their keys
    /// came, or they became part of another entry. Counted when the buffer is flushed; a count.
    pub dropped_before_flush_entries: u64,
    /// Bytes of keys and values of those.
    pub dropped_before_flush_bytes: u64,
    /// Entries that merges of flushes and jobs found dead: hidden by newer ones, tombstones with nothing
    /// below them, operands and what they change; a count.
    pub dropped_in_merges_entries: u64,
    /// Bytes of keys and values of those.
    pub dropped_in_merges_bytes: u64,
    /// Entries made of operands and of what they change, which count as dropped themselves; a count. Writes
    /// that were flushed and these together are in the tree or were dropped.
    pub folded_entries: u64,
    /// Bytes of keys and values of those.
    pub folded_bytes: u64,
    /// Jobs that trees did of their own, beside flushes.
    pub jobs: u64,
    /// Jobs of which the outcome was dropped, because a flush had changed what they began with.
    pub jobs_overtaken: u64,
    /// Time for which writers were throttled, all together, in microseconds.
    pub throttled_micros: u64,
    /// Times that a writer waited because no write memory was left.
    pub write_stalls: u64,
    /// Longest delay of a writer, in microseconds.
    pub max_stall_micros: u64,
    /// Syncs of the log.
    pub wal_syncs: u64,
    /// The last seqno that was assigned.
    pub seqno: u64,
    /// Everything up to this seqno is on disk.
    pub durable_seqno: u64,
    /// Number of keyspaces.
    pub keyspaces: u64,
    /// The memory budget.
    pub memory_bytes: u64,
    /// The share of it for write buffers.
    pub write_memory_bytes: u64,
    /// 1 while the store chooses that share by itself, 0 while one is set.
    pub write_memory_auto: u64,
    /// Changes of the share that the store made by itself; a count.
    pub write_memory_changes: u64,
    /// What the store would give write buffers, as far as it has seen: where a byte more saves as much in
    /// rewriting as in reads.
    pub write_memory_wanted_bytes: u64,
    /// One reason for that: bytes that users wrote lately.
    pub write_memory_seen_bytes: u64,
    /// The other: reads of the device that a little more memory for caches would have saved lately; a count.
    pub write_memory_seen_misses: u64,
    /// Bytes at which the write buffer of a single keyspace is flushed (χ).
    pub flush_distance_bytes: u64,
    /// Memory of what cannot leave it, by estimate: keyspaces, nodes of trees, references to runs, the state
    /// of the manifest. What it takes beyond a 24th of the budget (with 32 to 168 MiB beyond more,
    /// up to 7 MiB) the caches have less.
    pub metadata_bytes: u64,
    /// Live snapshots.
    pub snapshots: u64,
    /// Bytes of memory that open iterators take for pages and entries. Where that is more than an eighth of
    /// the budget they keep less, and are slower.
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

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and is not negative")]
fn rounded(value: f64) -> u64 {
    value.round() as u64
}

/// Statistics of one keyspace, in bytes where nothing else is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct KeyspaceStats {
    /// Name of its tree; while it moves, of the tree where it goes.
    pub tree: String,
    /// Name of the tree that it leaves, if it is moving to one of another family; `tree` itself if values
    /// come back to their keys ([`Placement::automatic`](testudo_values::Placement::automatic)).
    pub moving_from: Option<String>,
    /// While it moves: entries that have moved.
    pub moved_bytes: u64,
    /// While it moves: entries that have not.
    pub left_bytes: u64,
    /// Levels of nodes above the leaves.
    pub height: u64,
    /// Nodes.
    pub nodes: u64,
    /// Leaves that hold something.
    pub leaves: u64,
    /// Runs in node buffers.
    pub buffered_runs: u64,
    /// Entries waiting in node buffers.
    pub buffered_bytes: u64,
    /// Entries in leaves.
    pub leaf_bytes: u64,
    /// Entries stored, shadowed ones included; a count.
    pub entries: u64,
    /// Tombstones stored; a count.
    pub tombstones: u64,
    /// Runs in the data file, those of value segments included.
    pub stored_bytes: u64,
    /// Value segments; a count.
    pub value_segments: u64,
    /// Values in value segments.
    pub value_bytes: u64,
    /// Of those, values to which no entry of the tree refers any more.
    pub dead_value_bytes: u64,
    /// Of `stored_bytes`, those of dead runs that queries still use in the place of live ones, in an lsbm
    /// tree.
    pub retained_bytes: u64,
    /// Such runs that were damaged and are given up, which costs no record: queries use the live ones.
    /// Counted from the opening on, or from the last change of the tree; a count.
    pub retained_damaged_runs: u64,
    /// Levels of an lsbm tree that retain nothing more, because mostly keys come into them that they have;
    /// found anew after each opening; a count.
    pub frozen_levels: u64,
    /// Pages of a treeline tree that were updated since the run that they belong to was written; a count.
    pub replaced_pages: u64,
    /// Pages of it that have what did not fit into those; a count.
    pub overflow_pages: u64,
    /// Values of medium pairs in value segments, which come back to their keys at the bottom of the tree.
    pub transient_value_bytes: u64,
    /// Of those, values to which no entry of the tree refers any more.
    pub dead_transient_value_bytes: u64,
    /// Whether values of large pairs are with their keys because its thresholds have moved: 1, else 0.
    pub large_values_with_keys: u64,
    /// If its thresholds move: what having values of large pairs where they are has cost scans and merges
    /// more than the other way would have, in bytes as [`Placement`](testudo_values::Placement) and decision 0053 say.
    pub large_values_excess_bytes: u64,
    /// At how much excess they move; 0 if they do not: there are none, or they are long.
    pub large_values_limit_bytes: u64,
    /// Its memtables.
    pub memtable_bytes: u64,
    /// Keys in its memtables; a count.
    pub memtable_entries: u64,
    /// Writes that never reached a tree: before their write buffer was flushed, newer ones of their keys
    /// came, or they became part of another entry. Counted when the buffer is flushed; a count.
    pub dropped_before_flush_entries: u64,
    /// Bytes of keys and values of those.
    pub dropped_before_flush_bytes: u64,
    /// Entries that merges of its flushes and jobs found dead: hidden by newer ones, tombstones with nothing
    /// below them, operands and what they change; a count.
    pub dropped_in_merges_entries: u64,
    /// Bytes of keys and values of those.
    pub dropped_in_merges_bytes: u64,
    /// Entries made of operands and of what they change, which count as dropped themselves; a count. Writes
    /// that were flushed and these together are in the tree or were dropped.
    pub folded_entries: u64,
    /// Bytes of keys and values of those.
    pub folded_bytes: u64,
    /// Everything up to this seqno is in its tree.
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
