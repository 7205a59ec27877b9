//! Batches: writes that become visible and durable together.
//!
//! **Invariants**
//! - A batch of several writes is no larger than the longest value: log, write buffer and recovery each hold
//!   it whole.

use std::{mem, sync::Arc};

use testudo_base::{Error, Kind, Result, num::u64_of, operands_format::encode_operand, planted};
use testudo_options::Durability;
use testudo_store::{commits::batch_format::Operation, keyspace::KeyspaceCore};
use testudo_write::commit::{Limits, commit_many};

use crate::{Db, Keyspace, db::foreign_handle};

/// Bytes that each write of a batch counts in addition to its key and value.
const WRITE_BYTES: usize = 32;

#[derive(Clone, Copy, Debug)]
struct Item {
    /// Index of the keyspace in the batch.
    keyspace: usize,
    kind: Kind,
    key_bytes: usize,
    value_bytes: usize,
}

/// Writes to any keyspaces of one store, which [`Batch::commit`] applies atomically.
///
/// A batch of several writes holds at most a quarter of the memory budget, the same limit as for a value:
/// keys, values, and 32 bytes for each write. [`Batch::has_room_for`] returns `false` when it is time to
/// commit and start the next batch.
#[derive(Debug)]
pub struct Batch {
    db: Db,
    keyspaces: Vec<Arc<KeyspaceCore>>,
    items: Vec<Item>,
    bytes: Vec<u8>,
    durability: Durability,
    is_foreign: bool,
    /// Why the batch cannot be committed; once set, further writes are discarded.
    refused: Option<Error>,
    limits: Limits,
}

impl Drop for Batch {
    fn drop(&mut self) {
        if self.db.store().is_forked() {
            mem::forget(mem::take(&mut self.keyspaces));
        }
    }
}

impl Batch {
    pub(crate) fn new(db: &Db) -> Self {
        Self {
            db: db.clone(),
            keyspaces: Vec::new(),
            items: Vec::new(),
            bytes: Vec::new(),
            durability: db.store().default_durability,
            is_foreign: false,
            refused: None,
            limits: Limits::OfUsers,
        }
    }

    /// A batch for entries of another store, without limits on their length.
    pub(crate) fn of_another_store(db: &Db) -> Self {
        let mut batch = Self::new(db);
        batch.limits = Limits::None;
        batch
    }

    /// Adds an entry of any kind unchanged.
    pub(crate) fn push(&mut self, keyspace: &Keyspace, kind: Kind, key: &[u8], value: &[u8]) {
        self.is_foreign |= !Arc::ptr_eq(&keyspace.db.open, &self.db.open);
        if self.refused.is_some() {
            return;
        }
        let is_bounded = self.limits == Limits::OfUsers && !planted!("batch-bound-ignored");
        if is_bounded && !self.has_room_for(key.len(), value.len()) {
            self.refused = Some(self.too_large());
            return;
        }
        let known = self.keyspaces.iter().position(|known| Arc::ptr_eq(known, &keyspace.core));
        let index = known.unwrap_or_else(|| {
            self.keyspaces.push(Arc::clone(&keyspace.core));
            self.keyspaces.len() - 1
        });
        debug_assert!(!is_bounded || self.items.is_empty() || self.bytes() <= self.limit(), "the batch fits");
        self.items.push(Item { keyspace: index, kind, key_bytes: key.len(), value_bytes: value.len() });
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }

    fn limit(&self) -> u64 {
        self.db.store().memory.max_value_bytes()
    }

    fn too_large(&self) -> Error {
        Error::invalid(format!(
            "the batch exceeds {} bytes, a quarter of the memory budget of {} bytes, after {} writes",
            self.limit(),
            self.db.store().memory.total(),
            self.items.len()
        ))
    }

    /// Returns the bytes that count towards the limit so far: keys, values, and 32 bytes for each write.
    pub fn bytes(&self) -> u64 {
        u64_of(self.bytes.len() + self.items.len() * WRITE_BYTES)
    }

    /// Returns `true` if a write with a key and a value of these lengths can be added; always `true` while
    /// the batch is empty. A write that does not fit is not added, and [`Batch::commit`] fails.
    pub fn has_room_for(&self, key_bytes: usize, value_bytes: usize) -> bool {
        let more = u64_of(key_bytes + WRITE_BYTES).saturating_add(u64_of(value_bytes));
        self.items.is_empty() || self.bytes().saturating_add(more) <= self.limit()
    }

    /// Sets `key` to `value`. The last of several writes to one key takes effect. If a merge operator rejects
    /// the value, [`Batch::commit`] returns its error.
    pub fn insert(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.keep_refusal(keyspace.core.check_value(key, value));
        self.push(keyspace, Kind::Value, key, value);
    }

    /// Deletes `key`.
    pub fn remove(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) {
        self.push(keyspace, Kind::Tombstone, key.as_ref(), &[]);
    }

    /// Adds an operand to `key`, as [`Keyspace::merge`] does; [`Batch::commit`] returns any error of the
    /// operator.
    pub fn merge(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        self.keep_refusal(keyspace.core.full_merge.check_operand(key, operand));
        self.push(keyspace, Kind::Operands, key, &encode_operand(operand));
    }

    fn keep_refusal(&mut self, checked: Result<()>) {
        if let Err(error) = checked {
            self.refused.get_or_insert(error);
        }
    }

    /// Returns the number of writes.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns `true` if the batch has no writes.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Sets the durability of the commit when it is acknowledged. The default is the store's, set by
    /// [`DbBuilder::durability`](crate::DbBuilder::durability).
    ///
    /// A batch can raise the durability of the store, never lower it. In a store that was opened with
    /// [`Durability::Sync`] every commit is synced before it is acknowledged, even a batch with
    /// [`Durability::Buffered`].
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability.max(self.db.store().default_durability);
        self
    }

    /// Applies all writes atomically.
    ///
    /// ```
    /// # fn main() -> testudo::Result<()> {
    /// # let directory = std::env::temp_dir().join(format!("testudo-doc-commit-{}", std::process::id()));
    /// # let db = testudo::Db::builder(&directory).temporary().open()?;
    /// # let users = db.keyspace("users", testudo::KeyspaceOptions::default())?;
    /// use testudo::Durability;
    ///
    /// let mut batch = db.batch().durability(Durability::Sync);
    /// batch.insert(&users, "ada", "1815");
    /// batch.remove(&users, "charles");
    /// batch.commit()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: `Invalid` if the batch is too large, or contains a keyspace of another store; those of
    /// [`Keyspace::insert`] and [`Keyspace::merge`], for any of its writes. After an error of the sync the
    /// writes are visible but a crash may lose them; after any other error nothing is applied. An empty batch
    /// fails with `Poisoned` or `Closed` if the store is in that state, and otherwise does nothing.
    pub fn commit(mut self) -> Result<()> {
        if self.is_foreign {
            return Err(foreign_handle());
        }
        if let Some(error) = self.refused.take() {
            return Err(error);
        }
        let mut operations = Vec::with_capacity(self.items.len());
        let mut rest = self.bytes.as_slice();
        for item in &self.items {
            let (key, after) = rest.split_at(item.key_bytes);
            let (value, after) = after.split_at(item.value_bytes);
            rest = after;
            let keyspace = self.keyspaces[item.keyspace].id;
            operations.push(Operation { keyspace, kind: item.kind, key, value });
        }
        debug_assert!(rest.is_empty(), "each byte belongs to a write");
        commit_many(self.db.store(), &self.keyspaces, &operations, self.durability, self.limits)
    }
}
