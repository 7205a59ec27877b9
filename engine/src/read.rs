//! Reading: point queries over a view, one by one or many at once.
//!
//! **Invariants**
//! - Sources are asked newest first; the first that knows the key decides.
//! - Cached records stand for the tree of the view, and for nothing else.

use std::{
    cell::{Cell, RefCell},
    ops::RangeBounds,
};

use testudo_base::{Kind, Result, Seqno, checksum::hash_key};
use testudo_storage::{Access, Lookup, Trail};

use crate::{Iter, Slice, view::View};

/// Rounds of loading pages together before the rest is read one by one: enough for any tree, unless the cache is so
/// small that pages are evicted before they are used.
const MAX_ROUNDS: usize = 64;

/// What can be read from: a keyspace as it is now, or as a snapshot shows it.
pub trait Read {
    /// The value of `key`, or `None`.
    ///
    /// Errors: `Corruption` with file and offset, `Io`. Never a wrong answer.
    fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>>;

    /// Whether `key` has a value.
    fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// The values of many keys, in the order of `keys`. Pages that are not in memory are read together.
    fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>>;

    /// The entries with keys in `range`, from both ends, as they are now.
    fn range<K: AsRef<[u8]>, R: RangeBounds<K>>(&self, range: R) -> Result<Iter>;

    /// The entries whose keys start with `prefix`.
    fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter>;

    /// All entries.
    fn iter(&self) -> Result<Iter> {
        self.range::<&[u8], _>(..)
    }
}

/// The answer of the cached records, if they know the key.
fn get_cached(view: &View, key: &[u8], hash: u64) -> Option<Slice> {
    view.records.get(key, hash).map(Slice::from)
}

/// An answer of the tree, which the cached records take over.
fn found(view: &View, key: &[u8], hash: u64, kind: Kind, value: Vec<u8>) -> Option<Slice> {
    if kind == Kind::Tombstone {
        return None;
    }
    view.records.fill(key, hash, &value);
    Some(Slice::from(value))
}

/// The write buffers' answer; `None` if they know nothing of the key.
fn get_buffered(view: &View, key: &[u8], at: Seqno) -> Option<Option<Slice>> {
    let answer = view.buffers().find_map(|buffer| {
        buffer.table.get(key, at, |kind, value| match kind {
            Kind::Value => Some(Slice::from(value.to_vec())),
            Kind::Tombstone => None,
        })
    });
    if answer.is_some() {
        view.records.note_buffered();
    }
    answer
}

/// The value of `key` in `view`, as of `at`.
pub(crate) fn get(view: &View, key: &[u8], at: Seqno) -> Result<Option<Slice>> {
    if let Some(answer) = get_buffered(view, key, at) {
        return Ok(answer);
    }
    let hash = hash_key(key);
    if let Some(value) = get_cached(view, key, hash) {
        return Ok(Some(value));
    }
    match view.tree.get(key, hash, Access::Blocking)? {
        Lookup::Found(kind, value) => Ok(found(view, key, hash, kind, value)),
        Lookup::Absent | Lookup::Waiting => Ok(None),
    }
}

/// A key that neither write buffers nor cached records know.
struct Open {
    /// Its place among the keys.
    index: usize,
    hash: u64,
    trail: Cell<Trail>,
}

/// The values of `keys` in `view`, as of `at`.
pub(crate) fn multi_get<K: AsRef<[u8]>>(view: &View, keys: &[K], at: Seqno) -> Result<Vec<Option<Slice>>> {
    let mut answers: Vec<Option<Slice>> = Vec::with_capacity(keys.len());
    let mut open: Vec<Open> = Vec::new();
    for (index, key) in keys.iter().map(AsRef::as_ref).enumerate() {
        let answer = get_buffered(view, key, at).unwrap_or_else(|| {
            let hash = hash_key(key);
            let answer = get_cached(view, key, hash);
            if answer.is_none() {
                open.push(Open { index, hash, trail: Cell::default() });
            }
            answer
        });
        answers.push(answer);
    }
    let wanted = RefCell::new(Vec::with_capacity(open.len()));
    for round in 0.. {
        let mut waiting = 0;
        for at in 0..open.len() {
            let Open { index, hash, trail } = &open[at];
            let key = keys[*index].as_ref();
            let access = if round < MAX_ROUNDS { Access::Noting(&wanted, trail) } else { Access::Blocking };
            match view.tree.get(key, *hash, access)? {
                Lookup::Found(kind, value) => answers[*index] = found(view, key, *hash, kind, value),
                Lookup::Absent => {}
                Lookup::Waiting => {
                    open.swap(waiting, at);
                    waiting += 1;
                }
            }
        }
        if waiting == 0 {
            break;
        }
        open.truncate(waiting);
        let mut pages = wanted.borrow_mut();
        pages.sort_unstable_by_key(|address| address.page);
        pages.dedup();
        view.tree.load_pages(&pages)?;
        pages.clear();
    }
    Ok(answers)
}
