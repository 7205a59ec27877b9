//! RocksDB's settings for a run: what a RocksDB engineer would choose for little memory and a fast device.
//!
//! The README of this package states the reason for each choice.
//!
//! **Invariants**
//! - Block cache and write buffers share one budget: write-buffer memory is charged to the cache.
//! - Options are destroyed only after the database is closed.
#![expect(unsafe_code, reason = "functions of a foreign library")]

use std::ffi::c_int;

use super::library::{Functions, Object};

/// RocksDB configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Leveled compaction, values in the tree.
    Plain,
    /// Values of at least [`MIN_BLOB_BYTES`] in separate files.
    Blobs,
    /// As `Plain`, with options that help some workloads and hurt others.
    Tuned,
    /// As `Plain`, with the log in process memory until its buffer is full.
    ManualWal,
}

impl Profile {
    /// Returns the profile with this number, for types with a const parameter.
    pub(crate) const fn of(number: u8) -> Self {
        match number {
            1 => Self::Blobs,
            2 => Self::Tuned,
            3 => Self::ManualWal,
            _ => Self::Plain,
        }
    }
}

const NO_COMPRESSION: c_int = 0;
const DATA_BLOCK_BINARY_AND_HASH: c_int = 1;
const MIB: u64 = 1 << 20;
const MIN_BLOB_BYTES: u64 = 512;
/// Memory outside the budget of cache and buffers: blocks under compaction, readers' iterators, allocator
/// waste.
const OUTSIDE_CACHE_MAX: u64 = 56 * MIB;
/// Maximum readahead of a compaction per file, in bytes; half of it for a long scan. Less with little memory.
const READAHEAD_MAX: u64 = 2 * MIB;

/// Everything that a database is opened with.
pub(crate) struct Options {
    functions: &'static Functions,
    pub(crate) options: Object,
    cache: Object,
    write_buffers: Object,
    readahead_bytes: usize,
}

/// Calls a function of the library.
macro_rules! call {
    ($functions:expr, $name:ident($($argument:expr),*)) => {{
        // SAFETY: every object was made by the library for this use and is not destroyed; the other arguments
        // are plain numbers.
        unsafe { ($functions.$name)($($argument),*) }
    }};
}

impl Options {
    /// Creates options for a total of `memory_bytes`.
    pub(crate) fn new(functions: &'static Functions, profile: Profile, memory_bytes: u64) -> Self {
        let budget = memory_bytes - (memory_bytes / 4).min(OUTSIDE_CACHE_MAX);
        // Three write buffers of 32 MiB, smaller if there are less than 256 MiB of memory.
        let write_buffer = (budget / 6).min(32 * MIB);
        let cache = new_cache(functions, profile, budget);
        let write_buffers =
            call!(functions, write_buffer_manager_create_with_cache(bytes(3 * write_buffer), cache, false));
        let options = call!(functions, options_create());
        let readahead_bytes = bytes((memory_bytes / 100).min(READAHEAD_MAX));
        let made = Self { functions, options, cache, write_buffers, readahead_bytes };
        made.set_writing(write_buffer);
        made.set_tables(profile);
        match profile {
            Profile::Plain => {}
            Profile::Blobs => made.set_blobs(),
            Profile::Tuned => call!(functions, options_set_enable_pipelined_write(options, 1)),
            Profile::ManualWal => call!(functions, options_set_manual_wal_flush(options, 1)),
        }
        made
    }

    /// Readahead of a full scan per file, in bytes.
    pub(crate) fn scan_readahead_bytes(&self) -> usize {
        self.readahead_bytes / 2
    }

    fn set_writing(&self, write_buffer: u64) {
        let (functions, options) = (self.functions, self.options);
        call!(functions, options_set_create_if_missing(options, 1));
        call!(functions, options_set_write_buffer_manager(options, self.write_buffers));
        call!(functions, options_set_write_buffer_size(options, bytes(write_buffer)));
        call!(functions, options_set_max_write_buffer_number(options, 3));
        // Level 0 triggers at four files; the tuning guide recommends a level 1 of the same size.
        call!(functions, options_set_max_bytes_for_level_base(options, 4 * write_buffer));
        call!(functions, options_set_target_file_size_base(options, write_buffer));
        call!(functions, options_set_level_compaction_dynamic_level_bytes(options, 1));
        call!(functions, options_set_max_background_jobs(options, 2));
        call!(functions, options_set_compression(options, NO_COMPRESSION));
        call!(functions, options_set_use_direct_reads(options, 1));
        call!(functions, options_set_use_direct_io_for_flush_and_compaction(options, 1));
        call!(functions, options_compaction_readahead_size(options, self.readahead_bytes));
        call!(functions, options_set_bytes_per_sync(options, MIB));
        call!(functions, options_set_wal_bytes_per_sync(options, MIB));
        call!(functions, options_set_stats_dump_period_sec(options, 0));
    }

    fn set_tables(&self, profile: Profile) {
        let functions = self.functions;
        let tables = call!(functions, block_based_options_create());
        let filter = call!(functions, filterpolicy_create_bloom_full(10.0));
        call!(functions, block_based_options_set_block_cache(tables, self.cache));
        call!(functions, block_based_options_set_filter_policy(tables, filter));
        call!(functions, block_based_options_set_cache_index_and_filter_blocks(tables, 1));
        call!(functions, block_based_options_set_cache_index_and_filter_blocks_with_high_priority(tables, 1));
        call!(functions, block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(tables, 1));
        if profile == Profile::Tuned {
            call!(functions, block_based_options_set_optimize_filters_for_memory(tables, 1));
            call!(
                functions,
                block_based_options_set_data_block_index_type(tables, DATA_BLOCK_BINARY_AND_HASH)
            );
        }
        call!(functions, options_set_block_based_table_factory(self.options, tables));
        call!(functions, block_based_options_destroy(tables));
    }

    fn set_blobs(&self) {
        let (functions, options) = (self.functions, self.options);
        call!(functions, options_set_enable_blob_files(options, 1));
        call!(functions, options_set_min_blob_size(options, MIN_BLOB_BYTES));
        call!(functions, options_set_blob_file_size(options, 64 * MIB));
        call!(functions, options_set_enable_blob_gc(options, 1));
        call!(functions, options_set_blob_gc_age_cutoff(options, 0.25));
        call!(functions, options_set_blob_cache(options, self.cache));
    }
}

impl Drop for Options {
    fn drop(&mut self) {
        call!(self.functions, options_destroy(self.options));
        call!(self.functions, write_buffer_manager_destroy(self.write_buffers));
        call!(self.functions, cache_destroy(self.cache));
    }
}

fn new_cache(functions: &Functions, profile: Profile, capacity: u64) -> Object {
    if profile == Profile::Tuned {
        // Zero lets the cache estimate the typical size of its entries.
        return call!(functions, cache_create_hyper_clock(bytes(capacity), 0));
    }
    let choice = call!(functions, lru_cache_options_create());
    call!(functions, lru_cache_options_set_capacity(choice, bytes(capacity)));
    let cache = call!(functions, cache_create_lru_opts(choice));
    call!(functions, lru_cache_options_destroy(choice));
    cache
}

fn bytes(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
