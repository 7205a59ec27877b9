//! Point lookups in a view, one by one or batched.
//!
//! **Invariants**
//! - Sources are probed newest first. The first that has the key decides, except for operands, which are
//!   merged with the result of the older sources.
//! - Cached records represent the tree of the view, and nothing else.
//! - A long value is not read here: [`Found::Long`] has its reference (`long_value.rs`).

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
    /// A long value, with its reference.
    Long(ValueReference),
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

/// The part of a key's state that a look-up wants.
pub trait Wanted {
    type Answer;
    /// Operands are merged; otherwise they are shown as they are.
    const MERGES: bool = false;
    /// Cached records are read and filled.
    const USES_RECORDS: bool = false;
    /// Values of write buffers are copied; otherwise they are shown without their bytes.
    const COPIES_VALUES: bool = false;
    /// References are decoded; otherwise they are shown like operands.
    const DECODES_REFERENCES: bool = true;
    /// Operands in write buffers are passed over: the entry below them is wanted.
    const PASSES_OPERANDS: bool = false;

    fn answer(shown: Shown<Vec<u8>>) -> Result<Self::Answer>;
}

/// The value.
pub struct Value;

/// Whether there is a value, readable or not.
pub struct Existence;

/// The reference to the long value of the newest entry, also under operands; caches nothing.
pub struct Reference;

/// The value if no operands and no reference stand for it; caches nothing.
pub struct Plain;

impl Wanted for Value {
    type Answer = Found;
    const MERGES: bool = true;
    const USES_RECORDS: bool = true;
    const COPIES_VALUES: bool = true;

    #[inline]
    fn answer(shown: Shown<Vec<u8>>) -> Result<Found> {
        match shown {
            Shown::Nothing => Ok(Found::Whole(None)),
            Shown::Value(value) => Ok(Found::Whole(Some(Slice::from(value)))),
            Shown::Reference(reference) => long_value(reference).map(Found::Long),
            Shown::OperandsOver(reference) => Err(operands_over(&reference)),
            Shown::Operands => unreachable!("operands were merged"),
        }
    }
}

impl Wanted for Existence {
    type Answer = bool;
    const USES_RECORDS: bool = true;
    const DECODES_REFERENCES: bool = false;

    #[inline]
    fn answer(shown: Shown<Vec<u8>>) -> Result<bool> {
        Ok(!matches!(shown, Shown::Nothing))
    }
}

impl Wanted for Reference {
    type Answer = Option<ValueReference>;
    const PASSES_OPERANDS: bool = true;

    fn answer(shown: Shown<Vec<u8>>) -> Result<Option<ValueReference>> {
        Ok(match shown {
            Shown::Reference(reference) | Shown::OperandsOver(reference) => Some(reference),
            Shown::Nothing | Shown::Value(_) | Shown::Operands => None,
        }
        .filter(|reference| !reference.is_in_segment()))
    }
}

impl Wanted for Plain {
    type Answer = Option<Vec<u8>>;
    const COPIES_VALUES: bool = true;

    fn answer(shown: Shown<Vec<u8>>) -> Result<Option<Vec<u8>>> {
        Ok(if let Shown::Value(value) = shown { Some(value) } else { None })
    }
}

/// An entry as readers see it. `B`: the bytes of a value, borrowed or owned.
pub enum Shown<B> {
    /// The key has no value.
    Nothing,
    Value(B),
    /// Operands, with or without the value they change.
    Operands,
    Reference(ValueReference),
    /// Operands together with the reference to the value they change.
    OperandsOver(ValueReference),
}

/// Classifies an entry of a write buffer or a tree; a tree has already resolved references to its value
/// segments.
///
/// Errors: `Corruption` if a reference cannot be decoded, or where a tree has no references.
#[inline]
pub fn classify<W: Wanted>(kind: Kind, bytes: &[u8]) -> Result<Shown<&[u8]>> {
    Ok(match kind {
        Kind::Value => Shown::Value(bytes),
        Kind::Tombstone => Shown::Nothing,
        Kind::Operands | Kind::Unmerged => Shown::Operands,
        Kind::Reference | Kind::UnmergedReference | Kind::Referred if !W::DECODES_REFERENCES => {
            Shown::Operands
        }
        Kind::Reference | Kind::UnmergedReference | Kind::Referred => show_reference(kind, bytes)?,
    })
}

#[cold]
fn show_reference(kind: Kind, bytes: &[u8]) -> Result<Shown<&[u8]>> {
    match ValueReference::of(kind, bytes).map_err(damaged_entry)? {
        Some(reference) if kind == Kind::UnmergedReference => Ok(Shown::OperandsOver(reference)),
        Some(reference) => Ok(Shown::Reference(reference)),
        None => Err(stray_reference()),
    }
}

/// Checks that a reference is to a long value.
///
/// Errors: `Corruption`.
pub fn long_value(reference: ValueReference) -> Result<ValueReference> {
    if reference.is_in_segment() { Err(stray_reference()) } else { Ok(reference) }
}

/// The error for operands on a reference.
#[cold]
pub fn operands_over(reference: &ValueReference) -> Error {
    match reference.long_value() {
        Some(_) => Error::invalid(format!(
            "operands on a value of {} bytes that was written in pieces cannot be merged: write the key \
             again",
            reference.length
        )),
        None => stray_reference(),
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

/// Looks `key` up in `view`, as of `at`.
#[inline]
pub fn find<W: Wanted>(view: &impl Readable, key: &[u8], at: Seqno) -> Result<W::Answer> {
    match find_in_buffers::<W>(view, key, at)? {
        Buffered::Known(shown) => W::answer(shown),
        Buffered::Unknown => W::answer(find_below::<W>(view, key)?),
        Buffered::Operands(operands) => {
            W::answer(merge_over(view, key, find_below::<W>(view, key)?, &operands)?)
        }
    }
}

/// Result of a lookup in the write buffers.
enum Buffered {
    Unknown,
    Known(Shown<Vec<u8>>),
    /// A list of operands on top of the tree's entry, to be merged with it.
    Operands(Vec<u8>),
}

/// Looks `key` up in the write buffers.
#[inline]
fn find_in_buffers<W: Wanted>(view: &impl Readable, key: &[u8], at: Seqno) -> Result<Buffered> {
    let newest = view.find_buffered(key, at, |kind, bytes| {
        if W::PASSES_OPERANDS && kind == Kind::Operands {
            return None;
        }
        Some(classify::<W>(kind, bytes).map(|shown| match shown {
            Shown::Value(value) if W::COPIES_VALUES => Shown::Value(value.to_vec()),
            Shown::Value(_) => Shown::Value(Vec::new()),
            Shown::Operands => Shown::Operands,
            Shown::Nothing => Shown::Nothing,
            Shown::Reference(reference) => Shown::Reference(reference),
            Shown::OperandsOver(reference) => Shown::OperandsOver(reference),
        }))
    })?;
    match newest {
        None => Ok(Buffered::Unknown),
        Some(Ok(Shown::Operands)) if W::MERGES => collect_operands::<W>(view, key, at),
        Some(shown) => {
            if W::USES_RECORDS {
                view.records().record_buffered();
            }
            shown.map(Buffered::Known)
        }
    }
}

/// Same for a key whose newest buffered entry has operands: collects them down to another kind of entry, and
/// merges them if there is one.
#[cold]
fn collect_operands<W: Wanted>(view: &impl Readable, key: &[u8], at: Seqno) -> Result<Buffered> {
    let mut newer = Vec::new();
    let base = view.find_buffered(key, at, |kind, bytes| match kind {
        Kind::Operands => {
            newer.push(bytes.to_vec());
            None
        }
        kind => Some((kind, bytes.to_vec())),
    })?;
    let (mut kind, mut stack) = (Kind::Operands, Vec::new());
    if let Some((base_kind, bytes)) = base {
        // Without operands, the key was overwritten in the meantime.
        let is_whole = newer.is_empty();
        kind = match classify::<W>(base_kind, &bytes)? {
            Shown::Nothing if is_whole => return Ok(Buffered::Known(Shown::Nothing)),
            Shown::Value(_) if is_whole => return Ok(Buffered::Known(Shown::Value(bytes))),
            Shown::Reference(value) if is_whole => return Ok(Buffered::Known(Shown::Reference(value))),
            Shown::Reference(value) | Shown::OperandsOver(value) => return Err(operands_over(&value)),
            Shown::Nothing | Shown::Value(_) | Shown::Operands => begin_stack(base_kind, &bytes, &mut stack),
        };
    }
    newer.iter().rev().for_each(|operands| stack.extend_from_slice(operands));
    if kind == Kind::Operands {
        return Ok(Buffered::Operands(stack));
    }
    view.records().record_buffered();
    let value = view.full_merge().merge(&Entry { key, kind, value: &stack })?;
    Ok(Buffered::Known(Shown::Value(value)))
}

/// Merges `operands` over the entry below them.
fn merge_over(
    view: &impl Readable,
    key: &[u8],
    below: Shown<Vec<u8>>,
    operands: &[u8],
) -> Result<Shown<Vec<u8>>> {
    debug_assert!(!operands.is_empty(), "there are operands");
    let (kind, value) = match below {
        Shown::Value(value) => (Kind::Value, value),
        Shown::Nothing => (Kind::Tombstone, Vec::new()),
        Shown::Reference(reference) | Shown::OperandsOver(reference) => {
            return Err(operands_over(&reference));
        }
        Shown::Operands => unreachable!("operands of the tree were merged"),
    };
    let mut stack = Vec::with_capacity(value.len() + operands.len() + 5);
    let kind = begin_stack(kind, &value, &mut stack);
    stack.extend_from_slice(operands);
    view.full_merge().merge(&Entry { key, kind, value: &stack }).map(Shown::Value)
}

/// Looks `key` up below the write buffers.
#[inline]
fn find_below<W: Wanted>(view: &impl Readable, key: &[u8]) -> Result<Shown<Vec<u8>>> {
    let hash = hash_key(key);
    if W::USES_RECORDS
        && let Some(value) = view.records().get(key, hash)
    {
        return Ok(Shown::Value(value));
    }
    match view.tree().get(key, hash, Access::Blocking)? {
        Lookup::Found(kind, value, neighbours) => {
            show_of_tree::<W>(view, (key, hash), (kind, value, neighbours))
        }
        Lookup::Absent | Lookup::Waiting => Ok(Shown::Nothing),
    }
}

/// Shows an entry of the tree, with operands merged if wanted, and fills the cached records with its value.
#[inline]
fn show_of_tree<W: Wanted>(
    view: &impl Readable,
    (key, hash): (&[u8], u64),
    (kind, bytes, neighbours): (Kind, Vec<u8>, Neighbours),
) -> Result<Shown<Vec<u8>>> {
    let value = match classify::<W>(kind, &bytes)? {
        Shown::Value(_) if W::USES_RECORDS => {
            view.full_merge().record_value(key, bytes.len());
            bytes
        }
        Shown::Value(_) => return Ok(Shown::Value(bytes)),
        Shown::Operands if W::MERGES => view.full_merge().merge(&Entry { key, kind, value: &bytes })?,
        Shown::Operands => return Ok(Shown::Operands),
        Shown::Nothing => return Ok(Shown::Nothing),
        Shown::Reference(value) => return Ok(Shown::Reference(value)),
        Shown::OperandsOver(value) => return Ok(Shown::OperandsOver(value)),
    };
    view.records().fill(key, hash, &value, neighbours.0);
    Ok(Shown::Value(value))
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
    /// States of the keys found so far.
    shown: Vec<Shown<Vec<u8>>>,
    /// Keys still to be looked up in the tree.
    open: Vec<Open>,
    /// Operands on top of the tree's entry, with the index of their key.
    unmerged: Vec<(usize, Vec<u8>)>,
}

/// The values of `keys` in `view`, as of `at`, in the order of `keys`.
pub fn multi_get<V: Readable, K: AsRef<[u8]>>(view: &V, keys: &[K], at: Seqno) -> Result<Vec<Found>> {
    let shown = Vec::with_capacity(keys.len());
    let mut queries = MultiGet { view, keys, shown, open: Vec::new(), unmerged: Vec::new() };
    queries.ask_memory(at)?;
    queries.ask_tree()?;
    queries.merge()?;
    debug_assert_eq!(queries.shown.len(), keys.len(), "a state for each key");
    debug_assert!(queries.open.is_empty(), "no key stays open");
    queries.shown.into_iter().map(Value::answer).collect()
}

impl<V: Readable, K: AsRef<[u8]>> MultiGet<'_, V, K> {
    /// Probes the write buffers, as of `at`, and the cached records.
    fn ask_memory(&mut self, at: Seqno) -> Result<()> {
        debug_assert!(self.shown.is_empty(), "memory is probed once, and first");
        for (index, key) in self.keys.iter().map(AsRef::as_ref).enumerate() {
            match find_in_buffers::<Value>(self.view, key, at)? {
                Buffered::Known(shown) => {
                    self.shown.push(shown);
                    continue;
                }
                Buffered::Unknown => {}
                Buffered::Operands(operands) => self.unmerged.push((index, operands)),
            }
            let hash = hash_key(key);
            self.shown.push(match self.view.records().get(key, hash) {
                Some(value) => Shown::Value(value),
                None => {
                    self.open.push(Open { index, hash, progress: Cell::default() });
                    Shown::Nothing
                }
            });
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
                Lookup::Found(kind, bytes, neighbours) => {
                    let entry = (kind, bytes, neighbours);
                    self.shown[*index] = show_of_tree::<Value>(self.view, (key, *hash), entry)?;
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

    /// Merges operands of the write buffers over the entries below them.
    fn merge(&mut self) -> Result<()> {
        debug_assert!(self.unmerged.is_sorted_by_key(|(index, _)| *index), "in the order of the keys");
        for (index, operands) in std::mem::take(&mut self.unmerged) {
            let below = std::mem::replace(&mut self.shown[index], Shown::Nothing);
            self.shown[index] = merge_over(self.view, self.keys[index].as_ref(), below, &operands)?;
        }
        Ok(())
    }
}
