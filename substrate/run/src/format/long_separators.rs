//! Which block has a key, where separators are too long to be kept.
//!
//! An index that held whole keys would be as large as the run where keys share long prefixes. So a separator
//! that would be longer than [`MAX_SEPARATOR_BYTES`] is *cut*: kept are so many bytes of the first key of its
//! block, and the *fork*, where that key differs from the first key of the block before. Cut separators that
//! are equal form a group. The forks of a group are a Patricia trie of the first keys: they lead to one
//! block, and the first key of that block, read whole, tells whether to stay (Ferguson, "Bit-Tree", CACM
//! 35(6), 1992).
//!
//! **Invariants**
//! - Within a group each fork says where the first key of a block leaves that of the block before it, and
//!   with which byte; the fork of the group's first block says nothing.
//! - Wrong forks (damage) cost comparisons and give a wrong block at worst; the search ends.

use std::{cmp::Ordering, ops::Range};

use testudo_base::{
    Result,
    codec::{self, Damage, Reader},
    key,
    num::{u32_of, usize_of},
    planted,
};

/// Longest separator in an index.
pub(crate) const MAX_SEPARATOR_BYTES: usize = 256;

/// Where a key leaves another one that is less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fork {
    /// How many bytes they share.
    pub(crate) shared: u32,
    /// The byte of the greater key behind them.
    pub(crate) byte: u8,
}

impl Fork {
    /// Bytes of its encoding.
    pub(crate) const BYTES: usize = 5;

    /// Where `right` leaves `left`. REQUIRES: `left < right`.
    pub(crate) fn between(left: &[u8], right: &[u8]) -> Self {
        debug_assert!(left < right, "keys ascend");
        let shared = key::common_prefix(left, right);
        Self { shared: u32_of(shared), byte: right.get(shared).copied().unwrap_or(0) }
    }

    /// With `self` leading from `a` to `b`, and `next` from `b` to `c`: from `a` to `c`.
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

    /// How the byte of `key` at the fork compares with the fork's.
    fn order_of(self, key: &[u8]) -> Ordering {
        // A key that ends at the fork comes before all that go on.
        key.get(self.shared()).map_or(Ordering::Less, |byte| byte.cmp(&self.byte))
    }
}

/// The separator before a block, cut if it is too long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Separator {
    pub(crate) bytes: Vec<u8>,
    /// There if it was cut.
    pub(crate) fork: Option<Fork>,
}

impl Separator {
    /// Between a block that begins with `left_first` and ends with `left`, and one that begins with `right`.
    pub(crate) fn between(left_first: &[u8], left: &[u8], right: &[u8]) -> Self {
        debug_assert!(left_first <= left && left < right, "keys ascend");
        let shared = key::common_prefix(left, right);
        if shared < MAX_SEPARATOR_BYTES {
            return Self { bytes: right[..(shared + 1).min(right.len())].to_vec(), fork: None };
        }
        Self { bytes: right[..MAX_SEPARATOR_BYTES].to_vec(), fork: Some(Fork::between(left_first, right)) }
    }
}

/// How `key` compares with the first key of a block: how many bytes they share, and the order.
pub(crate) fn compare_first(key: &[u8], first: &[u8]) -> (usize, Ordering) {
    (key::common_prefix(key, first), key.cmp(first))
}

/// How many of a group's blocks begin at or before `key`. `compare` is [`compare_first`] for a block of the
/// group, and reads it.
pub(crate) fn count_at_or_before(
    key: &[u8],
    forks: &[Fork],
    mut compare: impl FnMut(usize) -> Result<(usize, Ordering)>,
) -> Result<usize> {
    // Blocks before `range` begin at or before the key, those behind it after the key.
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
    Ok(range.start)
}

/// The block to which the forks lead. If any first key equals `key`, it is this one's.
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
        // What shares more with a block that the key does not reach is beyond the key, too.
        while is_beyond && next < forks.len() && forks[next].shared > fork.shared {
            next += 1;
        }
    }
    candidate
}

/// Block `at` begins after the key, with which it shares so many bytes. Narrows the range; the next one to
/// look at.
fn go_left(forks: &[Fork], range: &mut Range<usize>, at: usize, shared: usize) -> usize {
    range.end = at.max(range.start);
    // The first keys of these share more with each other than with the key.
    while range.start < range.end && forks[range.end].shared() > shared {
        range.end -= 1;
    }
    if range.start < range.end && forks[range.end].shared() < shared {
        range.start = range.end;
    }
    range.end.saturating_sub(1)
}

/// Block `at` begins at or before the key, with which it shares so many bytes.
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
