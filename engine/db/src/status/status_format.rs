//! Format of the file `status`: human-readable text, preceded by its length and checksum.
//!
//! ```text
//! testudo-status LLLLLLLLLL CCCCCCCCCCCCCCCC\n     decimal length, hex XXH3, of the rest
//! store 0123456789abcdef0123456789abcdef\n
//! process 4711\n
//! time_ms 1763823909000\n                          since 1970
//! user_writes 12\n                                 … a line for each statistic of the store
//! keyspace 3\n                                     … then for each keyspace its id and its statistics
//! entries 100\n
//! ```
//!
//! A new status overwrites the previous one; bytes beyond the length are ignored.
//!
//! **Invariants**
//! - A status that is torn, by a crash or a write in progress, does not decode.
//! - It is written in chunks, with the first bytes last, because there may be thousands of keyspaces.
//! - Statistics have their published names (`stats/metric.rs`). A flag is 0 or 1, a state its number.
//! - Unknown statistics are skipped; missing ones are 0.

use std::time::Duration;

use testudo_base::{
    KeyspaceId, StoreId,
    checksum::{StreamChecksum, checksum64},
    num::{u64_of, usize_of},
};

use crate::{DbStats, KeyspaceStats, db::stats::StatGroup};

/// Maximum length of a status.
pub(super) const MAX_BYTES: u64 = 64 << 20;
const HEADER_BYTES: usize = "testudo-status 0000000000 0000000000000000\n".len();
/// Approximate bytes per write.
const CHUNK_BYTES: usize = 32 << 10;

/// Statistics that a writing process publishes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Status {
    pub(super) store: StoreId,
    pub(super) process: u32,
    /// Time of publication, since 1970.
    pub(super) time: Duration,
    pub(super) stats: DbStats,
    /// Without names and trees, which are in the manifest.
    pub(super) keyspaces: Vec<(KeyspaceId, KeyspaceStats)>,
}

/// Writes a status; `write` receives chunks with their offsets.
pub(super) struct StatusWriter<W> {
    write: W,
    /// Text that is not written yet.
    chunk: String,
    /// Bytes of text written so far.
    written: usize,
    checksum: StreamChecksum,
}

impl<W: FnMut(u64, &[u8])> StatusWriter<W> {
    /// Starts with the part that is not about a keyspace; ignores the keyspaces of `status`.
    pub(super) fn begin(status: &Status, write: W) -> Self {
        let Status { store, process, time, stats, keyspaces: _ } = status;
        let chunk = format!("store {:032x}\nprocess {process}\ntime_ms {}\n", store.0, time.as_millis());
        let mut writer = Self { write, chunk, written: 0, checksum: StreamChecksum::new(0) };
        stats.each_code(|name, code| writer.line(name, code));
        writer
    }

    /// Appends the next keyspace.
    pub(super) fn add(&mut self, keyspace: KeyspaceId, stats: &KeyspaceStats) {
        self.line("keyspace", u64::from(keyspace.0));
        stats.each_code(|name, code| self.line(name, code));
        if self.chunk.len() >= CHUNK_BYTES {
            self.checksum.update(self.chunk.as_bytes());
            (self.write)(u64_of(HEADER_BYTES + self.written), self.chunk.as_bytes());
            self.written += self.chunk.len();
            self.chunk.clear();
        }
    }

    /// Writes the rest, then the header that makes all of it valid; returns the checksum of the text.
    pub(super) fn end(mut self) -> u64 {
        self.checksum.update(self.chunk.as_bytes());
        let (checksum, bytes) = (self.checksum.value(), self.written + self.chunk.len());
        let header = format!("testudo-status {bytes:010} {checksum:016x}\n");
        if self.written == 0 {
            (self.write)(0, (header + &self.chunk).as_bytes());
        } else {
            (self.write)(u64_of(HEADER_BYTES + self.written), self.chunk.as_bytes());
            (self.write)(0, header.as_bytes());
        }
        checksum
    }

    fn line(&mut self, name: &str, stat: u64) {
        self.chunk.push_str(&format!("{name} {stat}\n"));
    }
}

impl Status {
    #[cfg(test)]
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = StatusWriter::begin(self, |offset, chunk: &[u8]| {
            let start = usize_of(offset);
            bytes.resize(bytes.len().max(start + chunk.len()), 0);
            bytes[start..start + chunk.len()].copy_from_slice(chunk);
        });
        self.keyspaces.iter().for_each(|(id, stats)| writer.add(*id, stats));
        writer.end();
        bytes
    }

    /// Decodes a status; `None` if it is torn or damaged.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (header, rest) = bytes.split_at_checked(HEADER_BYTES)?;
        let mut words = std::str::from_utf8(header).ok()?.strip_suffix('\n')?.split(' ');
        let length: u64 = match (words.next()?, words.next()?.parse()) {
            ("testudo-status", Ok(length)) => length,
            _ => return None,
        };
        let checksum = u64::from_str_radix(words.next()?, 16).ok()?;
        let text = rest.get(..usize_of(length.min(u64_of(usize::MAX))))?;
        if checksum != checksum64(text, 0) {
            return None;
        }
        let mut status = Self::default();
        for line in std::str::from_utf8(text).ok()?.lines() {
            status.take(line)?;
        }
        Some(status)
    }

    fn take(&mut self, line: &str) -> Option<()> {
        let (name, value) = line.split_once(' ')?;
        if name == "store" {
            self.store = StoreId(u128::from_str_radix(value, 16).ok()?);
            return Some(());
        }
        let value: u64 = value.parse().ok()?;
        match name {
            "process" => self.process = u32::try_from(value).ok()?,
            "time_ms" => self.time = Duration::from_millis(value),
            "keyspace" => {
                self.keyspaces.push((KeyspaceId(u32::try_from(value).ok()?), KeyspaceStats::default()));
            }
            _ => match self.keyspaces.last_mut() {
                Some((_, stats)) => stats.set_code(name, value),
                None => self.stats.set_code(name, value),
            },
        }
        Some(())
    }
}

#[cfg(test)]
mod tests;
