//! The files that keep the tail of the log, one per buffer (decision 0056), so that commits survive the
//! process.
//!
//! **Invariants**
//! - A file is removed only once everything in it is in a segment. That is when its buffer is released empty,
//!   when the log is closed, or after an opening has read it.
//! - Where the file system does not support mappings, a buffer is in memory only. Its commits are written to
//!   the segment before they are acknowledged.
//! - Without space for a file no buffer is created: commits wait for an existing one or are refused.

use std::{fmt, io, path::Path};

use testudo_base::{
    Error, Incarnation, Result, StoreId,
    errno::is_transient,
    num::u64_of,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};
use testudo_env::Env;

use crate::{
    append::buffer::{EmptyBuffer, TailFile},
    segment::tail_format::{TAIL_HEADER_BYTES, TailHeader, tail_file_name},
};

/// Files beyond the one that is needed are created only if the device has this many times their size free.
const FREE_TIMES: u64 = 8;

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Creates and removes the files.
pub(crate) struct TailFiles {
    env: Arc<dyn Env>,
    dir: Box<Path>,
    store_id: StoreId,
    incarnation: Incarnation,
    boot: Option<u128>,
    next_number: AtomicU64,
    /// The file system refuses to map files.
    is_unsupported: AtomicBool,
}

impl TailFiles {
    pub(crate) fn new(env: Arc<dyn Env>, dir: &Path, store_id: StoreId, incarnation: Incarnation) -> Self {
        let boot = env.boot_id();
        let (next_number, is_unsupported) = (0.into(), boot.is_none().into());
        Self { env, dir: dir.into(), store_id, incarnation, boot, next_number, is_unsupported }
    }

    /// Creates a buffer of `bytes`, in a file if the file system allows it. With `is_needed` the file may use
    /// reserved space.
    ///
    /// Errors: a lack of space, or a transient lack of another resource.
    pub(crate) fn make(&self, bytes: usize, is_needed: bool) -> Result<EmptyBuffer> {
        match self.make_file(bytes, is_needed) {
            Ok(Some(file)) => Ok(EmptyBuffer::kept(file, &self.header(bytes))),
            Err(error) if is_full(&error) || is_transient(&error) => Err(Error::io("log tail", error)),
            Ok(None) | Err(_) => Ok(EmptyBuffer::new(bytes, true)),
        }
    }

    /// Removes the file of a buffer that is no longer used. The contents of a file that cannot be removed are
    /// already in segments.
    pub(crate) fn give_up(&self, buffer: &EmptyBuffer) {
        if let Some(number) = buffer.file_number() {
            let _ = self.env.remove_file(&self.dir.join(tail_file_name(number)));
        }
    }

    /// Removes all files. REQUIRES: everything in them is in segments.
    pub(crate) fn remove_all(&self) {
        for number in 0..self.next_number.load(Relaxed) {
            let _ = self.env.remove_file(&self.dir.join(tail_file_name(number)));
        }
    }

    fn make_file(&self, bytes: usize, is_needed: bool) -> io::Result<Option<TailFile>> {
        if self.is_unsupported.load(Relaxed) {
            return Ok(None);
        }
        let bytes = TAIL_HEADER_BYTES + bytes;
        if !is_needed && self.env.free_bytes(&self.dir).is_ok_and(|free| free < u64_of(bytes) * FREE_TIMES) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let number = self.next_number.fetch_add(1, Relaxed);
        let path = self.dir.join(tail_file_name(number));
        match self.env.create_mapped(&path, bytes) {
            Ok(mapping) => Ok(Some(TailFile { mapping, number })),
            Err(error) => {
                self.is_unsupported.fetch_or(error.kind() == io::ErrorKind::Unsupported, Relaxed);
                Err(error)
            }
        }
    }

    fn header(&self, bytes: usize) -> TailHeader {
        TailHeader {
            store_id: self.store_id,
            incarnation: self.incarnation,
            boot: self.boot.unwrap_or_default(),
            buffer_bytes: u64_of(bytes),
        }
    }
}

impl fmt::Debug for TailFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TailFiles({})", self.dir.display())
    }
}
