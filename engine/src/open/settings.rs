//! What a store is opened with.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use testudo_base::merge_operator::MergeOperators;
use testudo_env::{Env, RealEnv};

use crate::handles::options::Durability;

/// What a store is opened with; [`DbBuilder`](crate::DbBuilder) sets it.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) directory: PathBuf,
    pub(crate) env: Arc<dyn Env>,
    pub(crate) memory_bytes: u64,
    pub(crate) durability: Durability,
    pub(crate) merge_operators: MergeOperators,
    pub(crate) read_only: bool,
    pub(crate) create: bool,
    pub(crate) temporary: bool,
    /// A new store, which is marked as unfinished before anything of it is there; one that was not finished
    /// makes way for it.
    pub(crate) unfinished: bool,
    pub(crate) warm_restart: bool,
    pub(crate) warm_merges: bool,
    pub(crate) retained_percent: u32,
    pub(crate) record_cache: bool,
    pub(crate) small_runs_apart: bool,
}

impl Settings {
    /// The defaults.
    pub(crate) fn new(directory: &Path) -> Self {
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
            small_runs_apart: false,
        }
    }
}
