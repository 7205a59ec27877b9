//! The part of RocksDB's C interface that is used, loaded lazily from a shared library.
//!
//! **Invariants**
//! - Signatures are those of `include/rocksdb/c.h`; a library that lacks any of the functions is rejected.
//! - Once loaded, the library stays loaded until the process ends.
#![expect(unsafe_code, reason = "functions of a foreign library")]

use std::{
    env,
    ffi::{c_char, c_double, c_int, c_uint, c_void},
    path::{Path, PathBuf},
    sync::OnceLock,
};

use libloading::Library;

/// An object of the library; its type is given by the name of the variable.
pub(crate) type Object = *mut c_void;
/// Out-parameter for the error message of a failed call.
pub(crate) type ErrorPlace = *mut *mut c_char;

/// Environment variable with the path of the library or of its directory.
pub(crate) const VARIABLE: &str = "ROCKSDB_LIBRARY";
const FILE: &str = "librocksdb.so";

macro_rules! functions {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions, named without the prefix `rocksdb_`.
        pub(crate) struct Functions {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            fn of(library: &Library) -> Result<Self, String> {
                Ok(Self {
                    $($name: {
                        let name = concat!("rocksdb_", stringify!($name));
                        // SAFETY: the type matches the function of this name in RocksDB's header.
                        let found = unsafe { library.get(name) };
                        *found.map_err(|error| format!("{name}: {error}"))?
                    },)*
                })
            }
        }
    };
}

functions! {
    open(Object, *const c_char, ErrorPlace) -> Object;
    close(Object);
    free(*mut c_void);
    put(Object, Object, *const c_char, usize, *const c_char, usize, ErrorPlace);
    delete(Object, Object, *const c_char, usize, ErrorPlace);
    get_pinned(Object, Object, *const c_char, usize, ErrorPlace) -> Object;
    pinnableslice_value(Object, *mut usize) -> *const c_char;
    pinnableslice_destroy(Object);
    get_default_column_family_handle(Object) -> Object;
    column_family_handle_destroy(Object);
    batched_multi_get_cf(
        Object, Object, Object, usize, *const *const c_char, *const usize, *mut Object, ErrorPlace, bool
    );
    create_iterator(Object, Object) -> Object;
    iter_seek(Object, *const c_char, usize);
    iter_next(Object);
    iter_valid(Object) -> u8;
    iter_key(Object, *mut usize) -> *const c_char;
    iter_value(Object, *mut usize) -> *const c_char;
    iter_get_error(Object, ErrorPlace);
    iter_destroy(Object);
    flushoptions_create() -> Object;
    flushoptions_destroy(Object);
    flush(Object, Object, ErrorPlace);
    writeoptions_create() -> Object;
    writeoptions_destroy(Object);
    writeoptions_set_sync(Object, u8);
    readoptions_create() -> Object;
    readoptions_destroy(Object);
    readoptions_set_iterate_upper_bound(Object, *const c_char, usize);
    readoptions_set_readahead_size(Object, usize);
    readoptions_set_fill_cache(Object, u8);
    lru_cache_options_create() -> Object;
    lru_cache_options_destroy(Object);
    lru_cache_options_set_capacity(Object, usize);
    cache_create_lru_opts(Object) -> Object;
    cache_create_hyper_clock(usize, usize) -> Object;
    cache_destroy(Object);
    write_buffer_manager_create_with_cache(usize, Object, bool) -> Object;
    write_buffer_manager_destroy(Object);
    filterpolicy_create_bloom_full(c_double) -> Object;
    block_based_options_create() -> Object;
    block_based_options_destroy(Object);
    block_based_options_set_block_cache(Object, Object);
    block_based_options_set_filter_policy(Object, Object);
    block_based_options_set_cache_index_and_filter_blocks(Object, u8);
    block_based_options_set_cache_index_and_filter_blocks_with_high_priority(Object, u8);
    block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(Object, u8);
    block_based_options_set_optimize_filters_for_memory(Object, u8);
    block_based_options_set_data_block_index_type(Object, c_int);
    options_create() -> Object;
    options_destroy(Object);
    options_set_create_if_missing(Object, u8);
    options_set_block_based_table_factory(Object, Object);
    options_set_write_buffer_manager(Object, Object);
    options_set_write_buffer_size(Object, usize);
    options_set_max_write_buffer_number(Object, c_int);
    options_set_target_file_size_base(Object, u64);
    options_set_max_bytes_for_level_base(Object, u64);
    options_set_level_compaction_dynamic_level_bytes(Object, u8);
    options_set_max_background_jobs(Object, c_int);
    options_set_compression(Object, c_int);
    options_set_use_direct_reads(Object, u8);
    options_set_use_direct_io_for_flush_and_compaction(Object, u8);
    options_compaction_readahead_size(Object, usize);
    options_set_bytes_per_sync(Object, u64);
    options_set_wal_bytes_per_sync(Object, u64);
    options_set_enable_pipelined_write(Object, u8);
    options_set_manual_wal_flush(Object, u8);
    options_set_stats_dump_period_sec(Object, c_uint);
    options_set_enable_blob_files(Object, u8);
    options_set_min_blob_size(Object, u64);
    options_set_blob_file_size(Object, u64);
    options_set_enable_blob_gc(Object, u8);
    options_set_blob_gc_age_cutoff(Object, c_double);
    options_set_blob_cache(Object, Object);
}

/// Returns the candidate paths of the library, in search order.
fn places() -> Vec<PathBuf> {
    let mut places = Vec::new();
    if let Some(named) = env::var_os(VARIABLE) {
        let named = PathBuf::from(named);
        places.push(if named.is_dir() { named.join(FILE) } else { named });
        return places;
    }
    if let Ok(program) = env::current_exe() {
        // Next to the program, or in the target directory it was built into.
        for folder in program.ancestors().skip(1).take(3) {
            places.push(folder.join("rocksdb").join(FILE));
        }
    }
    places.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("target").join("rocksdb").join(FILE));
    places
}

/// Returns the functions, or a message with instructions if the library is missing.
pub(crate) fn functions() -> Result<&'static Functions, String> {
    static FUNCTIONS: OnceLock<Result<Functions, String>> = OnceLock::new();
    FUNCTIONS.get_or_init(load).as_ref().map_err(Clone::clone)
}

fn load() -> Result<Functions, String> {
    let places = places();
    let Some(found) = places.iter().find(|place| place.is_file()) else {
        let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        return Err(format!(
            "RocksDB's library was not found (searched {}); run tools/bench-rivals/fetch-rocksdb, or set \
             {VARIABLE}",
            places.join(", ")
        ));
    };
    // SAFETY: the user named this library or fetched it for this purpose; its initializers do not depend on
    // this program.
    let library = unsafe { Library::new(found) };
    let library = library.map_err(|error| format!("{}: {error}", found.display()))?;
    let functions = Functions::of(&library).map_err(|error| format!("{}: {error}", found.display()))?;
    std::mem::forget(library);
    Ok(functions)
}
