//! Values that the tail of the log keeps next to commits because they are on no device yet: how commits write
//! them there, and how recovery restores them into a commit.
//!
//! ```text
//! for each value: number of the operation u32, length u32, value
//! ```
//!
//! **Invariants**
//! - An opening restores all of them or none: a commit whose values are damaged stays unchanged, and replay
//!   then finds its references unbacked.

use std::path::Path;

use testudo_base::{
    Kind, Result, StoreId,
    codec::{Damage, Reader},
    num::{u32_of, usize_of},
};
use testudo_env::Env;
use testudo_storage::Manifest;
use testudo_wal::DrainedTail;

use crate::commits::batch_format::{Operation, decode, encode_operation, operation_bytes};

/// Encoded length of a value of `value_bytes` next to its commit.
pub fn kept_value_bytes(value_bytes: usize) -> usize {
    8 + value_bytes
}

/// Writes the value of operation `index` to the start of `out` and returns the rest.
pub fn encode_kept_value<'o>(out: &'o mut [u8], index: usize, value: &[u8]) -> &'o mut [u8] {
    let (head, rest) = out.split_at_mut(kept_value_bytes(value.len()));
    head[..4].copy_from_slice(&u32_of(index).to_le_bytes());
    head[4..8].copy_from_slice(&u32_of(value.len()).to_le_bytes());
    head[8..].copy_from_slice(value);
    rest
}

/// The payload of a commit with its values in place of references to value logs.
fn restore(payload: &[u8], kept: &[u8]) -> std::result::Result<Vec<u8>, Damage> {
    let mut values = Vec::new();
    let mut reader = Reader::new(kept);
    while !reader.is_empty() {
        let (index, length) = (reader.u32()?, reader.u32()?);
        values.push((u64::from(index), reader.take(usize_of(u64::from(length)))?));
    }
    let mut restored = Vec::with_capacity(payload.len() + kept.len());
    let mut next = values.iter().peekable();
    decode::<Damage>(payload, |index, operation| {
        let value = next.next_if(|(of, _)| *of == index);
        let operation = match value {
            Some((_, value)) => Operation { kind: Kind::Value, value, ..operation },
            None => operation,
        };
        let start = restored.len();
        restored.resize(start + operation_bytes(&operation), 0);
        encode_operation(&mut restored[start..], &operation);
        Ok(())
    })?;
    Ok(restored)
}

fn restore_or_leave(payload: &[u8], kept: &[u8]) -> Result<Vec<u8>> {
    Ok(restore(payload, kept).unwrap_or_else(|Damage(_)| payload.to_vec()))
}

/// Writes the tail of the log to a segment. REQUIRES: the segments are durable.
///
/// Errors: `OutOfSpace`, `Io`; nothing is lost.
pub fn drain_tail(env: &dyn Env, directory: &Path, manifest: &Manifest) -> Result<()> {
    let first_segment = manifest.with_state(|state| state.log_segment);
    testudo_wal::drain_tail(env, directory, (manifest.store(), first_segment), &mut restore_or_leave)
}

/// Reads the tail of the log for a reader, which does not change it.
///
/// Errors: `Io`.
pub fn read_tail(
    env: &dyn Env,
    directory: &Path,
    store: StoreId,
    first_segment: u64,
) -> Result<Option<DrainedTail>> {
    testudo_wal::read_tail(env, directory, (store, first_segment), &mut restore_or_leave)
}

#[cfg(test)]
mod tests {
    use testudo_base::{KeyspaceId, RunId, ValueReference};

    use super::*;

    fn encoded(operations: &[Operation<'_>]) -> Vec<u8> {
        let mut payload = vec![0; operations.iter().map(operation_bytes).sum()];
        let mut out = payload.as_mut_slice();
        for operation in operations {
            out = encode_operation(out, operation);
        }
        payload
    }

    #[test]
    fn kept_values_replace_their_references() {
        let mut reference = Vec::new();
        ValueReference { segment: RunId(7), number: 3, length: 5 }.encode(&mut reference);
        let operation = |kind, key, value| Operation { keyspace: KeyspaceId(1), kind, key, value };
        let logged = [
            operation(Kind::Value, b"a", b"inline"),
            operation(Kind::Reference, b"b", &reference),
            operation(Kind::Tombstone, b"c", b""),
        ];
        let whole = [logged[0], operation(Kind::Value, b"b", b"value"), logged[2]];
        let mut kept = vec![0; kept_value_bytes(5)];
        encode_kept_value(&mut kept, 1, b"value");
        assert_eq!(restore(&encoded(&logged), &kept).unwrap(), encoded(&whole));
        assert_eq!(restore_or_leave(&encoded(&logged), &kept[..9]).unwrap(), encoded(&logged));
    }
}
