//! Ops that change content, and how the model records them.
//!
//! **Invariants**
//! - The model records every call that may have changed something: as a commit if it succeeded, as an
//!   uncertain one if it failed.

use testudo_base::ErrorKind;

use super::{Answer, Runner, Wrong};
use crate::{
    Value,
    model::Outcome,
    op::{Change, Slot, Span, Write},
    state::{Delta, show_value},
    store::{RawScan, RawWrite},
};

impl Runner<'_> {
    fn finish_write(
        &mut self,
        deltas: Vec<Delta>,
        outcome: Outcome,
        result: Answer<()>,
    ) -> Result<(), Wrong> {
        let done = self.excuse(result)?.is_some();
        self.model.commit(deltas, if done { outcome } else { Outcome::Failed });
        Ok(())
    }

    pub(super) fn create(&mut self, keyspace: Slot) -> Result<(), Wrong> {
        let result = self.store_mut().create(keyspace);
        if self.model.live().has(keyspace) {
            return self.excuse(result).map(drop);
        }
        self.finish_write(vec![Delta::Create(keyspace)], Outcome::Synced, result)
    }

    pub(super) fn set_tree(&mut self, keyspace: Slot, choice: u8) -> Result<(), Wrong> {
        if !self.model.live().has(keyspace) || self.model.is_doubtful_keyspace(keyspace) {
            return Ok(());
        }
        let result = self.store_mut().set_tree(keyspace, choice);
        self.excuse(result).map(drop)
    }

    pub(super) fn compact_range(&mut self, keyspace: Slot, span: &Span) -> Result<(), Wrong> {
        if !self.applies(keyspace) {
            return Ok(());
        }
        let result = self.store().compact_range(keyspace, &RawScan::of_span(span));
        self.excuse(result).map(drop)
    }

    pub(super) fn drop_keyspace(&mut self, keyspace: Slot) -> Result<(), Wrong> {
        let expected = self.model.live().has(keyspace);
        let certain = !self.model.is_doubtful_keyspace(keyspace);
        let result = self.store_mut().drop_keyspace(keyspace);
        if let Ok(existed) = result
            && certain
            && existed != expected
        {
            return Err(format!("it said {existed}, expected {expected}"));
        }
        if !expected && certain {
            return self.excuse(result).map(drop);
        }
        self.finish_write(vec![Delta::Drop(keyspace)], Outcome::Synced, result.map(drop))
    }

    pub(super) fn put(&mut self, keyspace: Slot, key: &[u8], value: Option<Value>) -> Result<(), Wrong> {
        if !self.applies(keyspace) {
            return Ok(());
        }
        let value = value.map(Value::bytes);
        let result = match &value {
            Some(value) => self.store().insert(keyspace, key, value),
            None => self.store().remove(keyspace, key),
        };
        let delta = Delta::Write { keyspace, key: key.into(), value: value.map(Into::into) };
        self.finish_write(vec![delta], Outcome::Buffered, result)
    }

    pub(super) fn merge(&mut self, keyspace: Slot, key: &[u8], operand: Value) -> Result<(), Wrong> {
        if !self.applies(keyspace) {
            return Ok(());
        }
        let operand = operand.bytes();
        let result = self.store().merge(keyspace, key, &operand);
        let delta = Delta::Merge { keyspace, key: key.into(), operand: operand.into() };
        self.finish_write(vec![delta], Outcome::Buffered, result)
    }

    pub(super) fn batch(&mut self, writes: &[Write], synced: bool) -> Result<(), Wrong> {
        let applicable = writes.iter().filter(|write| self.applies(write.keyspace));
        let raw: Vec<RawWrite> = applicable
            .map(|write| RawWrite {
                keyspace: write.keyspace,
                key: write.key.bytes(),
                value: write.value.map(Value::bytes),
            })
            .collect();
        let result = self.store().commit(&raw, synced);
        let delta = |write: RawWrite| Delta::Write {
            keyspace: write.keyspace,
            key: write.key.into(),
            value: write.value.map(Into::into),
        };
        // An empty batch guarantees nothing.
        let outcome = if synced && !raw.is_empty() { Outcome::Synced } else { Outcome::Buffered };
        self.finish_write(raw.into_iter().map(delta).collect(), outcome, result)
    }

    pub(super) fn update(&mut self, keyspace: Slot, key: &[u8], change: Change) -> Result<(), Wrong> {
        if !self.applies(keyspace) {
            return Ok(());
        }
        let mut seen: Vec<Option<Vec<u8>>> = Vec::new();
        let mut made = None;
        let result = self.store().update(keyspace, key, &mut |old| {
            seen.push(old.map(<[u8]>::to_vec));
            let new = match change {
                Change::Set(value) => Some(value.bytes()),
                Change::Follow(value) => Some(value.after(old)),
                Change::Remove => None,
            };
            made = Some(new.clone());
            new
        });
        for old in &seen {
            self.check_value(keyspace, key, old.as_deref())?;
        }
        let Some(made) = made else {
            return match result {
                Ok(_) => Err("the closure was never called".into()),
                Err(error) => self.excuse(Err::<(), _>(error)).map(drop),
            };
        };
        if let Ok(returned) = &result
            && *returned != made
        {
            return Err(format!("it returned {}", show_value(returned.as_deref())));
        }
        let delta = Delta::Write { keyspace, key: key.into(), value: made.map(Into::into) };
        self.finish_write(vec![delta], Outcome::Buffered, result.map(drop))
    }

    pub(super) fn swap(
        &mut self,
        keyspace: Slot,
        key: &[u8],
        right: bool,
        value: Option<Value>,
    ) -> Result<(), Wrong> {
        if !self.applies(keyspace) || self.model.is_doubtful(keyspace, key) {
            return Ok(());
        }
        let current = self.model.live().get(keyspace, key).map(|value| value.to_vec());
        let expected = match (&current, right) {
            (_, true) => current,
            (None, false) => Some(Vec::new()),
            (Some(value), false) if value.is_empty() => None,
            (Some(value), false) => Some(value[1..].to_vec()),
        };
        let value = value.map(Value::bytes);
        let result = self.store().compare_and_swap(keyspace, key, expected.as_deref(), value.as_deref());
        if !right {
            return match result {
                Ok(()) => Err("it swapped although the value differed".into()),
                Err(error) if error.kind() == ErrorKind::Conflict => Ok(()),
                Err(error) => self.excuse(Err::<(), _>(error)).map(drop),
            };
        }
        let delta = Delta::Write { keyspace, key: key.into(), value: value.map(Into::into) };
        self.finish_write(vec![delta], Outcome::Buffered, result)
    }
}
