//! The store that a salvage writes.
//!
//! **Invariants**
//! - It carries the mark of an unfinished store until everything in it is durable.
//! - A salvage that fails leaves nothing behind.

use std::path::PathBuf;

use testudo_base::{Error, Result, sync::Arc};
use testudo_env::{Env, OpenMode, OpenOptions};

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
        let names = directory::list(&*env, directory)?.unwrap_or_default();
        let is_unfinished = names.iter().any(|name| name == UNFINISHED_FILE);
        let is_ours = is_unfinished && names.iter().all(|name| directory::is_store_file(name));
        if !is_ours && names.iter().any(|name| name != LOCK_FILE) {
            let directory = directory.display();
            let message = format!("{directory} is not empty: a new store needs a directory of its own");
            return Err(Error::invalid(message));
        }
        // The mark goes last, so that what is cut short here stays marked.
        let mark = |name: &&String| *name == UNFINISHED_FILE;
        for name in names.iter().filter(|name| !mark(name)).chain(names.iter().filter(mark)) {
            let path = directory.join(name);
            env.remove_file(&path).map_err(|e| directory::io(&path, e))?;
        }
        let db = Db::builder(directory).env(Arc::clone(&env)).memory_bytes(options.memory_bytes).open()?;
        let target = Self { db, env, directory: directory.to_owned(), made_directory };
        match target.mark() {
            Ok(()) => Ok(target),
            Err(error) => target.end(Err(error)),
        }
    }

    fn mark(&self) -> Result<()> {
        let path = self.directory.join(UNFINISHED_FILE);
        let options = OpenOptions { mode: OpenMode::CreateNew, direct: false };
        self.env.open(&path, options).map_err(|e| directory::io(&path, e))?;
        self.env.sync_dir(&self.directory).map_err(|e| directory::io(&self.directory, e))
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
            for name in directory::list(&*env, &directory).ok().flatten().unwrap_or_default() {
                if name != UNFINISHED_FILE {
                    let _ = env.remove_file(&directory.join(name));
                }
            }
            let _ = env.remove_file(&mark);
            if made_directory {
                let _ = env.remove_dir(&directory);
            }
        }
        ended
    }
}
