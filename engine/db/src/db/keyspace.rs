//! The handle of a keyspace: reads, writes, atomic read-modify-writes.

mod compact_range;

use std::{io::Read, mem, sync::Arc};

use testudo_base::{Error, Kind, Result, Seqno, operands_format::encode_operand};
use testudo_contract::OutlineLine;
use testudo_flush::govern::keyspace_settings::{set_placement, set_tree};
use testudo_options::{KeyspaceOptions, Tree, TreePreset};
use testudo_run::KeyBounds;
use testudo_store::{
    commits::batch_format::Operation,
    keyspace::KeyspaceCore,
    memory::shares::Share,
    read::{
        look_up::{self, Existence, Found, Value},
        slice::Slice,
    },
    values::long_values::LONG_VALUES_KEYSPACE,
};
use testudo_values::Placement;
use testudo_write::{
    commit::commit_one,
    long_values::{ReadValue, insert_from},
    read_modify_write::modify,
};

use crate::{
    Db, Entry, Iter, KeyRange, KeyspaceStats, ReadView,
    db::{pinned::Pinned, read_view::read_methods, value_reader::ValueReader},
};

/// Returns the keyspace of long values; creates it for the first one.
fn long_values_keyspace(db: &Db) -> Result<Arc<KeyspaceCore>> {
    let store = db.store();
    if let Some(core) = store.long_values.keyspace() {
        return Ok(Arc::clone(core));
    }
    let options = KeyspaceOptions::default().tree(Tree::leveled()).placement(Placement::separate());
    let made = db.keyspaces_as_described(&[LONG_VALUES_KEYSPACE], &options)?.pop();
    let core = Arc::clone(&made.expect("as many keyspaces as names").core);
    store.long_values.adopt(&core);
    Ok(core)
}

/// A keyspace: an ordered map from byte strings to byte strings, with its own tree. Clones are cheap and
/// refer to the same keyspace.
#[derive(Clone, Debug)]
pub struct Keyspace {
    pub(crate) db: Db,
    pub(crate) core: Arc<KeyspaceCore>,
}

impl Drop for Keyspace {
    fn drop(&mut self) {
        if self.db.store().is_forked() {
            mem::forget(Arc::clone(&self.core));
        }
    }
}

impl Keyspace {
    pub(crate) fn new(db: &Db, core: Arc<KeyspaceCore>) -> Self {
        Self { db: db.clone(), core }
    }

    /// Commits one operation with the store's default durability.
    fn commit(&self, operation: &Operation<'_>) -> Result<()> {
        let store = self.db.store();
        commit_one(store, &self.core, operation, store.default_durability)
    }

    /// Returns the name of the keyspace.
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// Returns the current settings; while the keyspace moves, those of the tree it moves to.
    pub fn options(&self) -> KeyspaceOptions {
        self.core.view.load().options.chosen()
    }

    /// Returns the tree; while the keyspace moves, the one that it moves to.
    pub fn tree(&self) -> Tree {
        self.core.view.load().options.tree()
    }

    /// Returns the placement of values.
    pub fn placement(&self) -> Placement {
        self.core.view.load().options.placement()
    }

    /// Switches the keyspace to a tree of this kind, and to the preset's value placement if it has one
    /// ([`Tree::parallax`](testudo_options::Tree::parallax) does). Durable on return; reads and writes
    /// continue during the change.
    ///
    /// Turtle and splinter trees form one family; leveled, lsbm and treeline trees form the other. Within a
    /// family no data moves: stored data takes the new shape gradually, as it is rewritten. Sizes of leaves,
    /// nodes, runs and levels stay as they were when the keyspace was created, because a change would rewrite
    /// most of the keyspace at once.
    ///
    /// A switch to the other family rewrites the whole keyspace, range by range in the background. The move
    /// resumes after a crash or restart; [`Keyspace::stats`] reports its progress. Until it ends, setting a
    /// tree of the old family reverses it at any time, and only the data that has moved moves back. A full
    /// device pauses the move until there is space.
    ///
    /// While values return to their keys ([`Placement::with_moving_thresholds`]), that rewrite has to finish
    /// before the keyspace can switch to another family. The call then helps to rewrite the rest, without
    /// those values.
    ///
    /// ```
    /// # fn main() -> testudo::Result<()> {
    /// # let directory = std::env::temp_dir().join(format!("testudo-doc-set-tree-{}", std::process::id()));
    /// # let db = testudo::Db::builder(&directory).temporary().open()?;
    /// # let users = db.keyspace("users", testudo::KeyspaceOptions::default())?;
    /// use testudo::Tree;
    ///
    /// users.set_tree(Tree::splinter())?;
    /// assert_eq!(users.tree(), Tree::splinter());
    /// users.set_tree(Tree::parallax())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: `Invalid` for settings outside their limits and for a dropped keyspace; `Unsupported` in a
    /// read-only store, and for a tree of a third family while the keyspace moves between two others;
    /// `OutOfSpace` on a full device; `Io` if the manifest cannot be written, after which writes are
    /// `Poisoned`; `Poisoned` after an earlier failure; `Closed`; `Corruption` if the stored tree contradicts
    /// itself.
    pub fn set_tree(&self, tree: impl Into<TreePreset>) -> Result<()> {
        let preset = tree.into();
        testudo_options::validate(&KeyspaceOptions::default().tree(preset))?;
        set_tree(self.db.store(), &self.core, preset)
    }

    /// Changes where new values are stored. Durable on return; reads and writes continue during the change.
    /// Stored values stay where they are until they are rewritten.
    ///
    /// ```
    /// # fn main() -> testudo::Result<()> {
    /// # let directory = std::env::temp_dir().join(format!("testudo-doc-placement-{}", std::process::id()));
    /// # let db = testudo::Db::builder(&directory).temporary().open()?;
    /// use testudo::{KeyspaceOptions, Placement};
    ///
    /// let images = db.keyspace("images", KeyspaceOptions::default().placement(Placement::hybrid()))?;
    /// images.set_placement(Placement::inline())?;
    /// assert_eq!(images.placement(), Placement::inline());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: `Invalid` for a dropped keyspace; otherwise as [`Keyspace::set_tree`].
    pub fn set_placement(&self, placement: Placement) -> Result<()> {
        set_placement(self.db.store(), &self.core, placement)
    }

    /// Returns the keyspace's own limit on write buffers as a share of the budget, if one was set.
    pub fn write_share(&self) -> Option<f64> {
        self.core.write_share.get().map(Share::as_f64)
    }

    /// Limits the write buffers of this keyspace to a share of the whole budget, or removes the limit
    /// (`None`, the default). The limit applies within the store's share for write buffers; beyond it the
    /// keyspace's memtable is flushed on its own. Not persisted when the store is closed.
    ///
    /// Errors: `Invalid` outside `0.0..=0.9`; `Closed` in a forked child.
    pub fn set_write_share(&self, share: Option<f64>) -> Result<()> {
        self.db.store().health.check_process()?;
        self.core.write_share.set(share.map(Share::of).transpose()?);
        Ok(())
    }

    fn operation<'a>(&self, kind: Kind, key: &'a [u8], value: &'a [u8]) -> Operation<'a> {
        Operation { keyspace: self.core.id, kind, key, value }
    }

    /// Sets `key` to `value`, with the store's default durability.
    ///
    /// ```
    /// # fn main() -> testudo::Result<()> {
    /// # let directory = std::env::temp_dir().join(format!("testudo-doc-insert-{}", std::process::id()));
    /// # let db = testudo::Db::builder(&directory).temporary().open()?;
    /// # let users = db.keyspace("users", testudo::KeyspaceOptions::default())?;
    /// users.insert("ada", "1815")?;
    /// users.insert("ada".to_owned(), 1815_u32.to_le_bytes())?;
    /// assert_eq!(users.get("ada")?.as_deref(), Some(&1815_u32.to_le_bytes()[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: `Invalid` if the key is longer than 64 KiB or the value longer than a quarter of the memory
    /// budget, if the keyspace was dropped, and inside the closure of [`Keyspace::update`]; any error of the
    /// keyspace's merge operator about the value; `OutOfSpace` on a full device; `Io` if the log cannot be
    /// written or synced; `Poisoned` after an earlier failure; `Unsupported` in a read-only store; `Closed`.
    /// If the sync fails in a store with [`Durability::Sync`](testudo_options::Durability::Sync), the write
    /// is visible but a crash may lose it. After any other error nothing was written.
    pub fn insert(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let (key, value) = (key.as_ref(), value.as_ref());
        self.core.check_value(key, value)?;
        let operation = self.operation(Kind::Value, key, value);
        self.commit(&operation)
    }

    /// Sets `key` to the `length` bytes that `reader` returns, at most 4 GiB - 1, with the store's default
    /// durability. The value is written in pieces: it takes little memory whatever its length, and may be
    /// longer than a quarter of the memory budget. [`Keyspace::get_reader`] and [`Entry::reader`] also read
    /// it in pieces. No merge operator checks it.
    ///
    /// No part of the value is visible before the call returns. The pieces of a failed call are removed at
    /// once or in the background. So are those of an overwritten or removed value, once no snapshot reads it.
    ///
    /// ```
    /// # fn main() -> testudo::Result<()> {
    /// # let directory = std::env::temp_dir().join(format!("testudo-doc-reader-{}", std::process::id()));
    /// # let db = testudo::Db::builder(&directory).temporary().open()?;
    /// # let files = db.keyspace("files", testudo::KeyspaceOptions::default())?;
    /// use std::io::{Read, repeat};
    ///
    /// files.insert_reader("a.bin", 1_000_000, repeat(7).take(1_000_000))?;
    /// let mut reader = files.get_reader("a.bin")?.expect("it is there");
    /// let mut first = [0; 4];
    /// reader.read_exact(&mut first).expect("read");
    /// assert_eq!((first, reader.value_len()), ([7; 4], 1_000_000));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: as [`Keyspace::insert`], except for its limit on the value's length; `Invalid` for a value
    /// beyond 4 GiB - 1, and if `reader` returns fewer or more bytes than `length`; `Io` if `reader` fails.
    /// After any of these last three nothing was set.
    ///
    /// [`Entry::reader`]: crate::Entry::reader
    pub fn insert_reader(&self, key: impl AsRef<[u8]>, length: u64, mut reader: impl Read) -> Result<()> {
        let value = ReadValue { length, reader: &mut reader };
        let pieces = || long_values_keyspace(&self.db);
        insert_from(self.db.store(), &self.core, key.as_ref(), value, pieces)
    }

    /// Deletes `key`, whether or not it has a value, and even if that value cannot be read. Acknowledged with
    /// the store's default durability.
    ///
    /// ```
    /// # fn main() -> testudo::Result<()> {
    /// # let directory = std::env::temp_dir().join(format!("testudo-doc-remove-{}", std::process::id()));
    /// # let db = testudo::Db::builder(&directory).temporary().open()?;
    /// # let users = db.keyspace("users", testudo::KeyspaceOptions::default())?;
    /// users.insert("ada", "1815")?;
    /// users.remove("ada")?;
    /// users.remove("charles")?;
    /// assert_eq!(users.get("ada")?, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: as [`Keyspace::insert`], except that no merge operator is involved. A nearly full device
    /// accepts removals for longer than other writes.
    pub fn remove(&self, key: impl AsRef<[u8]>) -> Result<()> {
        let operation = self.operation(Kind::Tombstone, key.as_ref(), &[]);
        self.commit(&operation)
    }

    /// Adds an operand of the keyspace's merge operator to `key`, without reading its value. Acknowledged
    /// with the store's default durability.
    ///
    /// Once the store knows that the key's operands have become long, it merges them at once, which reads the
    /// key. An operand that would make the value too long is then refused. Before that the store accepts such
    /// an operand; the resulting value is stored and read as usual, and the next operand is refused.
    ///
    /// ```
    /// # fn main() -> testudo::Result<()> {
    /// # let directory = std::env::temp_dir().join(format!("testudo-doc-merge-{}", std::process::id()));
    /// # use testudo::KeyspaceOptions;
    /// # let db = testudo::Db::builder(&directory).temporary().open()?;
    /// let visits = db.keyspace("visits", KeyspaceOptions::default().merge_operator("add-u64"))?;
    /// visits.merge("ada", 2_u64.to_le_bytes())?;
    /// visits.merge("ada", 3_u64.to_le_bytes())?;
    /// assert_eq!(visits.get("ada")?.as_deref(), Some(&5_u64.to_le_bytes()[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: as [`Keyspace::insert`]; `Unsupported` if the keyspace has no merge operator, or one that is
    /// not registered; any error of the operator about the operand. If operands are merged at once, also
    /// those of [`Keyspace::get`], and `Invalid` if the value would become too long.
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        let (key, operand) = (key.as_ref(), operand.as_ref());
        self.core.full_merge.check_operand(key, operand)?;
        let list = encode_operand(operand);
        let operation = self.operation(Kind::Operands, key, &list);
        self.commit(&operation)
    }

    /// Replaces the value of `key` by the result of `change` (`None`: no value), atomically among all
    /// writers, and returns the new value. Acknowledged with the store's default durability.
    ///
    /// The key is locked while `change` runs, so `change` should be short. If its result has to wait for
    /// space on a nearly full device, `change` is called again with the value of that time. `change` may read
    /// the store. Its writes to the store, to any key and through any handle, fail with `Invalid` and have no
    /// effect; use a [`Batch`](crate::Batch) to change several keys. Two stores whose updates write to each
    /// other can deadlock.
    ///
    /// ```
    /// # fn main() -> testudo::Result<()> {
    /// # let directory = std::env::temp_dir().join(format!("testudo-doc-update-{}", std::process::id()));
    /// # let db = testudo::Db::builder(&directory).temporary().open()?;
    /// # let users = db.keyspace("users", testudo::KeyspaceOptions::default())?;
    /// let count = |old: Option<&[u8]>| {
    ///     let old = old.and_then(|old| old.try_into().ok()).map_or(0, u64::from_le_bytes);
    ///     Some((old + 1).to_le_bytes().to_vec())
    /// };
    /// users.update("visits", count)?;
    /// let visits = users.update("visits", count)?;
    /// assert_eq!(visits.as_deref(), Some(&2_u64.to_le_bytes()[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: as [`Keyspace::insert`] and [`Keyspace::get`].
    pub fn update(
        &self,
        key: impl AsRef<[u8]>,
        mut change: impl FnMut(Option<&[u8]>) -> Option<Vec<u8>>,
    ) -> Result<Option<Slice>> {
        let key = key.as_ref();
        let new = modify(self.db.store(), &self.core, key, |old| Ok(change(old)))?;
        Ok(new.map(Slice::from))
    }

    /// Sets `key` to `new` (`None`: deletes it) if its value is `old` (`None`: no value). Acknowledged with
    /// the store's default durability.
    ///
    /// ```
    /// # fn main() -> testudo::Result<()> {
    /// # let directory = std::env::temp_dir().join(format!("testudo-doc-swap-{}", std::process::id()));
    /// # let db = testudo::Db::builder(&directory).temporary().open()?;
    /// # let users = db.keyspace("users", testudo::KeyspaceOptions::default())?;
    /// use testudo::ErrorKind;
    ///
    /// users.compare_and_swap("ada", None, Some(b"1815"))?;
    /// let late = users.compare_and_swap("ada", None, Some(b"1816"));
    /// assert_eq!(late.unwrap_err().kind(), ErrorKind::Conflict);
    /// users.compare_and_swap("ada", Some(b"1815"), None)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: as [`Keyspace::update`]; `Conflict` if the value differs from `old`. A `Conflict` wrote
    /// nothing and is not [retryable](Error::is_retryable): the same call would fail again.
    pub fn compare_and_swap(
        &self,
        key: impl AsRef<[u8]>,
        old: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<()> {
        modify(self.db.store(), &self.core, key.as_ref(), |present| {
            if present != old {
                return Err(Error::mismatch("the value differs from the expected one"));
            }
            Ok(new.map(<[u8]>::to_vec))
        })?;
        Ok(())
    }

    read_methods!();

    /// Estimates the bytes of entries in `range`, in the tree and in write buffers. Reads no records, and at
    /// most the index pages at the two ends of the range. Replaced and removed entries count until they are
    /// merged away; separated values do not count.
    ///
    /// ```
    /// # fn main() -> testudo::Result<()> {
    /// # let directory = std::env::temp_dir().join(format!("testudo-doc-estimate-{}", std::process::id()));
    /// # let db = testudo::Db::builder(&directory).temporary().open()?;
    /// # let users = db.keyspace("users", testudo::KeyspaceOptions::default())?;
    /// for number in 0..1000_u32 {
    ///     users.insert(number.to_be_bytes(), [0; 100])?;
    /// }
    /// let tenth = users.approximate_bytes(100_u32.to_be_bytes()..200_u32.to_be_bytes())?;
    /// assert!((8_000..16_000).contains(&tenth));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: `Corruption` with file and offset, `Io`, `Closed`.
    pub fn approximate_bytes(&self, range: impl KeyRange) -> Result<u64> {
        self.db.store().check_open()?;
        let bounds = range.into_bounds();
        let (low, high) = (bounds.low.as_deref(), bounds.high.as_deref());
        let view = self.core.view.load();
        let buffered: u64 = view.buffers().map(|buffer| buffer.table.bytes_between(low, high)).sum();
        Ok(self.db.store().read_of(&self.core.name, || view.tree.bytes_between(low, high))? + buffered)
    }

    /// Returns the statistics of the keyspace; zeros in a forked child.
    pub fn stats(&self) -> KeyspaceStats {
        if self.db.store().is_forked() {
            return KeyspaceStats::default();
        }
        KeyspaceStats::of(self.db.store(), &self.core)
    }

    /// Returns the structure of the keyspace's tree in human-readable form; nothing in a forked child.
    pub fn outline(&self) -> Vec<OutlineLine> {
        if self.db.store().is_forked() {
            return Vec::new();
        }
        self.core.view.load().tree.outline()
    }
}

impl ReadView for Keyspace {
    fn get(&self, key: &[u8]) -> Result<Option<Slice>> {
        let find = || look_up::find::<Value>(&**self.core.view.load(), key, Seqno(u64::MAX));
        match self.db.store().read_of(&self.core.name, find)? {
            Found::Whole(value) => Ok(value),
            Found::Long(_) => Pinned::now(&self.db.open, &self.core)?.get(key),
        }
    }

    fn get_reader(&self, key: &[u8]) -> Result<Option<ValueReader>> {
        ValueReader::of_key(&Pinned::now(&self.db.open, &self.core)?, key)
    }

    fn contains_key(&self, key: &[u8]) -> Result<bool> {
        let find = || look_up::find::<Existence>(&**self.core.view.load(), key, Seqno(u64::MAX));
        self.db.store().read_of(&self.core.name, find)
    }

    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Slice>>> {
        let find = || look_up::multi_get(&**self.core.view.load(), keys, Seqno(u64::MAX));
        let found = self.db.store().read_of(&self.core.name, find)?;
        let whole = |(found, key): (Found, &&[u8])| match found {
            Found::Whole(value) => Ok(value),
            Found::Long(_) => ReadView::get(self, key),
        };
        found.into_iter().zip(keys).map(whole).collect()
    }

    fn range(&self, range: KeyBounds) -> Result<Iter> {
        Ok(Iter::new(Pinned::now(&self.db.open, &self.core)?, range))
    }
}
