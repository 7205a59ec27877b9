//! The value of a record: its number, its version, then bytes that follow from both.
//!
//! **Invariants**
//! - A value says which record and version it belongs to, and every byte of it can be checked.

use crate::workloads::values;

/// Record number (8 bytes) and version (1 byte).
const HEADER_BYTES: usize = 9;
/// Shortest value that can be checked.
pub(crate) const VALUE_BYTES_MIN: usize = 16;

/// Versions count modulo this.
pub(crate) const VERSIONS: u8 = 16;

/// Distinct for every record of a version, so that a damaged record number shows.
fn seed_of(record: u64, version: u8) -> u64 {
    record.wrapping_mul(0xa076_1d64_78bd_642f).wrapping_add(u64::from(version) << 60)
}

/// Fills `value` for `record` at `version`.
#[inline]
pub(crate) fn write(record: u64, version: u8, value: &mut [u8]) {
    value[..8].copy_from_slice(&record.to_le_bytes());
    value[8] = version;
    values::fill(seed_of(record, version), &mut value[HEADER_BYTES..]);
}

/// Record and version of a valid value of `value_bytes`; the reason if it is not valid.
#[inline]
pub(crate) fn read(value: &[u8], value_bytes: usize) -> Result<(u64, u8), &'static str> {
    if value.len() != value_bytes {
        return Err("the value has another length");
    }
    let Some((record, rest)) = value.split_first_chunk::<8>() else {
        return Err("the value is too short");
    };
    let record = u64::from_le_bytes(*record);
    let version = rest[0];
    if version < VERSIONS && values::matches(seed_of(record, version), &rest[1..]) {
        Ok((record, version))
    } else {
        Err("the bytes of the value contradict each other")
    }
}

#[cfg(test)]
mod tests;
