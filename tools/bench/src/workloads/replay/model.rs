//! Expected state of the store: for each live key, the operation that wrote it and the value length. The
//! value is derived from these.
//!
//! **Invariants**
//! - A value depends on its key and on the number of the operation that wrote it, so stale values are
//!   detected.

use std::{cmp::Ordering, collections::BTreeMap, ops::Bound};

use testudo::{Keyspace, Result};
use testudo_base::checksum::hash_key;

use crate::{
    report::complaints::{Complaints, Verdict},
    workloads::values,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Written {
    operation: u64,
    bytes: usize,
}

/// The expected state.
#[derive(Debug, Default)]
pub(crate) struct Model {
    live: BTreeMap<Vec<u8>, Written>,
    live_bytes: u64,
}

/// Fills `value` with the value that `operation` writes under `key`.
pub(crate) fn write_value(key: &[u8], operation: u64, value: &mut [u8]) {
    values::fill(seed_of(key, operation), value);
}

fn seed_of(key: &[u8], operation: u64) -> u64 {
    hash_key(key) ^ operation.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Model {
    pub(crate) fn put(&mut self, key: &[u8], operation: u64, bytes: usize) {
        let written = Written { operation, bytes };
        self.live_bytes += weight(key, written);
        if let Some(old) = self.live.get_mut(key) {
            self.live_bytes -= weight(key, std::mem::replace(old, written));
        } else {
            self.live.insert(key.to_vec(), written);
        }
    }

    pub(crate) fn delete(&mut self, key: &[u8]) {
        if let Some(old) = self.live.remove(key) {
            self.live_bytes -= weight(key, old);
        }
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.live.contains_key(key)
    }

    /// Returns the number of live keys.
    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }

    /// Returns the bytes of live keys and values.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Judges the result of a read of `key`.
    pub(crate) fn judge(&self, key: &[u8], found: Option<&[u8]>) -> Verdict {
        match (self.live.get(key), found) {
            (None, None) => Ok(()),
            (Some(written), Some(value)) => judge_value(key, *written, value),
            (None, Some(_)) => {
                Err(format!("{} was deleted or never written but is present", key.escape_ascii()))
            }
            (Some(_), None) => Err(format!("{} is missing", key.escape_ascii())),
        }
    }

    /// Compares everything in `keyspace` with the model, forward and backward.
    pub(crate) fn compare(&self, keyspace: &Keyspace, complaints: &Complaints) -> Result<()> {
        let pair = |entry: Result<testudo::Entry>| -> Result<_> {
            let entry = entry?;
            Ok((entry.key().to_vec(), entry.value()?))
        };
        compare(keyspace.iter()?.map(pair), self.live.iter(), Ordering::is_lt, complaints)?;
        compare(keyspace.iter()?.rev().map(pair), self.live.iter().rev(), Ordering::is_gt, complaints)?;
        self.compare_ranges(keyspace, complaints)
    }

    /// Compares a few ranges that begin and end at keys of the model.
    fn compare_ranges(&self, keyspace: &Keyspace, complaints: &Complaints) -> Result<()> {
        let step = (self.live.len() / 16).max(1);
        let bounds: Vec<&Vec<u8>> = self.live.keys().step_by(step).collect();
        for pair in bounds.windows(2) {
            let range = (Bound::Excluded(&pair[0][..]), Bound::Included(&pair[1][..]));
            let expected = self.live.range::<[u8], _>(range).count();
            let mut found = 0;
            for entry in keyspace.range((Bound::Excluded(&pair[0][..]), Bound::Included(&pair[1][..])))? {
                entry?;
                found += 1;
            }
            if found != expected {
                complaints.add(&format!("a range has {found} keys instead of {expected}"));
            }
        }
        Ok(())
    }
}

/// Merges the found with the expected entries; `comes_before` is the order of both.
fn compare<'a, V: AsRef<[u8]>>(
    mut found: impl Iterator<Item = Result<(Vec<u8>, V)>>,
    expected: impl Iterator<Item = (&'a Vec<u8>, &'a Written)>,
    comes_before: fn(Ordering) -> bool,
    complaints: &Complaints,
) -> Result<()> {
    let extra =
        |key: &[u8]| complaints.add(&format!("a scan returned {}, which is not live", key.escape_ascii()));
    let missing = |key: &[u8]| complaints.add(&format!("a scan omitted {}", key.escape_ascii()));
    let mut entry = found.next().transpose()?;
    for (key, written) in expected {
        while let Some((early, _)) = entry.as_ref().filter(|(early, _)| comes_before(early.cmp(key))) {
            extra(early);
            entry = found.next().transpose()?;
        }
        match &entry {
            Some((same, value)) if same == key => {
                if let Err(reason) = judge_value(key, *written, value.as_ref()) {
                    complaints.add(&format!("a scan: {reason}"));
                }
                entry = found.next().transpose()?;
            }
            _ => missing(key),
        }
    }
    while let Some((key, _)) = entry {
        extra(&key);
        entry = found.next().transpose()?;
    }
    Ok(())
}

fn judge_value(key: &[u8], written: Written, value: &[u8]) -> Verdict {
    if value.len() != written.bytes {
        let (found, expected) = (value.len(), written.bytes);
        return Err(format!("{} has {found} bytes instead of {expected}", key.escape_ascii()));
    }
    if !values::matches(seed_of(key, written.operation), value) {
        return Err(format!(
            "{} has other bytes than operation {} wrote",
            key.escape_ascii(),
            written.operation
        ));
    }
    Ok(())
}

fn weight(key: &[u8], written: Written) -> u64 {
    testudo_base::num::u64_of(key.len() + written.bytes)
}

#[cfg(test)]
mod tests;
