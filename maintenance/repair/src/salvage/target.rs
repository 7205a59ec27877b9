//! The store that a salvage writes.
//!
//! **Invariants**
//! - It carries the mark of an unfinished store from before its first file is written until everything in it
//!   is durable.
//! - Only the holder of its lock changes or removes it. A failed salvage leaves nothing behind.

use std::path::{Path, PathBuf};

use testudo_base::{Error, ErrorKind, Result, StoreId, sync::Arc};
use testudo_db::{
    Db,
    maintenance::{store_of, unfinished},
};
use testudo_env::Env;
use testudo_storage::SuperblockFile;
use testudo_store::directory::{self, LOCK_FILE, LockAs, UNFINISHED_FILE};

use crate::salvage::SalvageOptions;

/// A store under construction.
pub(crate) struct Target {
    pub(crate) db: Db,
    env: Arc<dyn Env>,
    directory: PathBuf,
    made_directory: bool,
}

impl Target {
    /// Begins a store in a directory that holds none.
    ///
    /// Errors: `Invalid` if the directory holds anything.
    pub(crate) fn begin(options: &SalvageOptions<'_>) -> Result<Self> {
        let directory = options.target.as_path();
        let (env, made_directory) = directory::anchor_or_make(&options.env, directory)?;
        let builder = Db::builder(directory).env(Arc::clone(&env)).memory_bytes(options.memory_bytes);
        match unfinished(builder).open() {
            Ok(db) => Ok(Self { db, env, directory: directory.to_owned(), made_directory }),
            Err(error) => {
                remove(&*env, directory, made_directory);
                Err(error)
            }
        }
    }

    /// Ends the store: finishes it if the outcome is good, and removes it otherwise.
    pub(crate) fn end<T>(self, outcome: Result<T>) -> Result<T> {
        let Self { db, env, directory, made_directory } = self;
        let store = store_of(&db).id;
        let closed = db.close();
        let ended = outcome.and_then(|value| {
            closed?;
            finish(&*env, &directory, store)?;
            Ok(value)
        });
        if ended.is_err() {
            remove(&*env, &directory, made_directory);
        }
        ended
    }
}

/// Removes the mark from the closed store with this id. Closing released its lock, so another process may
/// have replaced the store since.
///
/// Errors: `Locked`; `Io`.
fn finish(env: &dyn Env, directory: &Path, store: StoreId) -> Result<()> {
    let _lock = directory::lock(env, directory, LockAs::Owner)?;
    let names = directory::list(env, directory)?.unwrap_or_default();
    let is_marked = names.iter().any(|name| name == UNFINISHED_FILE);
    let is_ours = || SuperblockFile::open(env, directory, false).is_ok_and(|(_, found)| found.store == store);
    if !is_marked || !is_ours() {
        let message = format!("{}: another process replaced the new store", directory.display());
        return Err(Error::new(ErrorKind::Locked, message));
    }
    let mark = directory.join(UNFINISHED_FILE);
    env.sync_dir(directory)
        .and_then(|()| env.remove_file(&mark))
        .and_then(|()| env.sync_dir(directory))
        .map_err(|e| directory::io(directory, e))
}

/// Removes an unfinished store, unless another process has replaced it.
fn remove(env: &dyn Env, directory: &Path, made_directory: bool) {
    let unfinished = || {
        let names = directory::list(env, directory).ok().flatten().unwrap_or_default();
        Some(names).filter(|names| directory::makes_way(names))
    };
    if unfinished().is_none() {
        return;
    }
    let Ok(lock) = directory::lock(env, directory, LockAs::Creator) else { return };
    let names = unfinished();
    if let Some(names) = &names {
        // The mark is removed last but one, so that an interrupted removal stays marked.
        let last = [UNFINISHED_FILE, LOCK_FILE];
        let others = names.iter().map(String::as_str).filter(|name| !last.contains(name));
        others.chain(last).for_each(|name| _ = env.remove_file(&directory.join(name)));
    }
    drop(lock);
    if names.is_some() && made_directory {
        let _ = env.remove_dir(directory);
    }
}
