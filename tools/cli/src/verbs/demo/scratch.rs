//! Directory of the demo's store: a temporary one in the current directory, or one named by the user.
//!
//! **Invariants**
//! - A directory that is not empty is rejected.
//! - A temporary directory is removed on drop.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use testudo_env::{Env, RealEnv};

use crate::failure::{Failure, say};

/// Empty directory.
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
                return Err(Failure::about(path.display(), "the demo needs a new or empty directory"));
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
