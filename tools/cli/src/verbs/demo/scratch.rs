//! The directory of the demo's store: temporary beside where one is, or one that the person named.
//!
//! **Invariants**
//! - A directory that holds anything is refused.
//! - A temporary directory is removed when this is dropped.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use testudo_env::{Env, RealEnv};

use crate::failure::{Failure, say};

/// An empty directory.
pub(super) struct Scratch {
    path: PathBuf,
    temporary: bool,
}

impl Scratch {
    pub(super) fn new(env: &Arc<RealEnv>, named: Option<&Path>) -> Result<Self, Failure> {
        let temporary = named.is_none();
        let path = match named {
            Some(path) => path.to_owned(),
            None => PathBuf::from(format!("testudo-demo-{:016x}", env.random_u64())),
        };
        let failure = |error| Failure::about(path.display(), error);
        match env.list_dir(&path) {
            Ok(entries) if entries.is_empty() => {}
            Ok(_) => {
                return Err(Failure::about(
                    path.display(),
                    "the demo needs a directory that is new or empty",
                ));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                env.create_dir(&path).map_err(failure)?
            }
            Err(error) => return Err(failure(error)),
        }
        Ok(Self { path, temporary })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn is_temporary(&self) -> bool {
        self.temporary
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.temporary {
            return;
        }
        if let Err(error) = fs::remove_dir_all(&self.path) {
            say(&format!("{}: could not be removed: {error}", self.path.display()));
        }
    }
}
