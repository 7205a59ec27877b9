//! Reads values in pieces: whole if they are short enough, or piece by piece.
//!
//! **Invariants**
//! - Pieces are read as of the entry that refers to them: a view of their keyspace is pinned with that of the
//!   entry, or the stripe of the entry's key is locked.

use testudo_base::{
    Error, ErrorKind, Result, Seqno, ValueReference,
    num::{u64_of, usize_of},
    planted,
};

use crate::{
    Store,
    keyspace::KeyspaceCore,
    read::{
        look_up::{self, Found, Plain, Readable, Value},
        slice::Slice,
    },
    values::pieces_format::{piece_count, piece_key, piece_len},
};

/// The error for a value that is too long to be read whole.
fn too_long(reference: &ValueReference, limit: u64) -> Error {
    Error::invalid(format!(
        "a value of {} bytes is longer than {limit}, a quarter of the memory budget: it can be read by \
         `get_reader` and by `Entry::reader` only",
        reference.length
    ))
}

#[cold]
fn missing(reference: &ValueReference, piece: u32) -> Error {
    let message = format!(
        "data: piece {piece} of value {}, to which an entry refers, is missing",
        reference.long_value().unwrap_or_default()
    );
    Error::new(ErrorKind::Corruption, message)
}

/// Reads a piece of the value at `reference`. `view`: of the keyspace of pieces.
///
/// Errors: `Corruption` if it is missing; `Io`.
pub fn read_piece(
    view: Option<&impl Readable>,
    at: Seqno,
    reference: &ValueReference,
    piece: u32,
) -> Result<Vec<u8>> {
    debug_assert!(piece < piece_count(reference.length), "the value has this piece");
    let (Some(view), Some(value)) = (view, reference.long_value()) else {
        return Err(missing(reference, piece));
    };
    let piece_read = if planted!("first-piece-again") { 0 } else { piece };
    let found = look_up::find::<Plain>(view, &piece_key(value, piece_read), at)?;
    found
        .filter(|bytes| bytes.len() == piece_len(reference.length, piece) || piece_read != piece)
        .ok_or_else(|| missing(reference, piece))
}

/// Reads the whole value at `reference`.
///
/// Errors: `Invalid` if it is longer than `limit`; those of [`read_piece`].
pub fn read_whole(
    view: Option<&impl Readable>,
    at: Seqno,
    reference: &ValueReference,
    limit: u64,
) -> Result<Slice> {
    if u64::from(reference.length) > limit {
        return Err(too_long(reference, limit));
    }
    let mut value = Vec::with_capacity(usize_of(u64::from(reference.length)));
    for piece in 0..piece_count(reference.length) {
        value.extend_from_slice(&read_piece(view, at, reference, piece)?);
    }
    debug_assert!(u64_of(value.len()) <= limit, "the length was checked");
    Ok(Slice::from(value))
}

/// Reads the present value of `key`. REQUIRES: its stripe is locked.
pub fn get_locked(store: &Store, keyspace: &KeyspaceCore, key: &[u8]) -> Result<Option<Slice>> {
    debug_assert!(store.commits.is_stripe_locked(keyspace.id, key), "the key does not change meanwhile");
    store.read_of(&keyspace.name, || {
        match look_up::find::<Value>(&**keyspace.view.load(), key, Seqno(u64::MAX))? {
            Found::Whole(value) => Ok(value),
            Found::Long(reference) => {
                let limit = store.memory.max_value_bytes();
                read_whole(store.long_values.view().as_deref(), Seqno(u64::MAX), &reference, limit).map(Some)
            }
        }
    })
}
