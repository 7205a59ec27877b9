//! Point lookups in a view, one by one or batched.
//!
//! **Invariants**
//! - Sources are probed newest first. The first that has the key decides, except for operands, which are
//!   merged with the result of the older sources.
//! - Cached records represent the tree of the view, and nothing else.
//! - A value in pieces is not read here: [`Found::InPieces`] has its reference (`read_pieces.rs`).

use std::cell::{Cell, RefCell};

use testudo_base::{
    Entry, Error, ErrorKind, Kind, Result, Seqno, ValueReference, checksum::hash_key, codec::Damage,
    merge_operator::FullMerge, operands_format::begin_stack,
};
use testudo_contract::Tree;
use testudo_records::KeyspaceRecords;
use testudo_run::{Access, Lookup, LookupProgress};
use testudo_storage::{Neighbours, PageAddress};

use crate::{keyspace::View, read::slice::Slice, snapshots::held_view::HeldView};

/// Rounds of loading pages together before the rest is read one by one: enough for any tree, unless the cache
/// is so small that pages are evicted before they are used.
const MAX_ROUNDS: usize = 64;

/// Result of a lookup.
pub enum Found {
    /// A value, or none.
    Whole(Option<Slice>),
    /// A value in pieces, with its reference.
    InPieces(ValueReference),
}

/// A readable view: a published one or a held one.
pub trait Readable {
    /// Calls `look` with the entry of `key` as of `at` in each write buffer, newest first, until it returns
    /// `Some`. `look` may run under the lock of a leaf: it should be short.
    fn find_buffered<R>(
        &self,
        key: &[u8],
        at: Seqno,
        look: impl FnMut(Kind, &[u8]) -> Option<R>,
    ) -> Result<Option<R>>;
    fn tree(&self) -> &dyn Tree;
    /// Cached records of the tree.
    fn records(&self) -> &KeyspaceRecords;
    fn full_merge(&self) -> &FullMerge;
}

impl Readable for View {
    #[inline]
    fn find_buffered<R>(
        &self,
        key: &[u8],
        at: Seqno,
        mut look: impl FnMut(Kind, &[u8]) -> Option<R>,
    ) -> Result<Option<R>> {
        Ok(self.buffers().find_map(|buffer| buffer.table.get(key, at, &mut look).flatten()))
    }

    #[inline]
    fn tree(&self) -> &dyn Tree {
        &*self.tree
    }

    #[inline]
    fn records(&self) -> &KeyspaceRecords {
        &self.records
    }

    #[inline]
    fn full_merge(&self) -> &FullMerge {
        &self.full_merge
    }
}

impl Readable for HeldView {
    fn find_buffered<R>(
        &self,
        key: &[u8],
        at: Seqno,
        mut look: impl FnMut(Kind, &[u8]) -> Option<R>,
    ) -> Result<Option<R>> {
        for buffer in &self.buffers {
            if let Some(found) = buffer.get(key, at, &mut look)?.flatten() {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    fn tree(&self) -> &dyn Tree {
        &*self.tree
    }

    fn records(&self) -> &KeyspaceRecords {
        &self.records
    }

    fn full_merge(&self) -> &FullMerge {
        &self.full_merge
    }
}

/// The value in the cached records, if they have the key.
fn get_cached(view: &impl Readable, key: &[u8], hash: u64) -> Option<Slice> {
    view.records().get(key, hash).map(Slice::from)
}

/// A key and its hash.
#[derive(Clone, Copy)]
struct HashedKey<'k> {
    key: &'k [u8],
    hash: u64,
}

/// An entry that a tree has returned.
struct TreeEntry {
    kind: Kind,
    value: Vec<u8>,
    /// Other records of its page that were requested.
    neighbours: Neighbours,
}

/// Converts an entry of the tree to a result, and fills the cached records with it.
fn found(
    view: &impl Readable,
    HashedKey { key, hash }: HashedKey<'_>,
    TreeEntry { kind, value, neighbours }: TreeEntry,
) -> Result<Found> {
    let value = match kind {
        Kind::Tombstone => return Ok(Found::Whole(None)),
        Kind::Value => {
            view.full_merge().record_value(key, value.len());
            value
        }
        Kind::Operands | Kind::Unmerged => view.full_merge().merge(&Entry { key, kind, value: &value })?,
        Kind::Reference => return reference_in_pieces(&value).map(Found::InPieces),
        Kind::UnmergedReference => return Err(operands_over_pieces(&value)),
        Kind::Referred => return Err(stray_reference()),
    };
    view.records().fill(key, hash, &value, neighbours.0);
    Ok(Found::Whole(Some(Slice::from(value))))
}

/// Decodes the reference to a value in pieces.
///
/// Errors: `Corruption` if it is not such a reference.
pub fn reference_in_pieces(bytes: &[u8]) -> Result<ValueReference> {
    let reference = ValueReference::of(Kind::Reference, bytes).map_err(damaged_entry)?;
    reference.filter(|reference| reference.pieces().is_some()).ok_or_else(stray_reference)
}

/// The error for an entry with operands and a reference.
#[cold]
pub fn operands_over_pieces(bytes: &[u8]) -> Error {
    match ValueReference::split(bytes) {
        Ok((reference, _)) if reference.pieces().is_some() => Error::invalid(format!(
            "operands on a value of {} bytes that was written in pieces cannot be merged: write the key \
             again",
            reference.length
        )),
        _ => stray_reference(),
    }
}

/// The error for a reference shown by a tree. A tree resolves references, unless it has no value segments.
#[cold]
pub fn stray_reference() -> Error {
    let message = "data: an entry refers to a value, but its keyspace has no value segments";
    Error::new(ErrorKind::Corruption, message)
}

/// The `Corruption` error for an entry.
#[cold]
pub fn damaged_entry(Damage(why): Damage) -> Error {
    Error::new(ErrorKind::Corruption, format!("an entry of a tree: {why}"))
}

/// Result of a lookup in the write buffers.
enum Buffered {
    Unknown,
    Known(Option<Slice>),
    InPieces(ValueReference),
    /// A list of operands on top of the tree's entry.
    Operands(Vec<u8>),
}

/// Looks `key` up in the write buffers.
fn get_buffered(view: &impl Readable, key: &[u8], at: Seqno) -> Result<Buffered> {
    let answer = view.find_buffered(key, at, |kind, value| {
        Some(match kind {
            Kind::Value => Buffered::Known(Some(Slice::from(value.to_vec()))),
            Kind::Tombstone => Buffered::Known(None),
            Kind::Reference => match reference_in_pieces(value) {
                Ok(reference) => Buffered::InPieces(reference),
                Err(_) => Buffered::Operands(Vec::new()),
            },
            // No other kind is written to a buffer.
            _ => Buffered::Operands(Vec::new()),
        })
    })?;
    match answer {
        None => Ok(Buffered::Unknown),
        Some(Buffered::Operands(_)) => get_operands(view, key, at),
        Some(answer) => {
            view.records().record_buffered();
            Ok(answer)
        }
    }
}

/// Same for a key whose newest buffered entry has operands.
#[cold]
fn get_operands(view: &impl Readable, key: &[u8], at: Seqno) -> Result<Buffered> {
    let mut newer = Vec::new();
    let base = view.find_buffered(key, at, |kind, value| match kind {
        Kind::Operands => {
            newer.push(value.to_vec());
            None
        }
        kind => Some((kind, value.to_vec())),
    })?;
    let mut stack = Vec::new();
    let mut base_kind = Kind::Operands;
    match base {
        None => {}
        // The key was overwritten in the meantime.
        Some((Kind::Value, value)) if newer.is_empty() => {
            return Ok(Buffered::Known(Some(Slice::from(value))));
        }
        Some((Kind::Tombstone, _)) if newer.is_empty() => return Ok(Buffered::Known(None)),
        Some((Kind::Reference, value)) if newer.is_empty() => {
            return reference_in_pieces(&value).map(Buffered::InPieces);
        }
        Some((kind, value)) => {
            base_kind = begin_stack(kind, &value, &mut stack);
            if matches!(kind, Kind::Reference | Kind::UnmergedReference) {
                return Err(operands_over_pieces(&stack));
            }
        }
    }
    newer.iter().rev().for_each(|operands| stack.extend_from_slice(operands));
    if base_kind == Kind::Operands {
        return Ok(Buffered::Operands(stack));
    }
    view.records().record_buffered();
    let value = view.full_merge().merge(&Entry { key, kind: base_kind, value: &stack })?;
    Ok(Buffered::Known(Some(Slice::from(value))))
}

/// Merges `operands` over the value below them.
fn merge_over(
    view: &impl Readable,
    key: &[u8],
    below: Option<&Slice>,
    operands: &[u8],
) -> Result<Option<Slice>> {
    debug_assert!(!operands.is_empty(), "there are operands");
    let mut stack = Vec::with_capacity(below.map_or(0, |value| value.len()) + operands.len() + 5);
    let kind = match below {
        Some(value) => begin_stack(Kind::Value, value, &mut stack),
        None => begin_stack(Kind::Tombstone, &[], &mut stack),
    };
    debug_assert!(kind != Kind::Tombstone, "operands on nothing are a list of operands");
    stack.extend_from_slice(operands);
    Ok(Some(Slice::from(view.full_merge().merge(&Entry { key, kind, value: &stack })?)))
}

/// Looks `key` up in `view`, as of `at`.
pub fn get(view: &impl Readable, key: &[u8], at: Seqno) -> Result<Found> {
    match get_buffered(view, key, at)? {
        Buffered::Known(answer) => Ok(Found::Whole(answer)),
        Buffered::InPieces(reference) => Ok(Found::InPieces(reference)),
        Buffered::Unknown => get_below(view, key),
        Buffered::Operands(operands) => match get_below(view, key)? {
            Found::Whole(below) => merge_over(view, key, below.as_ref(), &operands).map(Found::Whole),
            Found::InPieces(reference) => Err(upon(&reference)),
        },
    }
}

#[cold]
fn upon(reference: &ValueReference) -> Error {
    let mut bytes = Vec::new();
    reference.encode(&mut bytes);
    operands_over_pieces(&bytes)
}

/// The reference to a value in pieces in the newest entry of `key`, if any. Caches nothing.
pub fn find_pieces(view: &impl Readable, key: &[u8]) -> Result<Option<ValueReference>> {
    let of = |kind, value: &[u8]| -> Result<Option<ValueReference>> {
        let reference = ValueReference::of(kind, value).map_err(damaged_entry)?;
        Ok(reference.filter(|reference| reference.pieces().is_some()))
    };
    let buffered = view.find_buffered(key, Seqno(u64::MAX), |kind, value| {
        (kind != Kind::Operands).then(|| of(kind, value))
    })?;
    if let Some(found) = buffered {
        return found;
    }
    match view.tree().get(key, hash_key(key), Access::Blocking)? {
        Lookup::Found(kind, value, _) => of(kind, &value),
        Lookup::Absent | Lookup::Waiting => Ok(None),
    }
}

/// A value that is not a reference and has no operands, as of `at`. Caches nothing.
pub fn get_plain(view: &impl Readable, key: &[u8], at: Seqno) -> Result<Option<Vec<u8>>> {
    let plain = |(kind, value)| (kind == Kind::Value).then_some(value);
    if let Some(found) = view.find_buffered(key, at, |kind, value| Some((kind, value.to_vec())))? {
        return Ok(plain(found));
    }
    match view.tree().get(key, hash_key(key), Access::Blocking)? {
        Lookup::Found(kind, value, _) => Ok(plain((kind, value))),
        Lookup::Absent | Lookup::Waiting => Ok(None),
    }
}

/// Whether `key` has a value in `view`, as of `at`.
pub fn contains(view: &impl Readable, key: &[u8], at: Seqno) -> Result<bool> {
    if let Some(kind) = view.find_buffered(key, at, |kind, _| Some(kind))? {
        view.records().record_buffered();
        return Ok(kind != Kind::Tombstone);
    }
    let hash = hash_key(key);
    if get_cached(view, key, hash).is_some() {
        return Ok(true);
    }
    match view.tree().get(key, hash, Access::Blocking)? {
        Lookup::Found(Kind::Value, value, neighbours) => {
            found(view, HashedKey { key, hash }, TreeEntry { kind: Kind::Value, value, neighbours })
                .map(|_| true)
        }
        Lookup::Found(kind, ..) => Ok(kind != Kind::Tombstone),
        Lookup::Absent | Lookup::Waiting => Ok(false),
    }
}

/// Looks `key` up below the write buffers.
fn get_below(view: &impl Readable, key: &[u8]) -> Result<Found> {
    let hash = hash_key(key);
    if let Some(value) = get_cached(view, key, hash) {
        return Ok(Found::Whole(Some(value)));
    }
    match view.tree().get(key, hash, Access::Blocking)? {
        Lookup::Found(kind, value, neighbours) => {
            found(view, HashedKey { key, hash }, TreeEntry { kind, value, neighbours })
        }
        Lookup::Absent | Lookup::Waiting => Ok(Found::Whole(None)),
    }
}

/// A key found neither in write buffers nor in cached records.
struct Open {
    /// Its index among the keys.
    index: usize,
    hash: u64,
    progress: Cell<LookupProgress>,
}

/// A batch of point lookups.
struct MultiGet<'v, V, K> {
    view: &'v V,
    keys: &'v [K],
    /// Answers found so far.
    answers: Vec<Option<Slice>>,
    /// Keys still to be looked up in the tree.
    open: Vec<Open>,
    /// Operands on top of the tree's entry, with the index of their key.
    unmerged: Vec<(usize, Vec<u8>)>,
    /// Indices of keys whose values are in pieces.
    in_pieces: Vec<usize>,
}

/// Result of [`multi_get`].
pub struct ManyFound {
    /// The value of each key.
    pub answers: Vec<Option<Slice>>,
    /// Indices of keys that have a value in pieces, and no answer.
    pub in_pieces: Vec<usize>,
}

/// The values of `keys` in `view`, as of `at`.
pub fn multi_get<V: Readable, K: AsRef<[u8]>>(view: &V, keys: &[K], at: Seqno) -> Result<ManyFound> {
    let answers = Vec::with_capacity(keys.len());
    let (open, unmerged, in_pieces) = (Vec::new(), Vec::new(), Vec::new());
    let mut queries = MultiGet { view, keys, answers, open, unmerged, in_pieces };
    queries.ask_memory(at)?;
    queries.ask_tree()?;
    queries.merge()?;
    debug_assert_eq!(queries.answers.len(), keys.len(), "an answer for each key");
    debug_assert!(queries.open.is_empty(), "no key stays open");
    debug_assert!(
        queries.in_pieces.iter().all(|index| queries.answers[*index].is_none()),
        "a value in pieces is not read here"
    );
    Ok(ManyFound { answers: queries.answers, in_pieces: queries.in_pieces })
}

impl<V: Readable, K: AsRef<[u8]>> MultiGet<'_, V, K> {
    /// Probes the write buffers, as of `at`, and the cached records.
    fn ask_memory(&mut self, at: Seqno) -> Result<()> {
        debug_assert!(self.answers.is_empty(), "memory is probed once, and first");
        for (index, key) in self.keys.iter().map(AsRef::as_ref).enumerate() {
            match get_buffered(self.view, key, at)? {
                Buffered::Known(answer) => {
                    self.answers.push(answer);
                    continue;
                }
                Buffered::InPieces(_) => {
                    self.answers.push(None);
                    self.in_pieces.push(index);
                    continue;
                }
                Buffered::Unknown => {}
                Buffered::Operands(operands) => self.unmerged.push((index, operands)),
            }
            let hash = hash_key(key);
            let answer = get_cached(self.view, key, hash);
            if answer.is_none() {
                self.open.push(Open { index, hash, progress: Cell::default() });
            }
            self.answers.push(answer);
        }
        Ok(())
    }

    /// Looks open keys up in the tree, in rounds: the pages that all keys miss are loaded together.
    fn ask_tree(&mut self) -> Result<()> {
        let missing = RefCell::new(Vec::with_capacity(self.open.len()));
        for round in 0.. {
            self.look_up(Some(&missing).filter(|_| round < MAX_ROUNDS))?;
            if self.open.is_empty() {
                break;
            }
            let mut pages = missing.borrow_mut();
            pages.sort_unstable_by_key(|address| address.page);
            pages.dedup();
            self.view.tree().load_pages(&pages)?;
            pages.clear();
        }
        Ok(())
    }

    /// Looks every open key up; keys that miss a page stay open. Missed pages are collected in `missing`, or
    /// read one by one without it.
    fn look_up(&mut self, missing: Option<&RefCell<Vec<PageAddress>>>) -> Result<()> {
        let mut waiting = 0;
        for at in 0..self.open.len() {
            let Open { index, hash, progress } = &self.open[at];
            let key = self.keys[*index].as_ref();
            let access = missing.map_or(Access::Blocking, |missing| Access::Collecting(missing, progress));
            match self.view.tree().get(key, *hash, access)? {
                Lookup::Found(kind, value, neighbours) => {
                    match found(
                        self.view,
                        HashedKey { key, hash: *hash },
                        TreeEntry { kind, value, neighbours },
                    )? {
                        Found::Whole(answer) => self.answers[*index] = answer,
                        Found::InPieces(_) => self.in_pieces.push(*index),
                    }
                }
                Lookup::Absent => {}
                Lookup::Waiting => {
                    debug_assert!(missing.is_some(), "blocking access never waits");
                    self.open.swap(waiting, at);
                    waiting += 1;
                }
            }
        }
        debug_assert!(waiting <= self.open.len(), "only open keys wait");
        self.open.truncate(waiting);
        Ok(())
    }

    /// Merges operands of the write buffers over the answers below them.
    fn merge(&mut self) -> Result<()> {
        debug_assert!(self.unmerged.is_sorted_by_key(|(index, _)| *index), "in the order of the keys");
        for (index, operands) in std::mem::take(&mut self.unmerged) {
            if self.in_pieces.contains(&index) {
                // A lookup of this key alone reports why it has no value.
                continue;
            }
            let below = self.answers[index].as_ref();
            self.answers[index] = merge_over(self.view, self.keys[index].as_ref(), below, &operands)?;
        }
        Ok(())
    }
}
