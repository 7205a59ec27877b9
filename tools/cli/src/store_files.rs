//! Lists the files of a store's directory with their sizes, for `info` and `space`.

use std::path::Path;

use serde::Serialize;
use testudo_env::{EntryType, Env, OpenMode, OpenOptions};

use crate::{context::Context, failure::Failure};

/// File of a store.
#[derive(Debug, Serialize)]
pub(crate) struct StoreFile {
    /// File name.
    pub(crate) name: String,
    /// File length.
    pub(crate) bytes: u64,
    /// Bytes allocated on the device; less than the length if the file has holes.
    pub(crate) allocated_bytes: u64,
}

/// Lists all files of the directory, sorted by name.
pub(crate) fn list_store_files(context: &Context, dir: &Path) -> Result<Vec<StoreFile>, Failure> {
    // The path may be a link.
    let listed = context.env.anchor(dir).and_then(|env| env.list_dir(dir));
    let entries = listed.map_err(|error| Failure::about(dir.display(), error))?;
    let files = entries.into_iter().filter(|entry| entry.entry_type == EntryType::File);
    files.filter_map(|entry| measure(context, dir, entry.name).transpose()).collect()
}

/// Returns `None` for a file that has vanished: a concurrent writer creates and removes files.
fn measure(context: &Context, dir: &Path, name: String) -> Result<Option<StoreFile>, Failure> {
    let path = dir.join(&name);
    let sizes = || -> std::io::Result<(u64, u64)> {
        let file = context.env.open(&path, OpenOptions { mode: OpenMode::Read, direct: false })?;
        Ok((file.len()?, file.allocated_bytes()?))
    };
    match sizes() {
        Ok((bytes, allocated_bytes)) => Ok(Some(StoreFile { name, bytes, allocated_bytes })),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::about(path.display(), error)),
    }
}
