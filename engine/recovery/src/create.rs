//! Creates a new store: mark `CREATING`, data file, manifest, superblock, then the mark is removed.
//!
//! **Invariants**
//! - The superblock makes it a store. A mark without a superblock is an interrupted creation, which is
//!   restarted.
//! - Creation removes only files that an unfinished creation may have left.

use std::path::Path;

use testudo_base::{Error, KeyspaceId, Result, RunId, Seqno, StoreId, sync::Arc};
use testudo_env::{OpenMode, OpenOptions};
use testudo_options::Settings;
use testudo_storage::{Change, DATA_FILE, Manifest, SUPERBLOCK_FILE};
use testudo_store::directory::{self, CREATING_FILE, LOCK_FILE, io, is_store_file};

/// Checks that a store may be created: the directory does not exist, is empty, or holds an unfinished
/// creation.
pub fn check_creatable(settings: &Settings, names: Option<&[String]>) -> Result<()> {
    let directory = settings.directory.display();
    let there = names.unwrap_or_default();
    let is_unfinished = there.iter().any(|name| name == CREATING_FILE);
    let is_of_a_store = |name: &String| {
        is_store_file(name) && ["manifest-", "wal-"].iter().any(|start| name.starts_with(start))
    };
    if there.iter().any(is_of_a_store) && !is_unfinished {
        return Err(Error::corruption(
            SUPERBLOCK_FILE,
            0,
            format!("the superblock of {directory} is missing: a repair rebuilds it"),
        ));
    }
    if settings.read_only || !settings.create {
        let what = if names.is_none() { "does not exist" } else { "is not a Testudo store" };
        return Err(Error::invalid(format!("{directory} {what}")));
    }
    let names = there;
    let ours = |name: &String| name != SUPERBLOCK_FILE && is_store_file(name);
    let only_lock = names.iter().all(|name| name == LOCK_FILE);
    if only_lock || (is_unfinished && names.iter().all(ours)) {
        return Ok(());
    }
    Err(Error::invalid(format!("{directory} is not a Testudo store and not empty")))
}

pub fn create(settings: &Settings, directory: &Path, names: &[String]) -> Result<()> {
    debug_assert!(!settings.read_only, "a reader creates no store");
    let env = &settings.env;
    let create = |name: &str, direct: bool| {
        let path = directory.join(name);
        env.open(&path, OpenOptions { mode: OpenMode::CreateNew, direct }).map_err(|e| io(&path, e))
    };
    if !names.iter().any(|name| name == CREATING_FILE) {
        create(CREATING_FILE, false)?;
    }
    env.sync_dir(directory).map_err(|e| io(directory, e))?;
    directory::sync_own_name(&**env, directory)?;
    let is_left_over =
        |name: &&String| ![LOCK_FILE, CREATING_FILE].contains(&name.as_str()) && is_store_file(name);
    for name in names.iter().filter(is_left_over) {
        let path = directory.join(name);
        env.remove_file(&path).map_err(|e| io(&path, e))?;
    }
    let data = create(DATA_FILE, true)?;
    data.sync().map_err(|e| Error::io(DATA_FILE, e))?;
    let store = StoreId(u128::from(env.random_u64()) << 64 | u128::from(env.random_u64()));
    let first =
        [Change::NextRun(RunId(1)), Change::NextKeyspace(KeyspaceId(1)), Change::LogStart(1, Seqno(0))];
    drop(Manifest::create(Arc::clone(env), directory, store, &first)?);
    let path = directory.join(CREATING_FILE);
    env.remove_file(&path).map_err(|e| io(&path, e))?;
    env.sync_dir(directory).map_err(|e| io(directory, e))
}
