//! Operands that would make a value too long: detected before they are written, if possible.
//!
//! An operand is written without reading. But the contents of write buffers and the batch itself for its key
//! are at hand. The operand is merged at once with the key's present value in three cases: a whole value with
//! operands becomes longer than the limit of a value; operands alone become longer than half of that; or the
//! key is known to have a long value ([`OversizedKeys`](testudo_base::oversized_keys::OversizedKeys)). The
//! result is written as a value, or refused.
//!
//! **Invariants**
//! - Operands never make an entry of a write buffer longer than the longest value, except during log replay.
//! - Operands can exceed the limit, by half at most, only on top of a value that was written before the store
//!   was opened and not read since.
//! - The operands of a key, with the value below them, never exceed the limit of an entry: if the runs that
//!   may have them are that large in total, the next operand is merged by reading.
//! - Accepted writes are never lost: a value that later turns out to be too long is kept, read and moved like
//!   any other.

use std::collections::HashMap;

use testudo_base::{
    Entry, Error, KeyspaceId, Kind, Result, Seqno,
    num::{u64_of, usize_of},
    operands_format::begin_stack,
    planted,
    sync::Arc,
};
use testudo_store::{
    Store,
    commits::batch_format::Operation,
    keyspace::{KeyspaceCore, View},
    read::long_value::get_locked,
};

use crate::known_long_values::is_long;

/// Operands alone are merged once they are longer than one part in this many of the limit: they may be on top
/// of a value of nearly that length.
const OPERAND_PARTS: usize = 2;

/// Effect of a batch on one key so far.
#[derive(Default)]
struct Pending<'a> {
    /// The base of the operands; `None` for the stored one.
    base: Option<(Kind, Vec<u8>)>,
    /// Lists of operands on top of it, oldest first.
    operands: Vec<&'a [u8]>,
    bytes: usize,
}

/// Whether `more` bytes of operands may make an entry of `key` too long, or are on top of a long value.
/// REQUIRES: its stripe is locked.
pub fn may_merge_long(store: &Store, keyspace: &KeyspaceCore, key: &[u8], more: usize) -> bool {
    // On an error, merging reads the key and reports the reason.
    if is_long(store, keyspace, key).unwrap_or(true) && !planted!("operands-upon-pieces") {
        return true;
    }
    if planted!("merged-length-unchecked") {
        return false;
    }
    let max = usize_of(store.memory.max_value_bytes());
    let view = keyspace.view.load();
    let is_noted = store.merging.oversized_keys.may_have(key);
    let longest = view.buffers().map(|buffer| buffer.longest_value_bytes()).sum::<usize>();
    if !is_noted && longest + more <= max / OPERAND_PARTS {
        return may_pass_limit(store, &view, key, longest + more);
    }
    let mut bytes = more;
    for buffer in view.buffers() {
        let found = buffer.table.get(key, Seqno(u64::MAX), |kind, value| (kind, value.len()));
        let Some((kind, found_bytes)) = found else { continue };
        bytes += found_bytes;
        if kind != Kind::Operands {
            return bytes > max;
        }
    }
    is_noted || bytes > max / OPERAND_PARTS || may_pass_limit(store, &view, key, bytes)
}

/// Whether `key`, with `buffered` bytes of operands in write buffers, may exceed the limit of a tree entry.
/// No flush may ever reach it, however often the store was closed in between.
fn may_pass_limit(store: &Store, view: &View, key: &[u8], buffered: usize) -> bool {
    let left = store.merging.oversized_keys.unread_bytes_max().saturating_sub(u64_of(buffered));
    view.tree.may_hold_more(key, left) && !planted!("entry-grows-unread")
}

/// The values to write in place of operands that must be merged at once, each with the index of its
/// operation.
/// REQUIRES: the stripes of their keys are locked.
///
/// Errors: `Invalid` for a value that is too long, and those of reading the key and of its operator.
pub fn merge_long(
    store: &Store,
    keyspaces: &[Arc<KeyspaceCore>],
    operations: &[Operation<'_>],
) -> Result<Vec<(usize, Vec<u8>)>> {
    let mut merged = Vec::new();
    if operations.iter().all(|operation| operation.kind != Kind::Operands) {
        return Ok(merged);
    }
    let is_locked =
        |operation: &Operation<'_>| store.commits.is_stripe_locked(operation.keyspace, operation.key);
    debug_assert!(operations.iter().all(is_locked), "the keys do not change meanwhile");
    let max = usize_of(store.memory.max_value_bytes());
    let mut pending: HashMap<(KeyspaceId, &[u8]), Pending<'_>> = HashMap::new();
    for (index, operation) in operations.iter().enumerate() {
        let Operation { keyspace: id, kind, key, value } = *operation;
        let of_key = pending.entry((id, key)).or_default();
        if kind != Kind::Operands {
            *of_key =
                Pending { base: Some((kind, value.to_vec())), bytes: value.len(), ..Pending::default() };
            continue;
        }
        of_key.operands.push(value);
        of_key.bytes += value.len();
        let keyspace = keyspaces.iter().find(|keyspace| keyspace.id == id);
        let keyspace = keyspace.expect("every keyspace of a batch is listed");
        let is_long = match of_key.base {
            Some(_) => of_key.bytes > max && !planted!("merged-length-unchecked"),
            None => may_merge_long(store, keyspace, key, of_key.bytes),
        };
        if is_long {
            let value = merge_now(store, keyspace, key, of_key)?;
            let base = Some((Kind::Value, value.clone()));
            *of_key = Pending { base, bytes: value.len(), ..Pending::default() };
            merged.push((index, value));
        }
    }
    debug_assert!(merged.is_sorted_by(|(a, _), (b, _)| a < b), "in the order of the operations");
    Ok(merged)
}

/// The value of `key` after the pending operands.
fn merge_now(store: &Store, keyspace: &KeyspaceCore, key: &[u8], pending: &Pending<'_>) -> Result<Vec<u8>> {
    let (kind, base) = match &pending.base {
        Some((kind, base)) => (*kind, base.clone()),
        None => match get_locked(store, keyspace, key)? {
            Some(value) => (Kind::Value, value.into_vec()),
            None => (Kind::Tombstone, Vec::new()),
        },
    };
    debug_assert!(!pending.operands.is_empty(), "there are operands to merge");
    let mut stack = Vec::with_capacity(base.len() + pending.bytes + 5);
    let kind = begin_stack(kind, &base, &mut stack);
    pending.operands.iter().for_each(|operands| stack.extend_from_slice(operands));
    let value = keyspace.full_merge.merge(&Entry { key, kind, value: &stack })?;
    let max = store.memory.max_value_bytes();
    if u64_of(value.len()) > max {
        return Err(Error::invalid(format!(
            "keyspace {:?}: the operand would make a value of {} bytes, longer than {max}, a quarter of \
             the memory budget of {} bytes",
            keyspace.name,
            value.len(),
            store.memory.total()
        ))
        .about_key(key));
    }
    store.merging.oversized_keys.forget(key);
    store.merging.oversized_keys.check(key, value.len());
    Ok(value)
}
