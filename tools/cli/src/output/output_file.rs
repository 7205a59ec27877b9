//! Output files of verbs.

use std::{
    fs::{File, OpenOptions},
    io,
    path::Path,
};

use crate::failure::Failure;

/// Creates the file; fails if it exists.
pub(crate) fn create(path: &Path) -> Result<File, Failure> {
    let created = OpenOptions::new().write(true).create_new(true).open(path);
    created.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            Failure::about(path.display(), "already exists, and files are never overwritten")
        }
        _ => Failure::about(path.display(), error),
    })
}
