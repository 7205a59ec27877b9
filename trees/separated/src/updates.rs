//! Updates whose size excludes values that will be separated.
//!
//! Trees route updates by size before they read them. The fraction of the bytes that stays with the keys is
//! estimated from a few hundred entries.
//!
//! **Invariants**
//! - Cursors return the same entries as over the plain updates, or references to values already separated.

use testudo_base::{
    Cursor, Result, Seqno,
    num::{low64, u64_of},
    sync::Arc,
};
use testudo_contract::Updates;
use testudo_values::{Placement, ValueClass};

use crate::placing::class_of;

/// Number of entries sampled after each border of the updates.
const ENTRIES_AT_ONCE: usize = 32;
/// Approximate size of a reference.
const REFERENCE_BYTES: usize = 8;

/// Updates whose values partly stay with the keys.
#[derive(Debug)]
pub(crate) struct SeparatedUpdates {
    plain: Arc<dyn Updates>,
    /// Cursors return references to values that are already in a segment.
    refers: bool,
    /// Bytes of sampled entries, and the part that stays.
    sampled_bytes: u64,
    inline_bytes: u64,
}

impl SeparatedUpdates {
    /// Wraps `plain` under `placement`.
    pub(crate) fn new(plain: Arc<dyn Updates>, placement: Placement) -> Result<Self> {
        let (mut sampled_bytes, mut inline_bytes) = (0, 0);
        let mut cursor = plain.cursor();
        let first = plain.key_range().map(|(first, _)| first);
        for start in first.into_iter().chain(plain.borders()) {
            cursor.seek(&start)?;
            for _ in 0..ENTRIES_AT_ONCE {
                let Some(entry) = cursor.entry() else { break };
                sampled_bytes += u64_of(entry.user_bytes());
                inline_bytes += u64_of(match class_of(placement, &entry) {
                    None | Some(ValueClass::Small) => entry.user_bytes(),
                    Some(ValueClass::Medium | ValueClass::Large) => entry.key.len() + REFERENCE_BYTES,
                });
                cursor.next()?;
            }
        }
        let refers = placement.uses_value_logs();
        debug_assert!(inline_bytes <= sampled_bytes, "what stays with the keys is a part of the entries");
        Ok(Self { plain, refers, sampled_bytes, inline_bytes })
    }

    /// Bytes that will be separated, except those that are already.
    pub(crate) fn separated_bytes(&self) -> u64 {
        let logged = self.plain.value_segment().filter(|_| self.refers);
        let logged_bytes = logged.map_or(0, |segment| segment.stored_bytes() - segment.dead_bytes());
        (self.plain.bytes() - self.bytes()).saturating_sub(logged_bytes)
    }

    fn inline_of(&self, bytes: u64) -> u64 {
        let part = u128::from(bytes) * u128::from(self.inline_bytes) / u128::from(self.sampled_bytes.max(1));
        low64(part).max(bytes.min(1))
    }
}

/// Updates with references to the values that are already in a segment, at their full size.
#[derive(Debug)]
pub(crate) struct ReferringUpdates(pub(crate) Arc<dyn Updates>);

impl Updates for ReferringUpdates {
    fn cursor(&self) -> Box<dyn Cursor + Send> {
        self.0.cursor_with_references()
    }

    fn sealed_seqno(&self) -> Seqno {
        self.0.sealed_seqno()
    }

    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn bytes_between(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> u64 {
        self.0.bytes_between(low, high)
    }

    fn key_range(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        self.0.key_range()
    }

    fn borders(&self) -> Vec<Vec<u8>> {
        self.0.borders()
    }
}

impl Updates for SeparatedUpdates {
    fn cursor(&self) -> Box<dyn Cursor + Send> {
        if self.refers { self.plain.cursor_with_references() } else { self.plain.cursor() }
    }

    fn sealed_seqno(&self) -> Seqno {
        self.plain.sealed_seqno()
    }

    fn bytes(&self) -> u64 {
        self.inline_of(self.plain.bytes())
    }

    fn bytes_between(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> u64 {
        self.inline_of(self.plain.bytes_between(low, high))
    }

    fn key_range(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        self.plain.key_range()
    }

    fn borders(&self) -> Vec<Vec<u8>> {
        self.plain.borders()
    }
}
