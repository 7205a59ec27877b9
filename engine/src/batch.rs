//! Several writes that become visible and durable together.

use std::sync::Arc;

use testudo_base::{Error, Kind, Result, operands_format::encode_operand};

use crate::{
    Db, Keyspace, batch_format::Operation, db::foreign_handle, options::Durability, view::KeyspaceCore,
};

#[derive(Clone, Copy, Debug)]
struct Item {
    /// Index of the keyspace in the batch.
    keyspace: usize,
    kind: Kind,
    key_bytes: usize,
    value_bytes: usize,
}

/// Writes to any keyspaces of one store, applied by [`Batch::commit`] all together or not at all.
#[derive(Debug)]
pub struct Batch {
    db: Db,
    keyspaces: Vec<Arc<KeyspaceCore>>,
    items: Vec<Item>,
    bytes: Vec<u8>,
    durability: Durability,
    is_foreign: bool,
    /// Why an operand cannot be written.
    refused: Option<Error>,
}

impl Batch {
    pub(crate) fn new(db: &Db) -> Self {
        Self {
            db: db.clone(),
            keyspaces: Vec::new(),
            items: Vec::new(),
            bytes: Vec::new(),
            durability: Durability::Buffered,
            is_foreign: false,
            refused: None,
        }
    }

    /// Adds an entry of any kind as it is.
    pub(crate) fn push(&mut self, keyspace: &Keyspace, kind: Kind, key: &[u8], value: &[u8]) {
        self.is_foreign |= !Arc::ptr_eq(&keyspace.db.open, &self.db.open);
        let known = self.keyspaces.iter().position(|known| Arc::ptr_eq(known, &keyspace.core));
        let index = known.unwrap_or_else(|| {
            self.keyspaces.push(Arc::clone(&keyspace.core));
            self.keyspaces.len() - 1
        });
        self.items.push(Item { keyspace: index, kind, key_bytes: key.len(), value_bytes: value.len() });
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }

    /// Sets `key` to `value`. Of several writes to one key the last one counts.
    pub fn insert(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
        self.push(keyspace, Kind::Value, key.as_ref(), value.as_ref());
    }

    /// Deletes `key`.
    pub fn remove(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>) {
        self.push(keyspace, Kind::Tombstone, key.as_ref(), &[]);
    }

    /// Changes the value of `key` by an operand, as [`Keyspace::merge`]; what speaks against that is an error of [`Batch::commit`].
    pub fn merge(&mut self, keyspace: &Keyspace, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        let checked = keyspace.core.folding.operator().and_then(|operator| operator.check(key, operand));
        if let Err(error) = checked {
            self.refused.get_or_insert(error);
        }
        self.push(keyspace, Kind::Operands, key, &encode_operand(operand));
    }

    /// Number of writes.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// How durable the commit is when it is acknowledged. Default: the store's.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Applies all writes atomically.
    ///
    /// Errors: `Invalid` if a key or value is too long or a keyspace was dropped or is of another store, and those of
    /// [`Keyspace::merge`]; then nothing is applied. After an error of a `Sync` commit's sync the writes are visible but may be lost by a crash.
    pub fn commit(self) -> Result<()> {
        if self.is_foreign {
            return Err(foreign_handle());
        }
        if let Some(error) = self.refused {
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
        self.db.store().commit_many(&self.keyspaces, &operations, self.durability)
    }
}
