//! Working directory of a run: the user's own, or one created for the run.
//!
//! **Invariants**
//! - A created directory is removed on every exit path, errors and panics included; the user's is kept.
//! - The default parent is the current directory, not the system's temporary one, which may be in memory.

use std::path::{Path, PathBuf};

use rustix::fs::statfs;
use testudo::{Error, Result};
use testudo_env::Env;

const TMPFS_MAGIC: i64 = 0x0102_1994;
const RAMFS_MAGIC: i64 = 0x8584_58f6;

/// A directory for a store or for a file to measure.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    made_here: bool,
}

impl Scratch {
    /// Uses `dir` if the user named one (created if missing), else a new directory in `parent` or the current
    /// directory.
    pub(crate) fn new(env: &dyn Env, dir: Option<&Path>, parent: Option<&Path>) -> Result<Self> {
        let scratch = match dir {
            Some(dir) => {
                match env.create_dir(dir) {
                    Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                    result => result.map_err(|error| Error::io(format!("--dir {}", dir.display()), error))?,
                }
                Self { path: dir.to_owned(), made_here: false }
            }
            None => {
                let name = format!("testudo-bench-{}-{:08x}", std::process::id(), env.random_u64() >> 32);
                let path = parent.unwrap_or(Path::new(".")).join(name);
                env.create_dir(&path).map_err(|error| Error::io(path.display().to_string(), error))?;
                Self { path, made_here: true }
            }
        };
        scratch.warn_of_memory();
        Ok(scratch)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn warn_of_memory(&self) {
        let Ok(status) = statfs(&self.path) else { return };
        if [TMPFS_MAGIC, RAMFS_MAGIC].contains(&status.f_type) {
            eprintln!(
                "warning: {} is in memory, so these measurements are not of a disk",
                self.path.display()
            );
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.made_here
            && let Err(error) = std::fs::remove_dir_all(&self.path)
        {
            eprintln!("warning: {} could not be removed: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests;
