//! The store that a salvage writes.
//!
//! **Invariants**
//! - It carries the mark of an unfinished store from before there is anything of it until everything in it is
//!   durable.
//! - Only who holds its lock changes it or removes it. A salvage that fails leaves nothing behind.

use std::path::{Path, PathBuf};

use testudo_base::{Result, sync::Arc};
use testudo_env::Env;

use crate::{
    Db, SalvageOptions,
    open::directory::{self, LOCK_FILE, UNFINISHED_FILE},
};

/// A store in the making.
pub(crate) struct Target {
    pub(crate) db: Db,
    env: Arc<dyn Env>,
    directory: PathBuf,
    made_directory: bool,
}

impl Target {
    /// Begins a store where there is none.
    ///
    /// Errors: `Invalid` if the directory holds anything.
    pub(crate) fn begin(options: &SalvageOptions) -> Result<Self> {
        let directory = options.target.as_path();
        let (env, made_directory) = directory::anchor_or_make(&options.env, directory)?;
        let builder = Db::builder(directory).env(Arc::clone(&env)).memory_bytes(options.memory_bytes);
        match builder.unfinished().open() {
            Ok(db) => Ok(Self { db, env, directory: directory.to_owned(), made_directory }),
            Err(error) => {
                remove(&*env, directory, made_directory);
                Err(error)
            }
        }
    }

    /// Ends the store: finished if the outcome is good, removed otherwise.
    pub(crate) fn end<T>(self, outcome: Result<T>) -> Result<T> {
        let Self { db, env, directory, made_directory } = self;
        let closed = db.close();
        let mark = directory.join(UNFINISHED_FILE);
        let ended = outcome.and_then(|value| closed.map(|()| value)).and_then(|value| {
            env.sync_dir(&directory)
                .and_then(|()| env.remove_file(&mark))
                .and_then(|()| env.sync_dir(&directory))
                .map_err(|e| directory::io(&directory, e))?;
            Ok(value)
        });
        if ended.is_err() {
            remove(&*env, &directory, made_directory);
        }
        ended
    }
}

/// Removes what is left of a store that was not finished, unless somebody else has taken its place.
fn remove(env: &dyn Env, directory: &Path, made_directory: bool) {
    let is_ours = || {
        let names = directory::list(env, directory).ok().flatten().unwrap_or_default();
        let is_marked = names.iter().any(|name| name == UNFINISHED_FILE);
        let is_empty = names.iter().all(|name| name == LOCK_FILE);
        let is_ours = is_empty || is_marked && names.iter().all(|name| directory::is_store_file(name));
        is_ours.then_some(names)
    };
    if is_ours().is_none() {
        return;
    }
    let Ok(lock) = directory::lock(env, directory, true, true) else { return };
    let names = is_ours();
    if let Some(names) = &names {
        // The mark goes last but one, so that what is cut short here stays marked.
        let last = [UNFINISHED_FILE, LOCK_FILE];
        let others = names.iter().map(String::as_str).filter(|name| !last.contains(name));
        others.chain(last).for_each(|name| _ = env.remove_file(&directory.join(name)));
    }
    drop(lock);
    if names.is_some() && made_directory {
        let _ = env.remove_dir(directory);
    }
}
