//! Reading: point queries over a view, one by one or many at once.
//!
//! **Invariants**
//! - Sources are asked newest first; the first that knows the key decides.

use std::{cell::RefCell, ops::RangeBounds};

use testudo_base::{Kind, Result, Seqno, checksum::hash_key};
use testudo_storage::{Access, Lookup};

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

/// The write buffers' answer; `None` if they know nothing of the key.
fn get_buffered(view: &View, key: &[u8], at: Seqno) -> Option<Option<Slice>> {
    view.buffers().find_map(|buffer| {
        buffer.table.get(key, at, |kind, value| match kind {
            Kind::Value => Some(Slice::from(value.to_vec())),
            Kind::Tombstone => None,
        })
    })
}

fn value_of(kind: Kind, value: Vec<u8>) -> Option<Slice> {
    (kind == Kind::Value).then(|| Slice::from(value))
}

/// The value of `key` in `view`, as of `at`.
pub(crate) fn get(view: &View, key: &[u8], at: Seqno) -> Result<Option<Slice>> {
    if let Some(answer) = get_buffered(view, key, at) {
        return Ok(answer);
    }
    match view.tree.get(key, hash_key(key), Access::Blocking)? {
        Lookup::Found(kind, value) => Ok(value_of(kind, value)),
        Lookup::Absent | Lookup::Waiting => Ok(None),
    }
}

/// The values of `keys` in `view`, as of `at`.
pub(crate) fn multi_get<K: AsRef<[u8]>>(view: &View, keys: &[K], at: Seqno) -> Result<Vec<Option<Slice>>> {
    let mut answers: Vec<Option<Slice>> = Vec::with_capacity(keys.len());
    let mut open: Vec<usize> = Vec::new();
    for (index, key) in keys.iter().enumerate() {
        let answer = get_buffered(view, key.as_ref(), at);
        if answer.is_none() {
            open.push(index);
        }
        answers.push(answer.flatten());
    }
    let wanted = RefCell::new(Vec::new());
    for round in 0.. {
        let mut waiting = Vec::new();
        for index in open {
            let key = keys[index].as_ref();
            let access = if round < MAX_ROUNDS { Access::Noting(&wanted) } else { Access::Blocking };
            match view.tree.get(key, hash_key(key), access)? {
                Lookup::Found(kind, value) => answers[index] = value_of(kind, value),
                Lookup::Absent => {}
                Lookup::Waiting => waiting.push(index),
            }
        }
        if waiting.is_empty() {
            break;
        }
        open = waiting;
        let mut pages = wanted.take();
        pages.sort_unstable_by_key(|address| address.page);
        pages.dedup();
        view.tree.load_pages(&pages)?;
    }
    Ok(answers)
}
