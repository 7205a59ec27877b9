//! The payload of a commit in the log. Only this file knows its bytes.
//!
//! A sequence of operations: kind u8 (0 value, 1 tombstone, 2 operands, 3 unmerged, 4 reference to a value in
//! pieces or in a value log, 5 reference to a value in pieces with operands) · keyspace varint · key length
//! varint · key · except for a tombstone: value length varint · value. The n-th operation has the n-th
//! seqno of the commit.
//!
//! **Invariants**
//! - [`operation_bytes`] is exactly the length that [`encode_operation`] writes.
//! - Entries with operands are passed on only if they decode.

use testudo_base::{
    KeyspaceId, Kind, MAX_KEY_BYTES, ValueReference,
    codec::{Damage, Reader, varint_bytes, write_varint},
    num::{u64_of, usize_of},
    operands_format::check_value,
};

/// One operation of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation<'a> {
    pub keyspace: KeyspaceId,
    pub kind: Kind,
    pub key: &'a [u8],
    pub value: &'a [u8],
}

/// The reference to the operation's value, if the value is in a value log.
pub fn logged_value(operation: &Operation<'_>) -> Option<ValueReference> {
    let reference = ValueReference::of(operation.kind, operation.value).ok().flatten();
    reference.filter(|reference| reference.is_in_segment())
}

/// Length of the operation's encoding.
pub fn operation_bytes(operation: &Operation<'_>) -> usize {
    let (key, value) = (operation.key.len(), operation.value.len());
    let head = 1 + varint_bytes(u64::from(operation.keyspace.0)) + varint_bytes(u64_of(key)) + key;
    match operation.kind {
        Kind::Tombstone => head,
        _ => head + varint_bytes(u64_of(value)) + value,
    }
}

/// Writes the encoding to the start of `out` and returns the rest.
pub fn encode_operation<'o>(out: &'o mut [u8], operation: &Operation<'_>) -> &'o mut [u8] {
    let room = out.len();
    let out = put(out, &[operation.kind as u8]);
    let out = put_varint(out, u64::from(operation.keyspace.0));
    let out = put_varint(out, u64_of(operation.key.len()));
    let out = put(out, operation.key);
    let rest = match operation.kind {
        Kind::Tombstone => out,
        _ => {
            let out = put_varint(out, u64_of(operation.value.len()));
            put(out, operation.value)
        }
    };
    debug_assert_eq!(room - rest.len(), operation_bytes(operation), "the length that was reserved");
    rest
}

fn put<'o>(out: &'o mut [u8], bytes: &[u8]) -> &'o mut [u8] {
    let (head, rest) = out.split_at_mut(bytes.len());
    head.copy_from_slice(bytes);
    rest
}

fn put_varint(out: &mut [u8], value: u64) -> &mut [u8] {
    let length = write_varint(out, value);
    &mut out[length..]
}

/// Passes every operation of a payload to `act`, numbered from 0.
pub fn decode<E: From<Damage>>(
    payload: &[u8],
    mut act: impl FnMut(u64, Operation<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let mut reader = Reader::new(payload);
    let mut index = 0;
    while !reader.is_empty() {
        let kind = Kind::from_u8(reader.u8()?).ok_or(Damage("unknown kind of operation"))?;
        let keyspace = u32::try_from(reader.varint()?).map_err(|_| Damage("impossible keyspace"))?;
        let key_bytes = usize_of(reader.varint()?);
        if key_bytes > MAX_KEY_BYTES {
            return Err(Damage("a key is too long").into());
        }
        let key = reader.take(key_bytes)?;
        let value = match kind {
            Kind::Tombstone => &[][..],
            Kind::Referred => return Err(Damage("an entry of a value segment in the log").into()),
            Kind::Value | Kind::Operands | Kind::Unmerged | Kind::Reference | Kind::UnmergedReference => {
                let length = usize_of(reader.varint()?);
                reader.take(length)?
            }
        };
        check_value(kind, value)?;
        let reference = ValueReference::of(kind, value)?;
        if kind == Kind::UnmergedReference && reference.is_some_and(|reference| reference.is_in_segment()) {
            return Err(Damage("operands on a value in a value log").into());
        }
        act(index, Operation { keyspace: KeyspaceId(keyspace), kind, key, value })?;
        index += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
