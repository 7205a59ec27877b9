//! The byte format of entries that wait for a merge operator: operands, alone or on top of the value they
//! change.
//!
//! | kind | bytes |
//! |---|---|
//! | operands | the operands, oldest first, each: varint length, bytes |
//! | unmerged reference | a [`ValueReference`] to the base, then operands |
//! | unmerged | the base: varint 0 (nothing), or length + 1 and the bytes of a value; then operands |
//!
//! **Invariants**
//! - Newer operands of a key are appended to the older ones byte by byte: stacking decodes no entry.
//! - An unmerged entry determines its key completely; operands alone need older entries.

use crate::{
    Kind, ValueReference,
    codec::{Damage, Reader, put_varint, varint_bytes},
    num::{u64_of, usize_of},
};

/// Encodes a list with one operand.
pub fn encode_operand(operand: &[u8]) -> Vec<u8> {
    let length = u64_of(operand.len());
    let mut out = Vec::with_capacity(varint_bytes(length) + operand.len());
    put_varint(&mut out, length);
    out.extend_from_slice(operand);
    debug_assert_eq!(out.len(), varint_bytes(length) + operand.len(), "the promised length");
    out
}

/// Initializes `out` with an entry to which operands can be appended, equivalent to an entry of this kind and
/// value.
pub fn begin_stack(kind: Kind, value: &[u8], out: &mut Vec<u8>) -> Kind {
    out.clear();
    let kind = match kind {
        Kind::Operands => Kind::Operands,
        Kind::Unmerged => Kind::Unmerged,
        Kind::Reference | Kind::UnmergedReference => Kind::UnmergedReference,
        // No tree contains it; the reader of the entry reports it.
        Kind::Referred => Kind::Referred,
        Kind::Tombstone => {
            out.push(0);
            Kind::Unmerged
        }
        Kind::Value => {
            put_varint(out, u64_of(value.len()) + 1);
            Kind::Unmerged
        }
    };
    out.extend_from_slice(value);
    kind
}

/// The decoded form of an entry with operands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack<'a> {
    /// The value that the operands change; `None` if there is none.
    pub existing: Option<&'a [u8]>,
    /// Oldest first; at least one.
    pub operands: Vec<&'a [u8]>,
}

impl<'a> Stack<'a> {
    /// Decodes the bytes of an entry. REQUIRES: `kind` is one of the two kinds with operands.
    pub fn decode(kind: Kind, bytes: &'a [u8]) -> Result<Self, Damage> {
        debug_assert!(matches!(kind, Kind::Operands | Kind::Unmerged), "only these have operands");
        let mut operands = Vec::new();
        let existing = visit(kind, bytes, |operand| operands.push(operand))?;
        debug_assert!(!operands.is_empty(), "an entry without operands is damaged");
        Ok(Self { existing, operands })
    }
}

/// Checks that the value of an entry of any kind is well-formed.
#[inline]
pub fn check_value(kind: Kind, value: &[u8]) -> Result<(), Damage> {
    match kind {
        Kind::Value | Kind::Tombstone => Ok(()),
        Kind::Operands | Kind::Unmerged => visit(kind, value, |_| ()).map(|_| ()),
        Kind::Reference => ValueReference::of(kind, value).map(|_| ()),
        Kind::UnmergedReference => visit(Kind::Operands, ValueReference::split(value)?.1, |_| ()).map(|_| ()),
        Kind::Referred => ValueReference::split_referred(value).map(|_| ()),
    }
}

/// Converts an unmerged reference, whose value `read` was read, into an unmerged entry.
///
/// REQUIRES: the entry was checked when its reference was found.
pub fn with_value_read(unmerged_reference: &[u8], read: &[u8]) -> Result<Vec<u8>, Damage> {
    let (_, operands) = ValueReference::split(unmerged_reference)?;
    let mut stack = Vec::with_capacity(read.len() + operands.len() + 5);
    begin_stack(Kind::Value, read, &mut stack);
    debug_assert!(stack.len() > read.len(), "the length precedes the value");
    stack.extend_from_slice(operands);
    Ok(stack)
}

/// Passes every operand to `act`; returns the value they change.
fn visit<'a>(kind: Kind, bytes: &'a [u8], mut act: impl FnMut(&'a [u8])) -> Result<Option<&'a [u8]>, Damage> {
    let mut reader = Reader::new(bytes);
    let mut existing = None;
    if kind == Kind::Unmerged
        && let Some(length) = reader.varint()?.checked_sub(1)
    {
        existing = Some(reader.take(usize_of(length))?);
    }
    if reader.is_empty() {
        return Err(Damage("an operand entry has no operands"));
    }
    while !reader.is_empty() {
        let length = usize_of(reader.varint()?);
        act(reader.take(length)?);
    }
    Ok(existing)
}

#[cfg(test)]
mod tests;
