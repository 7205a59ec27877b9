//! Long values that the store knows of.
//!
//! **Invariants**
//! - The first caller reads the list; from then on writers and the sweep keep it.

use std::collections::BTreeSet;

use testudo_base::{Cursor, Error, ErrorKind, Kind, Result, Seqno, codec::Damage, sync::Arc};
use testudo_run::ScanLimits;
use testudo_store::{
    Store,
    keyspace::KeyspaceCore,
    read::{
        look_up::{self, Plain, Reference},
        scan_sources::sources_of_newest,
    },
    values::{
        long_values::KnownValues,
        names_beside::may_be_beside,
        pieces_format::{PiecesHead, head_key, heads_end, is_piece_of, value_of_head, value_of_piece},
    },
};

/// Pieces removed by one commit.
pub const REMOVED_TOGETHER: usize = 256;

/// Heads read before any of them is checked.
const HEADS_TOGETHER: usize = 64;

fn damaged(Damage(why): Damage) -> Error {
    Error::new(ErrorKind::Corruption, format!("the head of a long value: {why}"))
}

/// Whether operands of `key` would be on top of a long value. REQUIRES: its stripe is locked.
pub fn is_long(store: &Store, keyspace: &KeyspaceCore, key: &[u8]) -> Result<bool> {
    debug_assert!(store.commits.is_stripe_locked(keyspace.id, key), "the key does not change meanwhile");
    if store.long_values.keyspace().is_none() {
        return Ok(false);
    }
    let may_be = |owner: &String| **owner == *keyspace.name || may_be_beside(&keyspace.name, owner);
    if !with_known_values(store, |known| known.owners.iter().any(may_be))? {
        return Ok(false);
    }
    Ok(store
        .read_of(&keyspace.name, || {
            look_up::find::<Reference>(&**keyspace.view.load(), key, Seqno(u64::MAX))
        })?
        .is_some())
}

/// Calls `act` with the state of all long values, reading it on the first call.
pub fn with_known_values<R>(store: &Store, act: impl FnOnce(&mut KnownValues) -> R) -> Result<R> {
    let mut known = store.long_values.known.lock();
    if known.is_none() {
        *known = Some(read_known_values(store)?);
    }
    Ok(act(known.as_mut().expect("it was read")))
}

/// Reads all heads to initialize [`KnownValues`].
fn read_known_values(store: &Store) -> Result<KnownValues> {
    let mut known = KnownValues { next: 1, owners: BTreeSet::new() };
    loop {
        let heads = read_heads(store, known.next)?;
        let Some((last, _)) = heads.last() else { break };
        debug_assert!(*last >= known.next, "heads are read in the order of their numbers");
        known.next = last + 1;
        known.owners.extend(heads.iter().map(|(_, head)| head.keyspace.clone()));
    }
    // A salvaged store may have pieces without a head. They must not become part of another value.
    let last = read_last_piece(store)?.map_or(0, |value| value + 1);
    known.next = known.next.max(last);
    Ok(known)
}

/// Reads some heads in order of their numbers, beginning at `from`.
pub fn read_heads(store: &Store, from: u64) -> Result<Vec<(u64, PiecesHead)>> {
    let Some(view) = store.long_values.view() else { return Ok(Vec::new()) };
    store.read(|| {
        let limits = ScanLimits { entries: None, end: Some(Arc::from(heads_end())) };
        let mut cursor = sources_of_newest(&view, &limits);
        let mut heads = Vec::new();
        cursor.seek(&head_key(from))?;
        while let Some(entry) = cursor.entry() {
            let Some(value) = value_of_head(entry.key) else { break };
            match entry.kind {
                Kind::Value => heads.push((value, PiecesHead::decode(entry.value).map_err(damaged)?)),
                Kind::Reference => {
                    // It may be removed concurrently.
                    if let Some(bytes) = look_up::find::<Plain>(&*view, entry.key, Seqno(u64::MAX))? {
                        heads.push((value, PiecesHead::decode(&bytes).map_err(damaged)?));
                    }
                }
                _ => {}
            }
            debug_assert!(heads.len() <= HEADS_TOGETHER, "a few heads at a time");
            if heads.len() == HEADS_TOGETHER {
                break;
            }
            cursor.next()?;
        }
        Ok(heads)
    })
}

/// The greatest number of a value with a piece.
fn read_last_piece(store: &Store) -> Result<Option<u64>> {
    let Some(view) = store.long_values.view() else { return Ok(None) };
    store.read(|| {
        let mut cursor = sources_of_newest(&view, &ScanLimits::default());
        cursor.seek_last()?;
        Ok(cursor.entry().and_then(|entry| value_of_piece(entry.key)))
    })
}

/// The keys of some pieces of a value, from a key on.
pub fn read_piece_keys(
    store: &Store,
    pieces: &KeyspaceCore,
    value: u64,
    from: &[u8],
) -> Result<Vec<Vec<u8>>> {
    let view = pieces.view.load_full();
    store.read(|| {
        let mut cursor = sources_of_newest(&view, &ScanLimits::default());
        let mut keys = Vec::new();
        cursor.seek(from)?;
        while let Some(entry) = cursor.entry().filter(|entry| is_piece_of(value, entry.key)) {
            if entry.kind != Kind::Tombstone {
                keys.push(entry.key.to_vec());
            }
            if keys.len() == REMOVED_TOGETHER {
                break;
            }
            cursor.next()?;
        }
        Ok(keys)
    })
}
