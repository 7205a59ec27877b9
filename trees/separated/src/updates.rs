//! Updates as large as they are once their values lie outside.
//!
//! Trees decide by sizes where updates go before they look at them. How much of updates stays with the keys
//! is estimated by a few hundred of their entries.
//!
//! **Invariants**
//! - Cursors show what those over the plain updates show, or references to where that lies already.

use testudo_base::{
    Cursor, Result, Seqno,
    num::{low64, u64_of},
    sync::Arc,
};
use testudo_contract::Updates;
use testudo_values::{PairClass, Placement};

use crate::placing::class_of;

/// So many entries are looked at behind each border of the updates.
const ENTRIES_AT_ONCE: usize = 32;
/// About what a reference takes.
const REFERENCE_BYTES: usize = 8;

/// Updates of which a part stays with the keys.
#[derive(Debug)]
pub(crate) struct SeparatedUpdates {
    plain: Arc<dyn Updates>,
    /// References are shown to what lies in a segment already.
    refers: bool,
    /// Bytes of sampled entries, and what stays of them.
    sampled_bytes: u64,
    staying_bytes: u64,
}

impl SeparatedUpdates {
    /// `plain` under `placement`.
    pub(crate) fn new(plain: Arc<dyn Updates>, placement: Placement) -> Result<Self> {
        let (mut sampled_bytes, mut staying_bytes) = (0, 0);
        let mut cursor = plain.cursor();
        let first = plain.key_range().map(|(first, _)| first);
        for start in first.into_iter().chain(plain.borders()) {
            cursor.seek(&start)?;
            for _ in 0..ENTRIES_AT_ONCE {
                let Some(entry) = cursor.entry() else { break };
                sampled_bytes += u64_of(entry.user_bytes());
                staying_bytes += u64_of(match class_of(placement, &entry) {
                    None | Some(PairClass::Small) => entry.user_bytes(),
                    Some(PairClass::Medium | PairClass::Large) => entry.key.len() + REFERENCE_BYTES,
                });
                cursor.next()?;
            }
        }
        let refers = placement.uses_value_logs();
        Ok(Self { plain, refers, sampled_bytes, staying_bytes })
    }

    /// Bytes that go outside, but for those that lie there already.
    pub(crate) fn outlying_bytes(&self) -> u64 {
        let logged = self.plain.value_segment().filter(|_| self.refers);
        let logged_bytes = logged.map_or(0, |segment| segment.stored_bytes() - segment.dead_bytes());
        (self.plain.bytes() - self.bytes()).saturating_sub(logged_bytes)
    }

    fn staying_of(&self, bytes: u64) -> u64 {
        let part = u128::from(bytes) * u128::from(self.staying_bytes) / u128::from(self.sampled_bytes.max(1));
        low64(part).max(bytes.min(1))
    }
}

/// Updates with references to the values that lie in a segment already, as large as they are.
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
        self.staying_of(self.plain.bytes())
    }

    fn bytes_between(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> u64 {
        self.staying_of(self.plain.bytes_between(low, high))
    }

    fn key_range(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        self.plain.key_range()
    }

    fn borders(&self) -> Vec<Vec<u8>> {
        self.plain.borders()
    }
}
