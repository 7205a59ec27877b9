//! The engine as the runner sees it.
//!
//! **Invariants**
//! - Handles of dropped keyspaces are held only by snapshots taken before the drop.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use testudo::{
    Batch, Db, DbBuilder, Durability, Entry, Error, ErrorKind, Finding, Iter, Keyspace, KeyspaceOptions,
    Placement, Result, Slice, Snapshot, Tree, VerifyLevel,
};
use testudo_base::{key::prefix_end, num::u64_of};
use testudo_db::maintenance::{Stepping as _, small_runs_apart};
use testudo_env::Env;

use crate::{
    op::Slot,
    operator::{REFUSED, chain_operator, operator_name},
    store::{Opener, Pair, RawScan, RawWrite, Store, UpdateFn, View, keyspace_name, keyspace_slot},
};

/// Directory of the store on a simulated machine.
pub const DIRECTORY: &str = "/db";

/// Longest value that is written whole; longer ones may be written in pieces.
const LONGEST_PIECE: usize = 64 << 10;

/// Opens the engine with fixed settings.
#[derive(Clone, Debug)]
pub struct EngineOpener {
    /// Settings of every keyspace that is created.
    pub options: KeyspaceOptions,
    /// The memory budget.
    pub memory_bytes: u64,
}

impl EngineOpener {
    /// Returns the builder for a database in `directory`.
    pub fn builder(&self, env: Arc<dyn Env>, directory: &Path) -> DbBuilder {
        let builder = Db::builder(directory).memory_bytes(self.memory_bytes);
        // Small runs have their index in the footer, in separate pages, or a mix of both.
        let builder = small_runs_apart(builder, env.random_u64().is_multiple_of(2));
        // Also enable features that are off by default.
        builder.env(env).merge_operator(chain_operator()).warm_merges(true).retain_merged(100)
    }

    /// Opens the database itself.
    pub fn open_db(&self, env: Arc<dyn Env>, directory: &Path) -> Result<Db> {
        self.builder(env, directory).open()
    }

    /// Opens this environment's store read-only, with the same settings as [`Opener::open`].
    pub fn open_read_only(&self, env: Arc<dyn Env>) -> Result<Box<dyn Store>> {
        self.adopt(self.builder(env, Path::new(DIRECTORY)).read_only().open()?)
    }

    /// Opens a handle for each keyspace.
    fn adopt(&self, db: Db) -> Result<Box<dyn Store>> {
        let mut keyspaces = BTreeMap::new();
        for name in db.keyspace_names() {
            let foreign = || Error::invalid("a keyspace that no test created");
            let slot = keyspace_slot(&name).ok_or_else(foreign)?;
            keyspaces.insert(slot, db.open_keyspace(&name)?.ok_or_else(foreign)?);
        }
        Ok(Box::new(EngineStore { db, options: self.options, memory_bytes: self.memory_bytes, keyspaces }))
    }
}

impl Opener for EngineOpener {
    fn is_exclusive(&self) -> bool {
        true
    }

    fn open(&self, env: Arc<dyn Env>) -> Result<Box<dyn Store>> {
        self.adopt(self.open_db(env, Path::new(DIRECTORY))?)
    }

    fn work_without_operators(&self, env: Arc<dyn Env>) -> Result<()> {
        let db = Db::builder(DIRECTORY).memory_bytes(self.memory_bytes).env(env).open()?;
        db.flush()?;
        db.compact()?;
        db.close()
    }
}

/// An open database with a handle for each keyspace.
#[derive(Debug)]
struct EngineStore {
    db: Db,
    options: KeyspaceOptions,
    memory_bytes: u64,
    keyspaces: BTreeMap<Slot, Keyspace>,
}

impl EngineStore {
    /// Checks that no call writes a value or operand that the operator refuses.
    fn check_refusals(&self) {
        let of_chain = |k: &&Keyspace| k.options().merge_operator_name() == Some(operator_name(0));
        let Some(keyspace) = self.keyspaces.values().find(of_chain) else { return };
        assert!(keyspace.insert("", REFUSED).is_err(), "a refused value was written");
        assert!(keyspace.merge("", REFUSED).is_err(), "a refused operand was written");
        let mut batch = self.db.batch();
        batch.insert(keyspace, "", REFUSED);
        assert!(batch.commit().is_err(), "a refused value was written by a batch");
    }

    fn keyspace(&self, slot: Slot) -> Result<&Keyspace> {
        find(&self.keyspaces, slot)
    }
}

fn find(keyspaces: &BTreeMap<Slot, Keyspace>, slot: Slot) -> Result<&Keyspace> {
    keyspaces.get(&slot).ok_or_else(|| Error::invalid(format!("no handle for keyspace {slot}")))
}

fn owned(value: Option<Slice>) -> Option<Vec<u8>> {
    value.map(Slice::into_vec)
}

fn pair(entry: Result<Entry>) -> Result<Pair> {
    let entry = entry?;
    let key = entry.key().to_vec();
    let (same_key, value) = entry.into_pair()?;
    assert!(*same_key == *key, "the entry has a different key");
    Ok((key, value.into_vec()))
}

/// Adapts the iterator to what scans expect.
struct Pairs(Iter);

impl Iterator for Pairs {
    type Item = Result<Pair>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(pair)
    }
}

impl DoubleEndedIterator for Pairs {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back().map(pair)
    }
}

fn collect(scan: &RawScan, iter: Result<Iter>) -> Result<Vec<Pair>> {
    scan.collect(Pairs(iter?), |pairs, key| pairs.0.seek(key))
}

fn bounds(scan: &RawScan) -> (std::ops::Bound<Vec<u8>>, std::ops::Bound<Vec<u8>>) {
    (scan.lower.clone(), scan.upper.clone())
}

impl Store for EngineStore {
    fn keyspaces(&self) -> Result<Vec<Slot>> {
        let names = self.db.keyspace_names();
        Ok(names.iter().filter_map(|name| keyspace_slot(name)).collect())
    }

    fn create(&mut self, keyspace: Slot) -> Result<()> {
        let options = self.options.merge_operator(operator_name(keyspace));
        let handle = self.db.keyspace(&keyspace_name(keyspace), || options)?;
        self.keyspaces.insert(keyspace, handle);
        Ok(())
    }

    fn drop_keyspace(&mut self, keyspace: Slot) -> Result<bool> {
        let existed = self.db.drop_keyspace(&keyspace_name(keyspace))?;
        self.keyspaces.remove(&keyspace);
        Ok(existed)
    }

    fn set_tree(&self, slot: Slot, choice: u8) -> Result<()> {
        let presets = Tree::presets();
        let (name, tree) = presets[usize::from(choice) % presets.len()];
        let keyspace = self.keyspace(slot)?;
        let in_place_levels = 1 + u32::from(slot % 2);
        let sizes_of_pairs = slot % 4 >= 2;
        let hybrid = Placement::hybrid().with_in_place_levels(in_place_levels)?;
        let hybrid = hybrid.with_sizes_of_pairs(sizes_of_pairs).with_logged_medium(slot % 3 == 1);
        let moving = Placement::separate().with_moving_thresholds(true);
        let placements = [Placement::inline(), Placement::separate(), hybrid, moving];
        // One of several choices leaves the placement unchanged.
        let other = (usize::from(choice) / presets.len()).checked_sub(1);
        if let Some(placement) = other.and_then(|other| placements.get(other)) {
            keyspace.set_placement(*placement)?;
        }
        // Keep the run size small, so that a move to another family takes many pieces.
        let tree = tree.with_run_bytes(keyspace.tree().run_bytes());
        keyspace.set_tree(tree)?;
        assert_eq!(keyspace.tree().to_string(), name);
        Ok(())
    }

    fn has_replaced_pages(&self) -> bool {
        self.keyspaces.values().any(|keyspace| keyspace.stats().tree.replaced_pages > 0)
    }

    fn is_moving(&self) -> bool {
        self.keyspaces.values().any(|keyspace| keyspace.stats().moving.from.is_some())
    }

    fn insert(&self, keyspace: Slot, key: &[u8], value: &[u8]) -> Result<()> {
        let handle = self.keyspace(keyspace)?;
        // Write some long values in pieces; readers see no difference.
        match value.len() > LONGEST_PIECE && keyspace % 2 == 1 {
            true => handle.insert_reader(key, u64_of(value.len()), value),
            false => handle.insert(key, value),
        }
    }

    fn remove(&self, keyspace: Slot, key: &[u8]) -> Result<()> {
        self.keyspace(keyspace)?.remove(key)
    }

    fn merge(&self, keyspace: Slot, key: &[u8], operand: &[u8]) -> Result<()> {
        self.keyspace(keyspace)?.merge(key, operand)
    }

    fn commit(&self, writes: &[RawWrite], synced: bool) -> Result<()> {
        let mut batch: Batch = self.db.batch();
        for write in writes {
            let keyspace = self.keyspace(write.keyspace)?;
            match &write.value {
                Some(value) => batch.insert(keyspace, &write.key, value),
                None => batch.remove(keyspace, &write.key),
            }
        }
        assert_eq!(batch.len(), writes.len());
        assert_eq!(batch.is_empty(), writes.is_empty());
        batch.durability(if synced { Durability::Sync } else { Durability::Buffered }).commit()
    }

    fn get(&self, keyspace: Slot, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let keyspace = self.keyspace(keyspace)?;
        let value = owned(keyspace.get(key)?);
        assert_eq!(keyspace.contains_key(key)?, value.is_some());
        Ok(value)
    }

    fn multi_get(&self, keyspace: Slot, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>> {
        Ok(self.keyspace(keyspace)?.multi_get(keys)?.into_iter().map(owned).collect())
    }

    fn scan(&self, keyspace: Slot, scan: &RawScan) -> Result<Vec<Pair>> {
        let keyspace = self.keyspace(keyspace)?;
        match &scan.prefix {
            Some(prefix) => collect(scan, keyspace.prefix(prefix)),
            None => collect(scan, keyspace.range(bounds(scan))),
        }
    }

    fn update(&self, keyspace: Slot, key: &[u8], change: UpdateFn<'_>) -> Result<Option<Vec<u8>>> {
        let keyspace = self.keyspace(keyspace)?;
        let guarded = |old: Option<&[u8]>| {
            assert!(
                keyspace.insert("", "written inside an update").is_err(),
                "a write inside an update succeeded"
            );
            change(old)
        };
        keyspace.update(key, guarded).map(owned)
    }

    fn compare_and_swap(
        &self,
        keyspace: Slot,
        key: &[u8],
        old: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<()> {
        self.keyspace(keyspace)?.compare_and_swap(key, old, new)
    }

    fn snapshot(&self) -> Result<Box<dyn View>> {
        let keyspaces = self.keyspaces.clone();
        Ok(Box::new(EngineView { snapshot: self.db.snapshot()?, keyspaces }))
    }

    fn persist(&self) -> Result<()> {
        self.db.persist(Durability::Sync)
    }

    fn share_memory(&self, choice: u64) -> Result<()> {
        const SHARES: [f64; 5] = [0.45, 0.0, 0.9, 0.02, 0.6];
        const OWN_SHARES: [Option<f64>; 3] = [None, Some(0.01), Some(0.2)];
        let of = |count: usize| testudo_base::num::usize_of(choice) % count;
        self.db.memory().set_total(self.memory_bytes << (choice % 3))?;
        self.db.memory().set_write_share(SHARES[of(SHARES.len())])?;
        for (slot, keyspace) in &self.keyspaces {
            keyspace.set_write_share(
                OWN_SHARES[(of(OWN_SHARES.len()) + usize::from(*slot)) % OWN_SHARES.len()],
            )?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.db.flush()
    }

    fn compact_range(&self, keyspace: Slot, scan: &RawScan) -> Result<()> {
        let keyspace = self.keyspace(keyspace)?;
        match &scan.prefix {
            None => keyspace.compact_range(bounds(scan)),
            Some(prefix) => match prefix_end(prefix) {
                None => keyspace.compact_range(prefix..),
                Some(end) => keyspace.compact_range(prefix..&end),
            },
        }
    }

    fn step(&self) -> Result<bool> {
        self.db.step()
    }

    fn check_invariants(&self) -> Result<()> {
        self.db.check_invariants()?;
        let stats = self.db.stats();
        // Write buffers that a snapshot still reads stay in memory beyond the budget until it is dropped.
        let buffers = match stats.state.snapshots {
            0 => stats.memory.memtable_bytes,
            _ => self.keyspaces.values().map(|keyspace| keyspace.stats().memtables.bytes).sum(),
        };
        let used = buffers + stats.page_cache.used_bytes;
        // A write is admitted while any room is left, so one value of the largest size may exceed the budget.
        if used > stats.memory.budget_bytes + stats.memory.budget_bytes / 4 {
            let message =
                format!("{used} bytes of memory are used, the budget is {}", stats.memory.budget_bytes);
            return Err(Error::invalid(message));
        }
        Ok(())
    }

    fn verify(&self) -> Result<()> {
        self.check_refusals();
        let report = self.db.verify(VerifyLevel::Full)?;
        match report.findings.first() {
            None => Ok(()),
            // A read error of the device is not damage.
            Some(finding) if finding.what.contains("cannot be read: ") => {
                Err(Error::new(ErrorKind::Io, finding.to_string()))
            }
            Some(Finding { file, what, .. }) if file.is_empty() => {
                Err(Error::new(ErrorKind::Corruption, what))
            }
            Some(finding) => Err(Error::corruption(&finding.file, finding.offset, finding.to_string())),
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        let Self { db, keyspaces, .. } = *self;
        let held = keyspaces.into_values().next();
        let iter = held.as_ref().map(Keyspace::iter).transpose()?;
        db.close()?;
        let is_closed = |answer: Option<ErrorKind>| {
            assert_eq!(answer, Some(ErrorKind::Closed), "a read after close succeeded")
        };
        if let Some((keyspace, mut iter)) = held.zip(iter) {
            is_closed(keyspace.get("").err().map(|error| error.kind()));
            is_closed(iter.next().and_then(Result::err).map(|error| error.kind()));
        }
        Ok(())
    }
}

/// A snapshot and the handles that existed when it was taken.
#[derive(Debug)]
struct EngineView {
    snapshot: Snapshot,
    keyspaces: BTreeMap<Slot, Keyspace>,
}

impl View for EngineView {
    fn get(&self, keyspace: Slot, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.snapshot.get(find(&self.keyspaces, keyspace)?, key).map(owned)
    }

    fn scan(&self, keyspace: Slot, scan: &RawScan) -> Result<Vec<Pair>> {
        let keyspace = find(&self.keyspaces, keyspace)?;
        match &scan.prefix {
            Some(prefix) => collect(scan, self.snapshot.prefix(keyspace, prefix)),
            None => collect(scan, self.snapshot.range(keyspace, bounds(scan))),
        }
    }
}
