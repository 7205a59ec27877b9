//! Traces as batches of operations, independent of the file format.
//!
//! **Invariants**
//! - A trace is read as a stream; only the current batch is in memory.
//! - Bytes that do not match the format are an error with file and position; there is no guessing.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::Path,
};

use ruzstd::decoding::StreamingDecoder;
use testudo::{Error, Result};

use super::{block, git};
use crate::args::TraceFormat;

const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const BUFFER_BYTES: usize = 64 << 10;

/// One operation of a trace; sizes are the trace's, unscaled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Put {
        key: Vec<u8>,
        bytes: u64,
    },
    Delete {
        key: Vec<u8>,
    },
    Get {
        key: Vec<u8>,
    },
    /// A get, followed by a put if the key is absent.
    Fetch {
        key: Vec<u8>,
        bytes: u64,
    },
}

impl Operation {
    /// Returns the operation's key.
    pub(crate) fn into_key(self) -> Vec<u8> {
        match self {
            Self::Put { key, .. } | Self::Delete { key } | Self::Get { key } | Self::Fetch { key, .. } => key,
        }
    }
}

/// Decompressed bytes of a trace.
pub(crate) type Bytes = Box<dyn BufRead>;

/// An open trace.
pub(crate) enum Trace {
    Git(git::GitTrace),
    Blocks(block::BlockTrace),
}

impl Trace {
    /// Opens the file, in `format` or in a format detected from name and content.
    pub(crate) fn open(path: &Path, format: Option<TraceFormat>) -> Result<Self> {
        let name = path.display().to_string();
        let mut bytes = decompressed(path).map_err(|error| Error::io(name.as_str(), error))?;
        let format = match format {
            Some(format) => format,
            None => {
                let start = bytes.fill_buf().map_err(|error| Error::io(name.as_str(), error))?;
                detect(path, start)
                    .ok_or_else(|| Error::invalid(format!("{name}: unknown format, give --format")))?
            }
        };
        Ok(match format {
            TraceFormat::Git => Self::Git(git::GitTrace::new(bytes, name)),
            TraceFormat::Block => Self::Blocks(block::BlockTrace::requests(bytes, name)),
            TraceFormat::Accesses => Self::Blocks(block::BlockTrace::accesses(bytes, name)),
        })
    }

    /// Replaces `batch` with the next batch, to be applied atomically; returns `false` at the end of the
    /// trace.
    pub(crate) fn next_batch(&mut self, batch: &mut Vec<Operation>) -> Result<bool> {
        batch.clear();
        match self {
            Self::Git(trace) => trace.next_batch(batch),
            Self::Blocks(trace) => trace.next_batch(batch),
        }
    }
}

fn decompressed(path: &Path) -> io::Result<Bytes> {
    #[expect(clippy::disallowed_methods, reason = "a trace is the user's file, not the store's")]
    let mut file = BufReader::with_capacity(BUFFER_BYTES, File::open(path)?);
    if !file.fill_buf()?.starts_with(&ZSTD_MAGIC) {
        return Ok(Box::new(file));
    }
    let decoder = StreamingDecoder::new(file).map_err(io::Error::other)?;
    Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder)))
}

/// Detects the format from the file name, or else from the first bytes.
fn detect(path: &Path, start: &[u8]) -> Option<TraceFormat> {
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    let name = name.strip_suffix(".zst").unwrap_or(&name);
    match name.rsplit('.').next() {
        Some("txt") => Some(TraceFormat::Git),
        Some("bin") => Some(TraceFormat::Block),
        Some("u32") => Some(TraceFormat::Accesses),
        _ => (start.starts_with(b"B ") && start.get(2).is_some_and(u8::is_ascii_digit))
            .then_some(TraceFormat::Git),
    }
}

/// Fills `record`; returns `false` at the end, and an error if the record is truncated.
pub(crate) fn read_record(bytes: &mut dyn BufRead, record: &mut [u8]) -> io::Result<bool> {
    if bytes.fill_buf()?.is_empty() {
        return Ok(false);
    }
    bytes.read_exact(record)?;
    Ok(true)
}

/// Returns the keys of all operations of a trace, in order.
///
/// # Errors
/// If the file cannot be read or its format is unknown.
pub fn trace_keys(path: &Path) -> Result<Vec<Vec<u8>>> {
    let mut trace = Trace::open(path, None)?;
    let (mut keys, mut batch) = (Vec::new(), Vec::new());
    while trace.next_batch(&mut batch)? {
        keys.extend(batch.drain(..).map(Operation::into_key));
    }
    Ok(keys)
}

#[cfg(test)]
mod tests;
