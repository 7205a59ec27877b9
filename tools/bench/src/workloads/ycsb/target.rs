//! The records of a run, spread over keyspaces, and the checks of reads and scans.
//!
//! **Invariants**
//! - Record `n` is in keyspace `n mod K`; a keyspace holds nothing else.
//! - A verdict names records by number, never by bytes.

use testudo_base::num::{u64_of, usize_of};

use crate::{report::complaints::Verdict, subject::Records};

use super::{
    keys::KeyMaker,
    oracle::{Oracle, Sight},
    removed::Removed,
    values::{self, Lengths},
};

/// A set of records in a store.
pub(crate) struct Target<R> {
    pub(crate) keyspaces: Vec<R>,
    pub(crate) keys: KeyMaker,
    pub(crate) lengths: Lengths,
    pub(crate) oracle: Oracle,
    /// Records that are known to the oracle but were removed.
    pub(crate) removed: Removed,
}

impl<R: Records> Target<R> {
    /// Creates a target with the records of `oracle`.
    pub(crate) fn new(keyspaces: Vec<R>, keys: KeyMaker, lengths: Lengths, oracle: Oracle) -> Self {
        Self { keyspaces, keys, lengths, oracle, removed: Removed::new() }
    }

    #[inline]
    pub(crate) fn keyspace(&self, record: u64) -> &R {
        &self.keyspaces[usize_of(record % u64_of(self.keyspaces.len()))]
    }

    /// Returns the bytes of all existing records.
    pub(crate) fn live_bytes(&self) -> u64 {
        let records = self.oracle.acknowledged() - self.removed.count();
        records * (self.keys.key_bytes() + self.lengths.mean())
    }

    /// Judges the result of a read of `record` that began at `before`.
    #[inline]
    pub(crate) fn judge(&self, record: u64, before: Sight, found: Option<&[u8]>) -> Verdict {
        let value = match (found, self.removed.contains(record)) {
            (Some(value), false) => value,
            (None, true) => return Ok(()),
            (Some(_), true) => return Err(format!("record {record} was removed but is present")),
            (None, false) => return Err(format!("record {record} is missing")),
        };
        let (number, version) =
            values::read(value, self.lengths).map_err(|reason| format!("record {record}: {reason}"))?;
        if number != record {
            return Err(format!("record {record} has the value of record {number}"));
        }
        if !self.oracle.admits(record, before, version) {
            let expected = self.oracle.version(record);
            return Err(format!("record {record} has version {version}, not {expected} (modulo 16)"));
        }
        Ok(())
    }

    /// Judges an entry of a scan of keyspace `keyspace`; `key` is a buffer for the expected key. `exact` if
    /// there are no concurrent updates. Returns the record and its version.
    pub(crate) fn judge_entry(
        &self,
        keyspace: usize,
        entry: (&[u8], &[u8]),
        exact: bool,
        key: &mut Vec<u8>,
    ) -> Result<(u64, u8), String> {
        let (record, version) =
            values::read(entry.1, self.lengths).map_err(|reason| format!("an entry of a scan: {reason}"))?;
        self.keys.write(record, key);
        if key != entry.0 || usize_of(record % u64_of(self.keyspaces.len())) != keyspace {
            return Err(format!("a scan returned the value of record {record} under another key"));
        }
        if exact {
            let expected = self.oracle.version(record);
            if record >= self.oracle.reserved() || version != expected {
                return Err(format!("a scan returned record {record} at version {version}, not {expected}"));
            }
        }
        Ok((record, version))
    }
}

#[cfg(test)]
mod tests;
