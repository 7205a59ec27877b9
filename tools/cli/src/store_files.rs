//! The files of a store's directory with their sizes, for `info` and `space`.

use std::path::Path;

use serde::Serialize;
use testudo_env::{EntryType, Env, OpenMode, OpenOptions};

use crate::{context::Context, failure::Failure};

/// One file.
#[derive(Debug, Serialize)]
pub(crate) struct StoreFile {
    /// Its name.
    pub(crate) name: String,
    /// Its length.
    pub(crate) bytes: u64,
    /// What it takes on the device; less than its length where it has holes.
    pub(crate) allocated_bytes: u64,
}

/// All files of the directory, sorted by name.
pub(crate) fn list_store_files(context: &Context, dir: &Path) -> Result<Vec<StoreFile>, Failure> {
    let entries = context.env.list_dir(dir).map_err(|error| Failure::about(dir.display(), error))?;
    let files = entries.into_iter().filter(|entry| entry.entry_type == EntryType::File);
    files.map(|entry| measure(context, dir, entry.name)).collect()
}

fn measure(context: &Context, dir: &Path, name: String) -> Result<StoreFile, Failure> {
    let path = dir.join(&name);
    let sizes = || {
        let file = context.env.open(&path, OpenOptions { mode: OpenMode::Read, direct: false })?;
        Ok((file.len()?, file.allocated_bytes()?))
    };
    let (bytes, allocated_bytes) =
        sizes().map_err(|error: std::io::Error| Failure::about(path.display(), error))?;
    Ok(StoreFile { name, bytes, allocated_bytes })
}
