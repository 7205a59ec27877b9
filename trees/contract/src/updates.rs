//! Sorted updates to be applied to a tree, and keys at which work on them may be split.
//!
//! **Invariants**
//! - Borders ascend, and none is longer than a key may be: they become fences.

use std::fmt;

use testudo_base::{Cursor, MAX_KEY_BYTES, Seqno, key};
use testudo_values::Segment;

/// Number of parts into which [`Updates::borders`] cuts a range of keys.
const BORDERS: u64 = 16;
/// A part of this many times the average is cut again: an eighth of all bytes.
const LARGE_TIMES: u64 = 2;
/// Recursion limit for cutting a part that is too large. Textual keys and decimal numbers cluster, once for
/// each byte in which they differ.
const BORDER_DEPTH: u32 = 8;

/// Sorted updates to be applied to a tree: a frozen memtable.
pub trait Updates: Send + Sync + fmt::Debug {
    /// Returns a cursor over them, tombstones included.
    fn cursor(&self) -> Box<dyn Cursor + Send>;
    /// Seqno up to which these and earlier updates have everything of the keyspace. Greater than that of all
    /// earlier updates of the tree.
    fn sealed_seqno(&self) -> Seqno;
    /// Bytes of keys and values.
    fn bytes(&self) -> u64;
    /// Approximate bytes in `[low, high)`; `None` bounds are open.
    fn bytes_between(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> u64;
    /// Returns the first and the last key; `None` if there are no updates.
    fn key_range(&self) -> Option<(Vec<u8>, Vec<u8>)>;
    /// Value segment that already has some of their values, if there is one. The tree owns it once it has the
    /// references. A value in it is garbage if no update refers to it.
    fn value_segment(&self) -> Option<Segment> {
        None
    }
    /// Like [`Updates::cursor`], but returns references to the values in [`Updates::value_segment`].
    fn cursor_with_references(&self) -> Box<dyn Cursor + Send> {
        self.cursor()
    }
    /// Returns keys at which work on the updates may be split, ascending. At most about an eighth of all
    /// bytes is between two of them.
    fn borders(&self) -> Vec<Vec<u8>> {
        let mut borders = Vec::new();
        if let Some(ends) = self.key_range() {
            cut_range(self, ends, BORDER_DEPTH, &mut borders);
        }
        debug_assert!(borders.is_sorted(), "borders ascend");
        debug_assert!(
            borders.iter().all(|border| border.len() <= MAX_KEY_BYTES),
            "borders may become fences"
        );
        borders
    }
}

/// Adds borders between two keys of the updates.
fn cut_range<U: Updates + ?Sized>(
    updates: &U,
    (first, last): (Vec<u8>, Vec<u8>),
    depth: u32,
    borders: &mut Vec<Vec<u8>>,
) {
    debug_assert!(first <= last, "a range of keys");
    let between = keys_between(&first, &last);
    let lows = std::iter::once(first.as_slice()).chain(between.iter().map(Vec::as_slice));
    let highs = between.iter().map(|key| Some(key.as_slice())).chain([None]);
    for (low, high) in lows.zip(highs) {
        let bytes = updates.bytes_between(Some(low), Some(high.unwrap_or(&last)));
        if bytes > updates.bytes() / BORDERS * LARGE_TIMES
            && depth > 0
            && let Some(ends) = ends_within(updates, low, high.unwrap_or(&last))
        {
            cut_range(updates, ends, depth - 1, borders);
        }
        borders.extend(high.map(<[u8]>::to_vec));
    }
}

/// Returns the first and last key of the updates in `[low, high)`, if they differ.
fn ends_within<U: Updates + ?Sized>(updates: &U, low: &[u8], high: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut cursor = updates.cursor();
    cursor.seek(low).ok()?;
    let first = cursor.entry()?.key.to_vec();
    cursor.seek_before(high).ok()?;
    let last = cursor.entry()?.key.to_vec();
    (first < last).then_some((first, last))
}

/// Returns keys at about equal distances between two, in order. None is longer than a key may be: they become
/// fences.
fn keys_between(first: &[u8], last: &[u8]) -> Vec<Vec<u8>> {
    let shared = key::common_prefix(first, last);
    let (low, high) = (key::head(&first[shared..]), key::head(&last[shared..]));
    let step = high.saturating_sub(low) / BORDERS;
    if step == 0 {
        return Vec::new();
    }
    let border = |number: u64| {
        let mut border = [&first[..shared], &(low + number * step).to_be_bytes()].concat();
        border.truncate(MAX_KEY_BYTES);
        border
    };
    let mut borders: Vec<Vec<u8>> = (1..BORDERS).map(border).collect();
    // Truncated keys may be equal.
    borders.dedup();
    borders.retain(|border| border.as_slice() > first);
    debug_assert!(borders.is_sorted_by(|a, b| a < b), "borders ascend");
    borders
}

#[cfg(test)]
mod tests;
