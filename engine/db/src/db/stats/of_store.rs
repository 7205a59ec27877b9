//! Groups of [`DbStats`](super::DbStats), each with the function that fills it.

use testudo_base::{num::u64_of, sync::atomic::Ordering::Relaxed};
use testudo_store::{
    Store, background::stages::Stage, commits::delays::StallCause, memory::metadata::metadata_bytes,
    warm_restart::restore_state::RestoreState,
};

use super::metric::{Description, MetricUnit, Stat, StatGroup, stat_group};

stat_group! {
    /// Writes of users.
    #[group("writes")]
    pub struct WriteStats {
        /// Writes by users.
        #[metric("user_writes", Count)]
        pub count: u64,
        /// Bytes of keys and values written by users.
        #[metric("user_bytes_written", Bytes)]
        pub bytes: u64,
    }
}

impl WriteStats {
    pub(super) fn of(store: &Store) -> Self {
        let counters = &store.counters;
        Self { count: counters.user_writes.sum(), bytes: counters.user_bytes.sum() }
    }
}

stat_group! {
    /// Log and sequence numbers.
    #[group("log")]
    pub struct LogStats {
        /// Syncs of the log.
        #[metric("wal_syncs", Count)]
        pub syncs: u64,
        /// Bytes of large values that commits wrote to value logs instead of the log.
        #[metric("value_log_bytes", Bytes)]
        pub value_log_bytes: u64,
        /// Last assigned sequence number (seqno).
        #[metric("seqno", Seqno)]
        pub seqno: u64,
        /// Last durable seqno: every write up to it is on disk.
        #[metric("durable_seqno", Seqno)]
        pub durable_seqno: u64,
    }
}

impl LogStats {
    pub(super) fn of(store: &Store) -> Self {
        let wal = store.log.wal.as_ref();
        Self {
            syncs: wal.map_or(0, |wal| wal.stats().syncs),
            value_log_bytes: store.value_logs.bytes(),
            seqno: store.last_seqno().0,
            durable_seqno: wal.map_or_else(|| store.last_seqno(), |wal| wal.durable_seqno()).0,
        }
    }
}

stat_group! {
    /// Input and output of the device.
    #[group("io")]
    pub struct IoStats {
        /// Bytes written to log, data file, manifest and `hot-set` together.
        #[metric("device_bytes_written", Bytes)]
        pub bytes_written: u64,
        /// Bytes written to the log.
        #[metric("wal_bytes_written", Bytes)]
        pub wal_bytes_written: u64,
        /// Bytes written to the data file.
        #[metric("data_bytes_written", Bytes)]
        pub data_bytes_written: u64,
        /// Bytes written to the manifest.
        #[metric("manifest_bytes_written", Bytes)]
        pub manifest_bytes_written: u64,
        /// Bytes written to the file `hot-set`, for the warm restart.
        #[metric("hot_set_bytes_written", Bytes)]
        pub hot_set_bytes_written: u64,
        /// Bytes read from the data file and from `hot-set`.
        #[metric("device_bytes_read", Bytes)]
        pub bytes_read: u64,
        /// Page reads for queries; a count.
        #[metric("page_reads", Count)]
        pub page_reads: u64,
        /// Bytes of page reads for queries.
        #[metric("page_read_bytes", Bytes)]
        pub page_read_bytes: u64,
        /// Large sequential reads, by scans and background work; a count.
        #[metric("stream_reads", Count)]
        pub stream_reads: u64,
        /// Bytes of large sequential reads.
        #[metric("stream_read_bytes", Bytes)]
        pub stream_read_bytes: u64,
    }
}

impl IoStats {
    pub(super) fn of(store: &Store) -> Self {
        let data = store.data.io_stats();
        let wal_bytes_written = store.log.wal.as_ref().map_or(0, |wal| wal.stats().bytes_written);
        let manifest_bytes_written = store.manifest.stats().bytes_written;
        let hot_set_bytes_written = store.warm.bytes_written();
        Self {
            bytes_written: wal_bytes_written
                + data.written_bytes
                + manifest_bytes_written
                + hot_set_bytes_written,
            wal_bytes_written,
            data_bytes_written: data.written_bytes,
            manifest_bytes_written,
            hot_set_bytes_written,
            bytes_read: data.page_read_bytes + data.stream_read_bytes + store.warm.file_bytes_read(),
            page_reads: data.page_reads,
            page_read_bytes: data.page_read_bytes,
            stream_reads: data.stream_reads,
            stream_read_bytes: data.stream_read_bytes,
        }
    }
}

stat_group! {
    /// Iterators.
    #[group("scans")]
    pub struct ScanStats {
        /// Tombstones that iterators skipped one by one to reach the next entry; a count.
        #[metric("tombstones_passed", Count)]
        pub tombstones_passed: u64,
        /// Bytes of memory of gaps: ranges of keys in which an iterator found only tombstones, and which
        /// later iterators seek past.
        #[metric("gap_bytes", Bytes)]
        pub gap_bytes: u64,
        /// Bytes of memory that open iterators use for pages and entries. If it exceeds an eighth of the
        /// budget, they keep less and are slower.
        #[metric("iterator_bytes", Bytes)]
        pub iterator_bytes: u64,
    }
}

impl ScanStats {
    pub(super) fn of(store: &Store) -> Self {
        Self {
            tombstones_passed: store.counters.tombstones_passed.sum(),
            gap_bytes: store.gap_bytes.load(Relaxed),
            iterator_bytes: store.iterators.bytes(),
        }
    }
}

stat_group! {
    /// Page cache.
    #[group("page cache")]
    pub struct PageCacheStats {
        /// Page cache hits.
        #[metric("cache_hits", Count)]
        pub hits: u64,
        /// Page cache misses.
        #[metric("cache_misses", Count)]
        pub misses: u64,
        /// Bytes of pages in the cache.
        #[metric("cache_used_bytes", Bytes)]
        pub used_bytes: u64,
        /// Maximum bytes of pages in the cache.
        #[metric("cache_capacity_bytes", Bytes)]
        pub capacity_bytes: u64,
        /// Bytes of memory that the page cache borrows beyond its own share; write buffers and records do not
        /// need it at the moment.
        #[metric("cache_borrowed_bytes", Bytes)]
        pub borrowed_bytes: u64,
        /// Pages that merges inserted into the page cache in place of pages that queries used.
        #[metric("warmed_pages", Count)]
        pub warmed_pages: u64,
    }
}

impl PageCacheStats {
    pub(super) fn of(store: &Store) -> Self {
        let cache = store.data.cache_stats();
        Self {
            hits: cache.hits,
            misses: cache.misses,
            used_bytes: cache.used_bytes,
            capacity_bytes: cache.capacity_bytes,
            borrowed_bytes: store.arena_pool.division().page_bytes(),
            warmed_pages: cache.warmed,
        }
    }
}

stat_group! {
    /// Record cache.
    #[group("record cache")]
    pub struct RecordCacheStats {
        /// Record cache hits.
        #[metric("record_hits", Count)]
        pub hits: u64,
        /// Record cache misses.
        #[metric("record_misses", Count)]
        pub misses: u64,
        /// Records inserted into the record cache.
        #[metric("record_inserts", Count)]
        pub inserts: u64,
        /// Records evicted from the record cache.
        #[metric("record_evictions", Count)]
        pub evictions: u64,
        /// Records in the record cache; a count.
        #[metric("cached_records", Count)]
        pub records: u64,
        /// Bytes of the record cache and its index.
        #[metric("record_cache_bytes", Bytes)]
        pub used_bytes: u64,
        /// Target size of the record cache in bytes, out of the memory that it shares with borrowed pages.
        /// The split follows the reads that each of the two would have saved with more memory.
        #[metric("record_due_bytes", Bytes)]
        pub target_bytes: u64,
    }
}

impl RecordCacheStats {
    pub(super) fn of(store: &Store) -> Self {
        let records = store.records.stats();
        Self {
            hits: records.hits,
            misses: records.misses,
            inserts: records.inserted,
            evictions: records.evicted,
            records: records.records,
            used_bytes: records.used_bytes,
            target_bytes: store.arena_pool.division().record_due_bytes(),
        }
    }
}

stat_group! {
    /// Warm restart.
    #[group("warm restart")]
    pub struct RestoreStats {
        /// State of reading back the pages and records that were hot before the store was opened.
        #[metric("restore_state", Text)]
        pub state: RestoreState,
        /// Pages restored because they were in the page cache before the store was opened.
        #[metric("restored_pages", Count)]
        pub pages: u64,
        /// Restored pages that were used since.
        #[metric("restored_page_hits", Count)]
        pub page_hits: u64,
        /// Records restored because they were in the record cache before the store was opened.
        #[metric("restored_records", Count)]
        pub records: u64,
        /// Record cache hits on restored records.
        #[metric("restored_record_hits", Count)]
        pub record_hits: u64,
        /// Bytes read to restore pages and records.
        #[metric("restore_bytes_read", Bytes)]
        pub bytes_read: u64,
    }
}

impl RestoreStats {
    pub(super) fn of(store: &Store) -> Self {
        let (cache, records) = (store.data.cache_stats(), store.records.stats());
        Self {
            state: store.warm.state(),
            pages: cache.restored,
            page_hits: cache.restored_hits,
            records: records.restored,
            record_hits: records.restored_hits,
            bytes_read: store.warm.bytes_read(),
        }
    }
}

stat_group! {
    /// Use of memory.
    #[group("memory")]
    pub struct MemoryStats {
        /// Memory budget, in bytes.
        #[metric("memory_bytes", Bytes)]
        pub budget_bytes: u64,
        /// Bytes of memory of memtables, including memory that neither they nor cached records use.
        #[metric("memtable_bytes", Bytes)]
        pub memtable_bytes: u64,
        /// Estimated bytes of metadata that cannot be evicted: keyspaces, nodes of trees, references to runs,
        /// the state of the manifest. The caches shrink by the part of it beyond a 24th of the budget (at
        /// most 24 MiB). For budgets from 32 to 168 MiB that threshold is higher, up to 7 MiB.
        #[metric("metadata_bytes", Bytes)]
        pub metadata_bytes: u64,
    }
}

impl MemoryStats {
    pub(super) fn of(store: &Store) -> Self {
        let record_bytes = store.records.stats().used_bytes;
        Self {
            budget_bytes: store.memory.shares().total,
            memtable_bytes: store.arena_pool.used_bytes().saturating_sub(record_bytes),
            metadata_bytes: metadata_bytes(store),
        }
    }
}

stat_group! {
    /// Write buffers' share of the memory budget, and its governor.
    #[group("write memory")]
    pub struct WriteMemoryStats {
        /// Share of the memory budget for write buffers, in bytes.
        #[metric("write_memory_bytes", Bytes)]
        pub bytes: u64,
        /// Whether the store adjusts that share automatically.
        #[metric("write_memory_auto", Flag)]
        pub is_auto: bool,
        /// Automatic changes of that share; a count.
        #[metric("write_memory_changes", Count)]
        pub changes: u64,
        /// Size of write memory that the store estimates as optimal: one more byte saves as much rewriting
        /// there as reads in the caches.
        #[metric("write_memory_wanted_bytes", Bytes)]
        pub wanted_bytes: u64,
        /// First input of that estimate: bytes that users wrote recently.
        #[metric("write_memory_seen_bytes", Bytes)]
        pub seen_bytes: u64,
        /// Second input: device reads that slightly larger caches would have saved recently; a count.
        #[metric("write_memory_seen_misses", Count)]
        pub seen_misses: u64,
        /// Size at which the write buffer of a single keyspace is flushed (χ), in bytes.
        #[metric("flush_distance_bytes", Bytes)]
        pub flush_distance_bytes: u64,
    }
}

impl WriteMemoryStats {
    pub(super) fn of(store: &Store) -> Self {
        let (shares, decision) = (store.memory.shares(), store.memory.last_decision());
        Self {
            bytes: shares.write_buffers,
            is_auto: store.memory.is_auto(),
            changes: decision.changes,
            wanted_bytes: rounded(decision.wanted * shares.total as f64),
            seen_bytes: rounded(decision.written),
            seen_misses: rounded(decision.missed),
            flush_distance_bytes: shares.flush_distance(),
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and is not negative")]
fn rounded(value: f64) -> u64 {
    value.round() as u64
}

stat_group! {
    /// Space on the device.
    #[group("space")]
    pub struct SpaceStats {
        /// Bytes on the device of data file, log, manifest, the reserve and, unless it is disabled, the file
        /// for a warm restart: everything but a few kilobytes.
        #[metric("disk_bytes", Bytes)]
        pub disk_bytes: u64,
        /// Bytes that the data file occupies on the device.
        #[metric("data_file_bytes", Bytes)]
        pub data_file_bytes: u64,
        /// Bytes of extents that the durable state refers to.
        #[metric("live_bytes", Bytes)]
        pub live_bytes: u64,
        /// Bytes of extents held only by memory: work in progress, snapshots.
        #[metric("held_bytes", Bytes)]
        pub held_bytes: u64,
        /// Bytes of the data file that can be reused.
        #[metric("free_bytes", Bytes)]
        pub free_bytes: u64,
        /// Bytes of log segments that are still needed.
        #[metric("wal_live_bytes", Bytes)]
        pub wal_live_bytes: u64,
        /// Length of the current manifest.
        #[metric("manifest_bytes", Bytes)]
        pub manifest_bytes: u64,
        /// Device space reserved for a full device, in bytes; less than `whole_reserve_bytes` while the
        /// device is full.
        #[metric("reserve_bytes", Bytes)]
        pub reserve_bytes: u64,
        /// Size of the whole reserve.
        #[metric("whole_reserve_bytes", Bytes)]
        pub whole_reserve_bytes: u64,
    }
}

impl SpaceStats {
    pub(super) fn of(store: &Store) -> Self {
        let extents = store.data.space_stats();
        let data_file_bytes = store.data.allocated_bytes().unwrap_or(0);
        let wal_live_bytes = store.log.wal.as_ref().map_or(0, |wal| wal.live_bytes());
        let manifest_bytes = store.manifest.stats().file_bytes;
        let reserve_file_bytes = store.space.reserve_bytes();
        let (held_bytes, whole_held_bytes) = store.nearly_full.held_bytes();
        Self {
            disk_bytes: data_file_bytes
                + wal_live_bytes
                + manifest_bytes
                + reserve_file_bytes
                + store.warm.file_bytes(),
            data_file_bytes,
            live_bytes: extents.live_bytes,
            held_bytes: extents.held_bytes,
            free_bytes: extents.free_bytes,
            wal_live_bytes,
            manifest_bytes,
            reserve_bytes: reserve_file_bytes + held_bytes,
            whole_reserve_bytes: store.space.whole_reserve_bytes() + whole_held_bytes,
        }
    }
}

stat_group! {
    /// Flushes.
    #[group("flush")]
    pub struct FlushStats {
        /// Flush rounds.
        #[metric("flushes", Count)]
        pub count: u64,
        /// Bytes of memtables that were flushed.
        #[metric("flushed_bytes", Bytes)]
        pub bytes: u64,
        /// Time of flush rounds until the log was synced, in microseconds.
        #[metric("flush_log_micros", Micros)]
        pub log_micros: u64,
        /// Time of planning, merging and writing runs, in microseconds.
        #[metric("flush_apply_micros", Micros)]
        pub apply_micros: u64,
        /// Time of syncing the data file, in microseconds.
        #[metric("flush_data_micros", Micros)]
        pub data_micros: u64,
        /// Time of writing and syncing manifest edits, in microseconds.
        #[metric("flush_edit_micros", Micros)]
        pub edit_micros: u64,
        /// Time of publishing the new trees and releasing the log, in microseconds.
        #[metric("flush_publish_micros", Micros)]
        pub publish_micros: u64,
        /// Duration of the longest flush round, in microseconds.
        #[metric("max_flush_micros", Micros)]
        pub max_micros: u64,
    }
}

impl FlushStats {
    pub(super) fn of(store: &Store) -> Self {
        let stages = &store.counters.stages;
        Self {
            count: store.counters.flushes.load(Relaxed),
            bytes: stages.bytes(),
            log_micros: stages.micros(Stage::Log),
            apply_micros: stages.micros(Stage::Apply),
            data_micros: stages.micros(Stage::Data),
            edit_micros: stages.micros(Stage::Edit),
            publish_micros: stages.micros(Stage::Publish),
            max_micros: stages.max_micros(),
        }
    }
}

stat_group! {
    /// Background jobs of trees.
    #[group("jobs")]
    pub struct JobStats {
        /// Background jobs of trees, flushes excluded.
        #[metric("jobs", Count)]
        pub count: u64,
        /// Jobs whose result was discarded because a flush had changed their input.
        #[metric("jobs_overtaken", Count)]
        pub overtaken: u64,
        /// Jobs in progress.
        #[metric("jobs_in_progress", Count)]
        pub in_progress: u64,
        /// Bytes of entries that jobs have read to merge them.
        #[metric("job_bytes", Bytes)]
        pub bytes: u64,
        /// Bytes of entries that the largest job has read.
        #[metric("max_job_bytes", Bytes)]
        pub max_bytes: u64,
        /// Present limit on the bytes that a job reads, and on those that it writes: about a quarter of a
        /// second of the device's work. A tree whose smallest unit of work is larger exceeds it.
        #[metric("job_bytes_limit", Bytes)]
        pub bytes_limit: u64,
        /// Limit on the bytes that jobs read per second; 0 for none.
        #[metric("job_bytes_per_second", Bytes)]
        pub bytes_per_second: u64,
        /// Jobs are paused.
        #[metric("jobs_paused", Flag)]
        pub is_paused: bool,
    }
}

impl JobStats {
    pub(super) fn of(store: &Store) -> Self {
        let (counters, limits) = (&store.counters, &store.background.limits);
        Self {
            count: counters.jobs.load(Relaxed),
            overtaken: counters.jobs_overtaken.load(Relaxed),
            in_progress: u64_of(store.background.jobs.all().len()),
            bytes: limits.bytes(),
            max_bytes: limits.largest(),
            bytes_limit: store.job_bytes_max(),
            bytes_per_second: limits.bytes_per_second().unwrap_or(0),
            is_paused: limits.is_paused(),
        }
    }
}

stat_group! {
    /// Backpressure on writers.
    #[group("stalls")]
    pub struct StallStats {
        /// Number of times a writer waited because the write memory was exhausted.
        #[metric("write_stalls", Count)]
        pub count: u64,
        /// Longest delay of a writer, in microseconds.
        #[metric("max_stall_micros", Micros)]
        pub max_micros: u64,
        /// Cause of the longest delay of a writer.
        #[metric("max_stall_cause", Text)]
        pub max_cause: StallCause,
        /// Total time for which writers were throttled, in microseconds: the sum of those by cause.
        #[metric("throttled_micros", Micros)]
        pub throttled_micros: u64,
        /// Time for which writers were slowed down because write memory filled faster than a flush, or the
        /// spilling of buffers that snapshots hold, emptied it, in microseconds.
        #[metric("throttled_by_flush_micros", Micros)]
        pub by_flush_micros: u64,
        /// Time for which writers waited because write memory was exhausted, in microseconds.
        #[metric("throttled_by_memory_micros", Micros)]
        pub by_memory_micros: u64,
        /// Time for which writers waited because their keyspace exceeded its own share of the write memory,
        /// or the capacity of a write buffer, in microseconds.
        #[metric("throttled_by_share_micros", Micros)]
        pub by_share_micros: u64,
        /// Time for which writers waited for jobs of their own keyspace, in microseconds.
        #[metric("throttled_by_jobs_micros", Micros)]
        pub by_jobs_micros: u64,
        /// Time for which writers waited because the device wrote the log more slowly than they filled its
        /// buffers, in microseconds.
        #[metric("throttled_by_log_micros", Micros)]
        pub by_log_micros: u64,
        /// Keyspaces whose flush waits for jobs.
        #[metric("keyspaces_behind", Count)]
        pub behind: u64,
    }
}

impl StallStats {
    pub(super) fn of(store: &Store) -> Self {
        let (pressure, delays) = (&store.backpressure, &store.backpressure.delays);
        let log = store.log.wal.as_ref().map(|wal| wal.stats()).unwrap_or_default();
        let longest_of_log = (log.longest_wait_micros, StallCause::Log);
        let (max_micros, max_cause) = match delays.longest() {
            longest if longest.0 >= longest_of_log.0 => longest,
            _ => longest_of_log,
        };
        Self {
            count: pressure.stalls.load(Relaxed),
            max_micros,
            max_cause,
            throttled_micros: delays.total_micros() + log.wait_micros,
            by_flush_micros: delays.micros(StallCause::Flush),
            by_memory_micros: delays.micros(StallCause::Memory),
            by_share_micros: delays.micros(StallCause::OwnShare),
            by_jobs_micros: delays.micros(StallCause::Jobs),
            by_log_micros: log.wait_micros,
            behind: u64_of(pressure.behind.count()),
        }
    }
}

stat_group! {
    /// Keyspaces and snapshots.
    #[group("state")]
    pub struct StateStats {
        /// Number of keyspaces.
        #[metric("keyspaces", Count)]
        pub keyspaces: u64,
        /// Live snapshots; a count.
        #[metric("snapshots", Count)]
        pub snapshots: u64,
    }
}

impl StateStats {
    pub(super) fn of(store: &Store) -> Self {
        Self {
            keyspaces: u64_of(store.keyspaces().len()),
            snapshots: u64_of(store.snapshots.live.lock().values().sum()),
        }
    }
}
