//! Writes and removes long values, which are stored in pieces (decision 0050).
//!
//! `head -> pieces, one commit each -> the entry that refers to them`
//!
//! The reader of a value is read between commits, without a lock. The pieces of an incomplete value are
//! removed, at once or by a sweep. A sweep looks up the key of each head. If its newest entry does not refer
//! to the value, nothing does, and its pieces are removed by ordinary commits. Existing snapshots and readers
//! still see them.
//!
//! **Invariants**
//! - Memory is bounded by one piece, in addition to write buffers.
//! - The entry is committed last: by the prefix rule it is durable only if all of its pieces are.
//! - The head is removed last: the next sweep completes an interrupted removal. There is one sweep at a time.

use std::{io::Read, mem, slice};

use testudo_base::{
    Error, Kind, Result, Seqno, ValueReference,
    num::{u64_of, usize_of},
    planted,
    sync::Arc,
};
use testudo_store::{
    Store,
    commits::batch_format::{Operation, operation_bytes},
    keyspace::KeyspaceCore,
    read::look_up::{self, Reference},
    space::space_guard::Intent,
    values::{
        long_values::ValueUnderway,
        names_beside::may_be_beside,
        pieces_format::{PIECE_BYTES, PiecesHead, head_key, piece_count, piece_key, piece_len},
    },
};

use crate::{
    admission::{check_limits, check_outside_updates},
    commit::{Commit, Limits, commit_many, commit_one},
    known_long_values::{REMOVED_TOGETHER, read_heads, read_piece_keys, with_known_values},
};

/// Fills `bytes` from the reader. `start` and `length`, the offset and the total, appear in the error for an
/// early end.
fn read_exactly(reader: &mut dyn Read, bytes: &mut [u8], start: u64, length: u64) -> Result<()> {
    debug_assert!(start + u64_of(bytes.len()) <= length, "a part of the value");
    let mut filled = 0;
    while filled < bytes.len() {
        match reader.read(&mut bytes[filled..]) {
            Ok(0) => {
                let given = start + u64_of(filled);
                let message = format!("the reader ended after {given} bytes of a value of {length}");
                return Err(Error::invalid(message));
            }
            Ok(read) if read <= bytes.len() - filled => filled += read,
            Ok(_) => {
                return Err(Error::invalid("the reader claims to have read more than the buffer holds"));
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::io("the reader of a value", error)),
        }
    }
    Ok(())
}

/// Checks that the reader ends after `length` bytes.
fn check_ended(reader: &mut dyn Read, length: u64) -> Result<()> {
    loop {
        match reader.read(&mut [0]) {
            Ok(0) => return Ok(()),
            Ok(_) => {
                return Err(Error::invalid(format!(
                    "the reader has more than the {length} bytes of its value"
                )));
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Error::io("the reader of a value", error)),
        }
    }
}

/// A value to read from a reader.
pub struct ReadValue<'r> {
    pub length: u64,
    pub reader: &'r mut dyn Read,
}

/// Sets a key to a value: in pieces, unless it is short. `pieces` returns the keyspace of pieces.
pub fn insert_from(
    store: &Store,
    keyspace: &Arc<KeyspaceCore>,
    key: &[u8],
    ReadValue { length, reader }: ReadValue<'_>,
    pieces: impl FnOnce() -> Result<Arc<KeyspaceCore>>,
) -> Result<()> {
    let short = check_pieces(store, keyspace, key, length)?;
    if length > u64_of(PIECE_BYTES) {
        let head =
            PiecesHead { length: short, keyspace: keyspace.name.as_ref().to_owned(), key: key.to_vec() };
        return insert_pieces(store, &pieces()?, keyspace, &head, reader);
    }
    let mut value = vec![0; usize_of(length)];
    read_exactly(reader, &mut value, 0, length)?;
    check_ended(reader, length)?;
    keyspace.check_value(key, &value)?;
    let operation = Operation { keyspace: keyspace.id, kind: Kind::Value, key, value: &value };
    commit_one(store, keyspace, &operation, store.default_durability)
}

fn insert_pieces(
    store: &Store,
    pieces: &Arc<KeyspaceCore>,
    keyspace: &Arc<KeyspaceCore>,
    head: &PiecesHead,
    reader: &mut dyn Read,
) -> Result<()> {
    let (key, length) = (&*head.key, head.length);
    let underway = begin_pieces(store, pieces, head)?;
    let value = underway.value;
    let mut before = None;
    let outcome = write_pieces(store, pieces, &underway, length, reader).and_then(|()| {
        // The present value is overwritten, whether or not it can be read.
        before = store
            .read_of(&keyspace.name, || {
                look_up::find::<Reference>(&**keyspace.view.load(), key, Seqno(u64::MAX))
            })
            .unwrap_or_default();
        let mut reference = Vec::new();
        ValueReference::to_long_value(value, length).encode(&mut reference);
        let operation = Operation { keyspace: keyspace.id, kind: Kind::Reference, key, value: &reference };
        commit_one(store, keyspace, &operation, store.default_durability)
    });
    if let Err(error) = store.health.check_process() {
        // The reader has forked, and this is the child.
        mem::forget(underway);
        return Err(error);
    }
    drop(underway);
    // Pieces that cannot be removed now are left to a sweep.
    let gone = if outcome.is_err() { Some(value) } else { before.and_then(|value| value.long_value()) };
    if let Some(gone) = gone {
        let _ = reclaim(store, pieces, gone, head);
    }
    store.long_values.expect_sweep();
    outcome
}

/// Commits the head of a value and assigns its number.
fn begin_pieces<'a>(
    store: &'a Store,
    pieces: &Arc<KeyspaceCore>,
    head: &PiecesHead,
) -> Result<ValueUnderway<'a>> {
    let _beginning = store.long_values.beginning.lock();
    let underway = with_known_values(store, |known| {
        debug_assert!(known.next > 0, "numbers begin at 1");
        let value = known.next.max(store.last_seqno().0 + 1);
        known.next = value + 1;
        known.owners.insert(head.keyspace.clone());
        store.long_values.enter(value)
    })?;
    let value = underway.value;
    commit_piece(store, pieces, &head_key(value), &head.encode())?;
    Ok(underway)
}

fn write_pieces(
    store: &Store,
    pieces: &Arc<KeyspaceCore>,
    underway: &ValueUnderway<'_>,
    length: u32,
    reader: &mut dyn Read,
) -> Result<()> {
    debug_assert!(store.long_values.is_underway(underway.value), "no sweep removes the pieces");
    let mut bytes = vec![0; PIECE_BYTES];
    for piece in 0..piece_count(length) {
        let bytes = &mut bytes[..piece_len(length, piece)];
        let start = u64::from(piece) * u64_of(PIECE_BYTES);
        read_exactly(reader, bytes, start, u64::from(length))?;
        if planted!("last-piece-not-written") && piece > 0 && piece + 1 == piece_count(length) {
            continue;
        }
        commit_piece(store, pieces, &piece_key(underway.value, piece), bytes)?;
    }
    check_ended(reader, u64::from(length))
}

/// Commits an entry of the keyspace of pieces, without making it durable: a later commit does that.
pub fn commit_piece(store: &Store, pieces: &Arc<KeyspaceCore>, key: &[u8], value: &[u8]) -> Result<()> {
    check_limits(store, key, value)?;
    let operation = Operation { keyspace: pieces.id, kind: Kind::Value, key, value };
    let bytes = operation_bytes(&operation);
    let commit = Commit { store, keyspaces: slice::from_ref(pieces), durability: store.default_durability };
    commit.admit(bytes, Intent::Write)?;
    let stripe = store.commits.lock_stripe(pieces.id, key);
    let written = commit.write(slice::from_ref(&operation), bytes);
    commit.unlock(stripe, written).map(drop)
}

/// Checks everything that can be checked before a value is read from a reader.
fn check_pieces(store: &Store, keyspace: &KeyspaceCore, key: &[u8], length: u64) -> Result<u32> {
    check_limits(store, key, &[])?;
    store.wal()?;
    store.check_writable()?;
    check_outside_updates(store)?;
    if keyspace.is_dropped() {
        return Err(Error::invalid(format!("the keyspace {:?} was dropped", keyspace.name)));
    }
    u32::try_from(length)
        .map_err(|_| Error::invalid(format!("a value of {length} bytes is longer than {}", u32::MAX)))
}

/// Removes all long values to which nothing refers; whether there was one.
pub fn sweep(store: &Store) -> Result<bool> {
    let Some(pieces) = store.long_values.keyspace() else { return Ok(false) };
    // The sweep would wait for the stripe of the key being updated.
    check_outside_updates(store)?;
    let Some(_sweeping) = store.long_values.begin_sweep() else { return Ok(false) };
    let (mut from, mut has_removed, mut seen) = (0, false, 0);
    loop {
        let heads = read_heads(store, from)?;
        let Some((last, _)) = heads.last() else {
            store.long_values.note_swept(seen);
            return Ok(has_removed);
        };
        debug_assert!(*last >= from, "heads are read in the order of their numbers");
        (from, seen) = (last + 1, seen + u64_of(heads.len()));
        for (value, head) in &heads {
            // A value that cannot be checked is kept.
            has_removed |= reclaim(store, pieces, *value, head).unwrap_or(false);
        }
    }
}

/// Same as [`sweep`], ignoring errors: the next sweep removes the rest.
pub fn try_sweep(store: &Store) -> bool {
    store.long_values.is_sweep_due() && store.log.wal.is_some() && sweep(store).unwrap_or(false)
}

/// Removes a long value if it is not being written and is unreferenced; returns whether that was so.
fn reclaim(store: &Store, pieces: &Arc<KeyspaceCore>, value: u64, head: &PiecesHead) -> Result<bool> {
    if store.long_values.is_underway(value) || is_referred_to(store, value, head)? {
        return Ok(false);
    }
    let mut from = piece_key(value, 0);
    loop {
        let keys = read_piece_keys(store, pieces, value, &from)?;
        debug_assert!(keys.len() <= REMOVED_TOGETHER, "one commit removes a few");
        remove_all(store, pieces, &keys)?;
        match keys.into_iter().nth(REMOVED_TOGETHER - 1) {
            Some(last) => from = last,
            None => break,
        }
    }
    remove_all(store, pieces, &[head_key(value)])?;
    Ok(true)
}

/// Whether the key of the value refers to it. Salvage may have stored older versions of the keyspace under
/// derived names; theirs count too.
fn is_referred_to(store: &Store, value: u64, head: &PiecesHead) -> Result<bool> {
    let mut keyspaces: Vec<Arc<KeyspaceCore>> = Vec::new();
    {
        let catalogue = store.catalogue.read();
        keyspaces.extend(catalogue.by_name.get(&*head.keyspace).cloned());
        let beside = catalogue.by_name.iter().filter(|(name, _)| may_be_beside(name, &head.keyspace));
        keyspaces.extend(beside.map(|(_, keyspace)| Arc::clone(keyspace)));
    }
    for keyspace in keyspaces {
        let _locked = store.commits.lock_stripe(keyspace.id, &head.key);
        if planted!("referred-pieces-removed") {
            continue;
        }
        let found = store.read_of(&keyspace.name, || {
            look_up::find::<Reference>(&**keyspace.view.load(), &head.key, Seqno(u64::MAX))
        })?;
        if found.and_then(|reference| reference.long_value()) == Some(value) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn remove_all(store: &Store, pieces: &Arc<KeyspaceCore>, keys: &[Vec<u8>]) -> Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let operations: Vec<Operation<'_>> = keys
        .iter()
        .map(|key| Operation { keyspace: pieces.id, kind: Kind::Tombstone, key, value: &[] })
        .collect();
    commit_many(store, std::slice::from_ref(pieces), &operations, store.default_durability, Limits::None)
}
