//! Removes unreferenced values in pieces (decision 0050).
//!
//! The key of each head is looked up. If its newest entry does not refer to the value, nothing does, and its
//! pieces are removed by ordinary commits. Existing snapshots and readers still see them.
//!
//! **Invariants**
//! - The head is removed last: the next sweep completes an interrupted removal.
//! - There is one sweep at a time.

use testudo_base::{Kind, Result, Seqno, num::u64_of, planted, sync::Arc};
use testudo_options::Durability;
use testudo_store::{
    Store,
    commits::batch_format::Operation,
    keyspace::KeyspaceCore,
    read::look_up::{self, Reference},
    values::{
        names_beside::may_be_beside,
        pieces_format::{PiecesHead, head_key, piece_key},
    },
};

use crate::{
    admission::check_outside_updates,
    commit::{Limits, commit_many},
    known_pieces::{REMOVED_TOGETHER, read_heads, read_piece_keys},
};

/// Removes all values in pieces to which nothing refers; whether there was one.
pub fn sweep_pieces(store: &Store) -> Result<bool> {
    let Some(pieces) = store.pieces.keyspace() else { return Ok(false) };
    // The sweep would wait for the stripe of the key being updated.
    check_outside_updates(store)?;
    let Some(_sweeping) = store.pieces.begin_sweep() else { return Ok(false) };
    let (mut from, mut has_removed, mut seen) = (0, false, 0);
    loop {
        let heads = read_heads(store, from)?;
        let Some((last, _)) = heads.last() else {
            store.pieces.note_swept(seen);
            return Ok(has_removed);
        };
        (from, seen) = (last + 1, seen + u64_of(heads.len()));
        for (value, head) in &heads {
            // A value that cannot be checked is kept.
            has_removed |= reclaim_pieces(store, pieces, *value, head).unwrap_or(false);
        }
    }
}

/// Same as [`sweep_pieces`], ignoring errors: the next sweep removes the rest.
pub fn try_sweep_pieces(store: &Store) -> bool {
    store.pieces.is_sweep_due() && store.log.wal.is_some() && sweep_pieces(store).unwrap_or(false)
}

/// Removes a value in pieces if it is not being written and is unreferenced; returns whether that was so.
pub fn reclaim_pieces(
    store: &Store,
    pieces: &Arc<KeyspaceCore>,
    value: u64,
    head: &PiecesHead,
) -> Result<bool> {
    if store.pieces.is_underway(value) || is_referred_to(store, value, head)? {
        return Ok(false);
    }
    let mut from = piece_key(value, 0);
    loop {
        let keys = read_piece_keys(store, pieces, value, &from)?;
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
        if found.and_then(|reference| reference.pieces()) == Some(value) {
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
    commit_many(store, std::slice::from_ref(pieces), &operations, Durability::Buffered, Limits::None)
}
