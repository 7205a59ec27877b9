//! The part of updates for one of the two trees.

use std::{fmt, ops::Deref};

use testudo_base::{Cursor, Result, Seqno};
use testudo_contract::Updates;
use testudo_run::{BoundedCursor, KeyBounds};

/// The updates with keys inside bounds; not empty.
pub(crate) struct UpdatesWithin<U> {
    updates: U,
    keys: KeyBounds,
    ends: (Vec<u8>, Vec<u8>),
}

impl<U> UpdatesWithin<U>
where
    U: Deref,
    U::Target: Updates,
{
    /// Restricts `updates` to `keys`; `None` if none remain.
    pub(crate) fn of(updates: U, keys: &KeyBounds) -> Result<Option<Self>> {
        if keys.is_empty() {
            return Ok(None);
        }
        let mut cursor = BoundedCursor::new(updates.cursor(), keys.clone());
        cursor.seek_first()?;
        let Some(first) = cursor.entry().map(|entry| entry.key.to_vec()) else { return Ok(None) };
        cursor.seek_last()?;
        let last = cursor.entry().map_or_else(|| first.clone(), |entry| entry.key.to_vec());
        drop(cursor);
        debug_assert!(first <= last, "the first key is no greater than the last");
        debug_assert!(keys.contains(&first) && keys.contains(&last), "all keys are inside");
        Ok(Some(Self { updates, keys: keys.clone(), ends: (first, last) }))
    }
}

impl<U> fmt::Debug for UpdatesWithin<U> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("UpdatesWithin").field("keys", &self.keys).finish_non_exhaustive()
    }
}

impl<U> Updates for UpdatesWithin<U>
where
    U: Deref + Send + Sync,
    U::Target: Updates,
{
    fn cursor(&self) -> Box<dyn Cursor + Send> {
        Box::new(BoundedCursor::new(self.updates.cursor(), self.keys.clone()))
    }

    fn sealed_seqno(&self) -> Seqno {
        self.updates.sealed_seqno()
    }

    fn bytes(&self) -> u64 {
        self.updates.bytes_between(self.keys.low.as_deref(), self.keys.high.as_deref())
    }

    fn bytes_between(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> u64 {
        let asked = KeyBounds { low: low.map(<[u8]>::to_vec), high: high.map(<[u8]>::to_vec) };
        let inside = self.keys.intersection(&asked);
        if inside.is_empty() {
            return 0;
        }
        self.updates.bytes_between(inside.low.as_deref(), inside.high.as_deref())
    }

    fn key_range(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        Some(self.ends.clone())
    }
}
