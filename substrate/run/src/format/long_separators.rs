//! Search among blocks whose separators are too long to be stored.
//!
//! An index of whole keys would be as large as the run if keys share long prefixes. A separator longer than
//! [`MAX_SEPARATOR_BYTES`] is therefore *cut*: stored are that many bytes of its block's first key, and the
//! *fork*, where that key differs from the first key of the previous block. Equal cut separators form a
//! group. The forks of a group are a Patricia trie of the first keys: they lead to one block, and a
//! comparison with that block's whole first key tells how to continue (Ferguson, "Bit-Tree", CACM 35(6),
//! 1992).
//!
//! **Invariants**
//! - Within a group, each fork is the position where a block's first key differs from that of the previous
//!   block, and the byte there; the fork of the group's first block is unused.
//! - Wrong forks (damage) cost comparisons and at worst find a wrong block; the search always terminates.

use std::{cmp::Ordering, ops::Range};

use testudo_base::{
    Result,
    codec::{self, Damage, Reader},
    key,
    num::{u32_of, usize_of},
    planted,
};

/// Maximum length of a separator in an index.
pub(crate) const MAX_SEPARATOR_BYTES: usize = 256;

/// Position where a key differs from a lesser one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fork {
    /// Length of the common prefix.
    pub(crate) shared: u32,
    /// The greater key's byte after the common prefix.
    pub(crate) byte: u8,
}

impl Fork {
    /// Bytes of its encoding.
    pub(crate) const BYTES: usize = 5;

    /// Returns the fork of `right` relative to `left`. REQUIRES: `left < right`.
    pub(crate) fn between(left: &[u8], right: &[u8]) -> Self {
        debug_assert!(left < right, "keys must increase");
        let shared = key::common_prefix(left, right);
        Self { shared: u32_of(shared), byte: right.get(shared).copied().unwrap_or(0) }
    }

    /// Combines the forks from `a` to `b` (`self`) and from `b` to `c` (`next`) to the one from `a` to `c`.
    pub(crate) fn then(self, next: Self) -> Self {
        if next.shared <= self.shared { next } else { self }
    }

    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        codec::put_u32(out, self.shared);
        codec::put_u8(out, self.byte);
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> std::result::Result<Self, Damage> {
        Ok(Self { shared: reader.u32()?, byte: reader.u8()? })
    }

    fn shared(self) -> usize {
        usize_of(u64::from(self.shared))
    }

    /// Compares the byte of `key` at the fork with the fork's byte.
    fn order_of(self, key: &[u8]) -> Ordering {
        // A key that ends at the fork precedes all longer ones.
        key.get(self.shared()).map_or(Ordering::Less, |byte| byte.cmp(&self.byte))
    }
}

/// The separator before a block, cut if it is too long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Separator {
    pub(crate) bytes: Vec<u8>,
    /// The fork, if it was cut.
    pub(crate) fork: Option<Fork>,
}

impl Separator {
    /// Returns the separator of a block with keys from `left_first` to `left` and one that starts with
    /// `right`.
    pub(crate) fn between(left_first: &[u8], left: &[u8], right: &[u8]) -> Self {
        debug_assert!(left_first <= left && left < right, "keys must increase");
        let shared = key::common_prefix(left, right);
        debug_assert!(shared < right.len(), "the right key goes on");
        if shared < MAX_SEPARATOR_BYTES {
            return Self { bytes: right[..(shared + 1).min(right.len())].to_vec(), fork: None };
        }
        Self { bytes: right[..MAX_SEPARATOR_BYTES].to_vec(), fork: Some(Fork::between(left_first, right)) }
    }
}

/// Compares `key` with the first key of a block: length of the common prefix, and order.
pub(crate) fn compare_first(key: &[u8], first: &[u8]) -> (usize, Ordering) {
    (key::common_prefix(key, first), key.cmp(first))
}

/// Number of a group's blocks that start at or before `key`. `compare` reads a block of the group and returns
/// [`compare_first`] for it.
pub(crate) fn count_at_or_before(
    key: &[u8],
    forks: &[Fork],
    mut compare: impl FnMut(usize) -> Result<(usize, Ordering)>,
) -> Result<usize> {
    // Blocks before `range` start at or before the key, those after it start after the key.
    let mut range = 0..forks.len();
    let mut candidate = follow_forks(key, forks);
    while !range.is_empty() {
        if planted!("forks-believed-unread") {
            return Ok(candidate + 1);
        }
        let (shared, order) = compare(candidate)?;
        candidate = if order == Ordering::Less {
            go_left(forks, &mut range, candidate, shared)
        } else {
            go_right(key, forks, &mut range, candidate, shared)
        };
    }
    debug_assert!(range.start <= forks.len(), "a number of blocks of the group");
    Ok(range.start)
}

/// Returns the block to which the forks lead. If any block's first key equals `key`, it is this one.
fn follow_forks(key: &[u8], forks: &[Fork]) -> usize {
    let mut candidate = 0;
    let mut next = 1;
    while next < forks.len() {
        let fork = forks[next];
        let is_beyond = fork.order_of(key) == Ordering::Less;
        if !is_beyond {
            candidate = next;
        }
        next += 1;
        // Blocks that share more with a block beyond the key are beyond it, too.
        while is_beyond && next < forks.len() && forks[next].shared > fork.shared {
            next += 1;
        }
    }
    candidate
}

/// Narrows the range if block `at` starts after the key, with `shared` common bytes. Returns the next
/// candidate.
fn go_left(forks: &[Fork], range: &mut Range<usize>, at: usize, shared: usize) -> usize {
    range.end = at.max(range.start);
    // The first keys of these blocks share more with each other than with the key.
    while range.start < range.end && forks[range.end].shared() > shared {
        range.end -= 1;
    }
    if range.start < range.end && forks[range.end].shared() < shared {
        range.start = range.end;
    }
    range.end.saturating_sub(1)
}

/// Narrows the range if block `at` starts at or before the key, with `shared` common bytes. Returns the next
/// candidate.
fn go_right(key: &[u8], forks: &[Fork], range: &mut Range<usize>, at: usize, shared: usize) -> usize {
    range.start = (at + 1).min(range.end);
    while range.start < range.end {
        let fork = forks[range.start];
        let order = match fork.shared().cmp(&shared) {
            Ordering::Greater => Ordering::Greater,
            Ordering::Equal => fork.order_of(key),
            Ordering::Less => Ordering::Less,
        };
        match order {
            Ordering::Greater => range.start += 1,
            Ordering::Less => range.end = range.start,
            Ordering::Equal => break,
        }
    }
    range.start
}

#[cfg(test)]
mod tests;
