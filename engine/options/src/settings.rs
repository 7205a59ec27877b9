//! Settings with which a store is opened.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use testudo_base::merge_operator::MergeOperators;
use testudo_env::{Env, RealEnv};

use crate::durability::Durability;

/// Settings with which a store is opened; `DbBuilder` sets them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Directory of the store.
    pub directory: PathBuf,
    /// Operating system, or a simulation of it.
    pub env: Arc<dyn Env>,
    /// Memory budget in bytes.
    pub memory_bytes: u64,
    /// Durability of commits that ask for no more.
    pub durability: Durability,
    /// Operators that keyspaces may name.
    pub merge_operators: MergeOperators,
    /// Opens for reading only.
    pub read_only: bool,
    /// Creates the store if there is none.
    pub create: bool,
    /// Removes the store when it is closed.
    pub temporary: bool,
    /// Creates a store that is marked as unfinished before any file exists, replacing an unfinished one.
    pub unfinished: bool,
    /// Keeps a list of hot pages and records for the next opening.
    pub warm_restart: bool,
    /// Puts pages that merges write into the cache where they replace cached ones.
    pub warm_merges: bool,
    /// Replaced runs that Bε-trees retain, in hundredths of the bytes of the tree.
    pub retained_percent: u32,
    /// Caches records in addition to pages.
    pub record_cache: bool,
    /// Threads that merge for flushes and jobs; `None` for one per core, 2 to 8.
    pub background_threads: Option<usize>,
    /// Limit on the bytes that jobs read per second.
    pub job_bytes_per_second: Option<u64>,
    /// Keeps small runs in extents of their own.
    pub small_runs_apart: bool,
}

impl Settings {
    /// The defaults.
    pub fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
            env: RealEnv::new(),
            memory_bytes: 256 << 20,
            durability: Durability::Buffered,
            merge_operators: MergeOperators::default(),
            read_only: false,
            create: true,
            temporary: false,
            unfinished: false,
            warm_restart: true,
            warm_merges: false,
            retained_percent: 0,
            record_cache: true,
            background_threads: None,
            job_bytes_per_second: None,
            small_runs_apart: false,
        }
    }
}
