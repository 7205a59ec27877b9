//! Ops that read, and the comparison of their answers with the model.
//!
//! **Invariants**
//! - Doubtful keys are checked against every possible value, or excluded from both sides.

use super::{Runner, TakenSnapshot, Wrong};
use crate::{
    op::{Scan, Slot},
    state::{show_key, show_value},
    store::{Pair, RawScan, RawWalk},
};

impl Runner<'_> {
    pub(super) fn get(&mut self, keyspace: Slot, key: &[u8]) -> Result<(), Wrong> {
        if !self.applies(keyspace) {
            return Ok(());
        }
        let result = self.store().get(keyspace, key);
        match self.excuse(result)? {
            Some(found) => self.check_value(keyspace, key, found.as_deref()),
            None => Ok(()),
        }
    }

    pub(super) fn multi_get(&mut self, keyspace: Slot, keys: &[Vec<u8>]) -> Result<(), Wrong> {
        if !self.applies(keyspace) {
            return Ok(());
        }
        let result = self.store().multi_get(keyspace, keys);
        let Some(found) = self.excuse(result)? else {
            return Ok(());
        };
        if found.len() != keys.len() {
            return Err(format!("{} answers to {} keys", found.len(), keys.len()));
        }
        keys.iter().zip(found).try_for_each(|(key, value)| self.check_value(keyspace, key, value.as_deref()))
    }

    pub(super) fn check_value(&self, keyspace: Slot, key: &[u8], found: Option<&[u8]>) -> Result<(), Wrong> {
        if self.model.allows(keyspace, key, found) {
            return Ok(());
        }
        let expected = self.model.live().get(keyspace, key).map(|value| &**value);
        let (expected, found) = (show_value(expected), show_value(found));
        Err(format!("wrong answer for {}: expected {expected}, found {found}", show_key(key)))
    }

    pub(super) fn scan(&mut self, keyspace: Slot, scan: &Scan) -> Result<(), Wrong> {
        if !self.applies(keyspace) {
            return Ok(());
        }
        let mut raw = RawScan::of(scan);
        if self.model.has_doubts() {
            // Doubtful keys are excluded from both sides, so a limit would cut at different places.
            raw.limit = usize::MAX;
            if matches!(raw.walk, RawWalk::Moves(_)) {
                raw.walk = RawWalk::Forward;
            }
        }
        let result = self.store().scan(keyspace, &raw);
        let Some(mut found) = self.excuse(result)? else {
            return Ok(());
        };
        let mut expected = self.model.live().scan(keyspace, &raw);
        if self.model.has_doubts() {
            // Ignore the order of a zigzag, which depends on the number of keys.
            found.retain(|(key, _)| !self.model.is_doubtful(keyspace, key));
            expected.retain(|(key, _)| !self.model.is_doubtful(keyspace, key));
            found.sort_unstable();
            expected.sort_unstable();
            found.dedup();
            expected.dedup();
        }
        compare_pairs(&expected, &found)
    }

    pub(super) fn snapshot(&mut self, slot: u8) -> Result<(), Wrong> {
        self.snapshots.remove(&slot);
        let result = self.store().snapshot();
        if let Some(view) = self.excuse(result)? {
            let state = (!self.model.has_doubts()).then(|| self.model.live().clone());
            self.snapshots.insert(slot, TakenSnapshot { view, state });
        }
        Ok(())
    }

    pub(super) fn snapshot_get(&mut self, slot: u8, keyspace: Slot, key: &[u8]) -> Result<(), Wrong> {
        let Some(TakenSnapshot { view, state: Some(state) }) = self.snapshots.get(&slot) else {
            return Ok(());
        };
        if !state.has(keyspace) {
            return Ok(());
        }
        let expected = state.get(keyspace, key).map(|value| value.to_vec());
        let result = view.get(keyspace, key);
        match self.excuse(result)? {
            Some(found) if found != expected => {
                let (expected, found) = (show_value(expected.as_deref()), show_value(found.as_deref()));
                Err(format!("wrong answer for {}: expected {expected}, found {found}", show_key(key)))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn snapshot_scan(&mut self, slot: u8, keyspace: Slot, scan: &RawScan) -> Result<(), Wrong> {
        let Some(TakenSnapshot { view, state: Some(state) }) = self.snapshots.get(&slot) else {
            return Ok(());
        };
        if !state.has(keyspace) {
            return Ok(());
        }
        match view.scan(keyspace, scan) {
            Ok(found) => compare_pairs(&state.scan(keyspace, scan), &found),
            Err(error) => self.excuse(Err::<(), _>(error)).map(drop),
        }
    }

    pub(super) fn snapshot_check(&mut self, slot: u8) -> Result<(), Wrong> {
        let Some(TakenSnapshot { state: Some(state), .. }) = self.snapshots.get(&slot) else {
            return Ok(());
        };
        for keyspace in state.slots() {
            self.snapshot_scan(slot, keyspace, &RawScan::all(RawWalk::Forward))?;
            self.snapshot_scan(slot, keyspace, &RawScan::all(RawWalk::Backward))?;
        }
        Ok(())
    }

    /// Compares all content in both directions and verifies the files.
    pub(super) fn verify(&mut self) -> Result<(), Wrong> {
        for keyspace in self.model.live().slots() {
            if !self.applies(keyspace) {
                continue;
            }
            for walk in [RawWalk::Forward, RawWalk::Backward] {
                let result = self.store().scan(keyspace, &RawScan::all(walk.clone()));
                let Some(mut found) = self.excuse(result)? else {
                    return Ok(());
                };
                let mut expected = self.model.live().scan(keyspace, &RawScan::all(walk));
                found.retain(|(key, _)| !self.model.is_doubtful(keyspace, key));
                expected.retain(|(key, _)| !self.model.is_doubtful(keyspace, key));
                compare_pairs(&expected, &found)?;
            }
        }
        let result = self.store().keyspaces();
        if let Some(mut found) = self.excuse(result)? {
            found.sort_unstable();
            let expected = self.model.live().slots();
            if found != expected && !self.model.has_doubts() {
                return Err(format!("keyspaces {found:?} instead of {expected:?}"));
            }
        }
        let result = self.store().verify();
        self.excuse(result).map(drop)
    }
}

/// Describes the first difference of two lists of pairs.
fn compare_pairs(expected: &[(&[u8], &[u8])], found: &[Pair]) -> Result<(), Wrong> {
    let same = |(expected, found): (&(&[u8], &[u8]), &Pair)| expected.0 == found.0 && expected.1 == found.1;
    let first = expected.iter().zip(found).position(|pair| !same(pair));
    let index = match first {
        Some(index) => index,
        None if expected.len() == found.len() => return Ok(()),
        None => expected.len().min(found.len()),
    };
    let show = |pair: Option<(&[u8], &[u8])>| match pair {
        Some((key, value)) => format!("{} with {}", show_key(key), show_value(Some(value))),
        None => "the end".into(),
    };
    Err(format!(
        "{} pairs instead of {}; at index {index} expected {}, found {}",
        found.len(),
        expected.len(),
        show(expected.get(index).copied()),
        show(found.get(index).map(|(key, value)| (&**key, &**value)))
    ))
}
