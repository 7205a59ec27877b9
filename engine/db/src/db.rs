//! The handle of an open store.
//!
//! **Invariants**
//! - The last handle (of the store, a keyspace, a snapshot or an iterator) closes the store: threads end, the
//!   log is written and synced, the lock is released.
//! - In a forked child handles are leaked instead of closed (decision 0057): no lock is taken there, no
//!   thread is waited for, no file is written or removed, and no memory is freed that a thread of the parent
//!   may have left half modified.

pub(crate) mod background_jobs;
pub(crate) mod batch;
pub(crate) mod builder;
pub(crate) mod dead_run;
pub(crate) mod entry;
pub(crate) mod inspect;
pub(crate) mod iter;
pub(crate) mod key_range;
pub(crate) mod keyspace;
pub(crate) mod memory;
pub(crate) mod pinned;
pub(crate) mod read_view;
pub(crate) mod scan_front;
pub(crate) mod separated_value;
pub(crate) mod snapshot;
pub mod stats;
pub(crate) mod value_reader;

use std::{collections::BTreeSet, mem, path::Path};

use testudo_base::{
    Error, ErrorKind, KeyspaceId, Result,
    num::u32_of,
    planted,
    sync::{Arc, Mutex, is_held},
};
use testudo_contract::LeastGain;
use testudo_env::{DirLock, Thread};
use testudo_flush::{
    at_close::{fit_at_close, give_back_at_close},
    govern::keyspace_settings::{commit_catalogue, commit_creation},
    log_release::remove_released,
    round::spill::retire_buffers,
    seal::{
        begin_value_log::{UnusedIn, give_up_unused_value_logs, prepare_value_logs, without_value_logs},
        seal_buffers::{recount_buffers, seal_all},
    },
    settle::{flush_all_sealed, settle_trees},
    shorten_log::renew_log,
    space::{give_back::give_back_all_space, reclaim::reclaim_round},
};
use testudo_options::{
    Durability, IntoKeyspaceOptions, KeyspaceOptions, Settings, StoredOptions, stored_tree::empty_tree,
    validate,
};
use testudo_recovery::{
    open::{self, Opened},
    warm::write::leave_hot_set,
};
use testudo_storage::Change;
use testudo_store::{
    Store, background::executor::Pool, directory, memory::metadata::fit_caches, space::space_guard::Intent,
    values::long_values::check_keyspace_name,
};
use testudo_write::long_values;

use crate::{
    Background, Batch, DbBuilder, DbStats, Keyspace, Memory, Snapshot, background,
    status::{end_publishing, start_publishing},
};

/// Maximum log segments at close, beyond the number that a log of its length needs. A store with more starts
/// a new log, because the next opening reads every segment.
const LOG_SEGMENTS_CLOSED: u32 = 4;
/// The same limit at opening, for a store that was not closed cleanly.
const LOG_SEGMENTS_OPENED: u32 = 8;

/// Keeps the store open and closes it when dropped.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) store: Arc<Store>,
    threads: Mutex<Vec<Box<dyn Thread>>>,
    pool: Option<Arc<Pool>>,
    lock: Mutex<Option<Arc<dyn DirLock>>>,
    is_temporary: bool,
}

impl Open {
    /// Closes the store; a second call does nothing.
    ///
    /// Errors: `Closed` in a forked child, with nothing done.
    fn close(&self) -> Result<()> {
        if !planted!("forked-child-closes") {
            self.store.health.check_process()?;
        }
        let Some(lock) = self.lock.lock().take() else { return Ok(()) };
        // Without space for it the log stays as it is; other failures are reported below.
        let _ = renew_log(&self.store, LOG_SEGMENTS_CLOSED).and_then(|()| give_back_at_close(&self.store));
        let _ = fit_at_close(&self.store);
        self.store.health.begin_closing();
        self.store.background.wake_all();
        self.store.warm.wake();
        for thread in self.threads.lock().drain(..) {
            let _ = thread.join();
        }
        if let Some(pool) = &self.pool {
            pool.close();
        }
        // Wait for a flush or catalogue change in progress; later ones are refused.
        let _flush = self.store.flush_lock.lock();
        let _catalogue = self.store.catalogue_lock.lock();
        self.store.background.drop_prepared();
        if !self.store.has_failed() {
            // An error poisons the store; it is reported below.
            let _ = remove_released(&self.store);
        }
        // By now, writers in flight when closing began have reserved their place in the log or never will.
        drop(self.store.commits.lock());
        self.store.commits.wait_for(self.store.last_seqno());
        if planted!("closed-before-log-sync") && !self.store.has_failed() {
            let _ = self.store.manifest.close(self.store.last_seqno());
        }
        let outcome = match &self.store.log.wal {
            Some(_) if self.store.has_failed() => self.store.check_writable(),
            Some(wal) => wal.close().and_then(|()| self.store.manifest.close(self.store.last_seqno())),
            None => Ok(()),
        };
        if outcome.is_ok() {
            leave_hot_set(&self.store);
        }
        end_publishing(&self.store);
        if self.is_temporary {
            directory::remove_store(&*self.store.env, &self.store.directory);
        }
        drop(lock);
        outcome
    }

    /// Leaks the state of the store in a forked child. Only the child's copy of the lock is closed, so that
    /// the lock is free once the owner has exited.
    fn forget(&mut self) {
        if let Some(lock) = self.lock.get_mut().take() {
            lock.abandon();
            mem::forget(lock);
        }
        mem::forget((Arc::clone(&self.store), self.pool.clone(), mem::take(self.threads.get_mut())));
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.store.is_forked() && !planted!("forked-child-closes") {
            return self.forget();
        }
        // A drop cannot report errors; `Db::close` does.
        let _ = self.close();
    }
}

/// An open store. Clones are cheap and refer to the same store.
#[derive(Clone, Debug)]
pub struct Db {
    pub(crate) open: Arc<Open>,
}

impl Db {
    /// Returns a builder for opening the store in `directory`.
    pub fn builder(directory: impl AsRef<Path>) -> DbBuilder {
        DbBuilder::new(directory.as_ref())
    }

    /// Opens the store in `directory` with default settings, or creates it. Creating a store also creates
    /// missing parent directories, with mode 0700.
    ///
    /// ```
    /// # fn main() -> testudo::Result<()> {
    /// # let directory = std::env::temp_dir().join(format!("testudo-doc-open-{}", std::process::id()));
    /// use testudo::{Db, KeyspaceOptions};
    ///
    /// let db = Db::open(&directory)?;
    /// let users = db.keyspace("users", KeyspaceOptions::default())?;
    /// users.insert("ada", "1815")?;
    /// db.close()?;
    /// assert_eq!(Db::open(&directory)?.keyspace_names(), ["users"]);
    /// # let _ = std::fs::remove_dir_all(&directory);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: as [`DbBuilder::open`].
    pub fn open(directory: impl AsRef<Path>) -> Result<Self> {
        Self::builder(directory).open()
    }

    pub(crate) fn open_with(settings: &Settings) -> Result<Self> {
        let Opened { store, lock, pool } = open::open(settings)?;
        let open = Open {
            store: Arc::clone(&store),
            threads: Mutex::new(Vec::new()),
            pool,
            lock: Mutex::new(Some(lock)),
            is_temporary: settings.temporary,
        };
        if !store.background.is_stepped {
            if store.log.wal.is_some() {
                start_publishing(&store);
            }
            background::start(&store, &mut open.threads.lock())?;
        }
        match renew_log(&store, LOG_SEGMENTS_OPENED) {
            Err(error) if !error.is_shortage() => return Err(error),
            _ => {}
        }
        Ok(Self { open: Arc::new(open) })
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.open.store
    }

    /// Returns the keyspace called `name`, and creates it with `options` (a value or a closure that returns
    /// one) if it does not exist. Durable on return.
    ///
    /// An existing keyspace keeps its settings: a different tree in `options` is no error and changes
    /// nothing. Use [`Keyspace::set_tree`] to change it and [`Keyspace::options`] to read the settings. If
    /// `options` name a merge operator, it must be the keyspace's own.
    ///
    /// ```
    /// # fn main() -> testudo::Result<()> {
    /// # let directory = std::env::temp_dir().join(format!("testudo-keyspace-{}", std::process::id()));
    /// use testudo::{Db, ErrorKind, KeyspaceOptions, Tree};
    ///
    /// let db = Db::builder(&directory).temporary().open()?;
    /// let counting = KeyspaceOptions::default().merge_operator("add-u64");
    /// let visits = db.keyspace("visits", counting)?;
    /// assert_eq!(db.keyspace("visits", || counting.tree(Tree::splinter()))?.options(), visits.options());
    /// let appending = KeyspaceOptions::default().merge_operator("append");
    /// assert_eq!(db.keyspace("visits", appending).unwrap_err().kind(), ErrorKind::Invalid);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: `Invalid` for a name that is empty, longer than 1,024 bytes or reserved by the store, and for
    /// a merge operator that differs from the keyspace's; `Closed`. If the keyspace has to be created, also:
    /// `Invalid` for settings outside their limits and for a merge operator that is not registered;
    /// `Unsupported` in a read-only store; `OutOfSpace` on a full device; `Io`; `Poisoned` after an earlier
    /// failure.
    pub fn keyspace(&self, name: &str, options: impl IntoKeyspaceOptions) -> Result<Keyspace> {
        let created = self.keyspaces([name], options)?.pop();
        Ok(created.expect("as many keyspaces as names"))
    }

    /// Returns the keyspace called `name`, or `None` if it does not exist.
    ///
    /// Errors: `Closed`.
    pub fn open_keyspace(&self, name: &str) -> Result<Option<Keyspace>> {
        self.store().check_open()?;
        let core = self.store().catalogue.read().of_users(name).cloned();
        Ok(core.map(|core| Keyspace::new(self, core)))
    }

    /// Returns the keyspaces with these names, in this order. Missing ones are created with `options` in one
    /// manifest edit with one sync; [`Db::keyspace`] needs one for each. Durable on return.
    ///
    /// Errors: as [`Db::keyspace`], with no keyspace created. After a failed write or sync of the manifest,
    /// writes are `Poisoned`, and the next opening finds either all of the new keyspaces or none.
    pub fn keyspaces<'n>(
        &self,
        names: impl IntoIterator<Item = &'n str>,
        options: impl IntoKeyspaceOptions,
    ) -> Result<Vec<Keyspace>> {
        let names: Vec<&str> = names.into_iter().collect();
        names.iter().try_for_each(|name| check_keyspace_name(name))?;
        self.store().check_open()?;
        let options = options.into_options();
        self.check_operators(&names, &options)?;
        if let Some(keyspaces) = self.open_all(&names) {
            return Ok(keyspaces);
        }
        self.check_options(&options)?;
        let keyspaces = self.keyspaces_as_described(&names, &options)?;
        // Another thread may have created one in the meantime.
        self.check_operators(&names, &options)?;
        Ok(keyspaces)
    }

    /// Checks that existing keyspaces have the merge operator that `options` name, if any.
    fn check_operators(&self, names: &[&str], options: &KeyspaceOptions) -> Result<()> {
        let Some(wanted) = options.merge_operator_name() else { return Ok(()) };
        let catalogue = self.store().catalogue.read();
        for core in names.iter().filter_map(|name| catalogue.by_name.get(*name)) {
            let stored = *core.view.load().options;
            if stored.merge_operator_name() != Some(wanted) {
                let has = stored.merge_operator_name().map_or("none".to_owned(), |name| format!("{name:?}"));
                let message = format!(
                    "the merge operator of keyspace {:?} is fixed: it is {has}, not {wanted:?}",
                    core.name
                );
                return Err(Error::invalid(message));
            }
        }
        Ok(())
    }

    fn check_options(&self, options: &KeyspaceOptions) -> Result<()> {
        validate(options)?;
        let operators = &self.store().merging.operators;
        if let Some(name) = options.merge_operator_name()
            && !operators.names().any(|known| known == name)
        {
            let known: Vec<_> = operators.names().collect();
            let message =
                format!("merge operator {name:?} is not registered; available: {}", known.join(", "));
            return Err(Error::invalid(message));
        }
        Ok(())
    }

    /// As [`Db::keyspaces`], with options of another store, whose merge operator may not be registered here.
    pub(crate) fn keyspaces_as_described(
        &self,
        names: &[&str],
        options: &KeyspaceOptions,
    ) -> Result<Vec<Keyspace>> {
        let _catalogue = self.store().catalogue_lock.lock();
        self.create_missing(names, options)?;
        Ok(self.open_all(names).expect("drops wait for the catalogue lock"))
    }

    /// Returns the keyspaces with these names, or `None` if any is missing.
    fn open_all(&self, names: &[&str]) -> Option<Vec<Keyspace>> {
        let catalogue = self.store().catalogue.read();
        let open = |name: &&str| Some(Keyspace::new(self, Arc::clone(catalogue.by_name.get(*name)?)));
        names.iter().map(open).collect()
    }

    /// Creates the missing keyspaces. REQUIRES: `catalogue_lock` is held.
    fn create_missing(&self, names: &[&str], options: &KeyspaceOptions) -> Result<()> {
        let store = self.store();
        debug_assert!(is_held(&store.catalogue_lock), "the catalogue does not change meanwhile");
        let options = StoredOptions::from(*options);
        let missing: BTreeSet<&str> = {
            let catalogue = store.catalogue.read();
            names.iter().copied().filter(|name| !catalogue.by_name.contains_key(*name)).collect()
        };
        if missing.is_empty() {
            return Ok(());
        }
        store.check_writable()?;
        store.space.check(&*store.env, Intent::Write)?;
        // The catalogue change is durable at once, so earlier writes must be durable before it.
        if !planted!("keyspace-created-before-sync") {
            store.wal()?.sync_all()?;
        }
        let first = store.manifest.with_state(|state| state.next_keyspace);
        let ids = (first.0..).map(KeyspaceId);
        let create = |(id, name): (KeyspaceId, &&str)| {
            Change::CreateKeyspace(id, (*name).to_owned(), options.encode())
        };
        let mut edit: Vec<Change> = ids.clone().zip(&missing).map(create).collect();
        edit.push(Change::NextKeyspace(KeyspaceId(first.0 + u32_of(missing.len()))));
        commit_creation(store, &edit)?;
        let core = |(id, name): (KeyspaceId, &str)| {
            store.new_keyspace(id, name, options, empty_tree(&store.data, &options, id))
        };
        let cores: Vec<_> = ids.zip(missing).map(core).collect();
        let mut catalogue = store.catalogue.write();
        for core in cores {
            let newest = catalogue.by_id.last_key_value();
            debug_assert!(newest.is_none_or(|(id, _)| *id < core.id), "ids ascend and are never reused");
            let same_name = catalogue.by_name.insert(Arc::clone(&core.name), Arc::clone(&core));
            debug_assert!(same_name.is_none(), "only missing keyspaces are created");
            catalogue.by_id.insert(core.id, core);
        }
        drop(catalogue);
        fit_caches(store);
        Ok(())
    }

    /// Drops the keyspace called `name` and all its contents; returns `false` if it does not exist. Durable
    /// on return. Existing handles and snapshots of it can still read the old contents; writes to it fail.
    ///
    /// Errors, only if the keyspace exists: `Closed`; `Unsupported` in a read-only store; `Poisoned` after an
    /// earlier failure; `OutOfSpace` or `Io` if log or manifest cannot be written. After either of the last
    /// two, writes to the keyspace fail, and the next opening finds it either whole or gone.
    pub fn drop_keyspace(&self, name: &str) -> Result<bool> {
        let store = self.store();
        store.health.check_process()?;
        let _flush = store.flush_lock.lock();
        let _catalogue = store.catalogue_lock.lock();
        let Some(core) = store.catalogue.read().of_users(name).cloned() else { return Ok(false) };
        store.check_writable()?;
        {
            let _commit = store.commits.lock();
            core.mark_dropped();
        }
        if !planted!("keyspace-dropped-before-sync") {
            store.wal()?.sync_all()?;
        }
        let mut edit = core.view.load().tree.release();
        edit.extend(without_value_logs(store, &core));
        edit.push(Change::DropKeyspace(core.id));
        commit_catalogue(store, &edit)?;
        // Remaining handles read the values from memory.
        core.give_up_value_logs();
        let mut catalogue = store.catalogue.write();
        let by_name = catalogue.by_name.remove(name);
        let by_id = catalogue.by_id.remove(&core.id);
        debug_assert!(by_name.is_some() && by_id.is_some(), "a keyspace is dropped once");
        drop(catalogue);
        retire_buffers(store, &core);
        // Nothing refers to its long values any more.
        store.long_values.expect_sweep();
        // If a flush of its buffers stalled for lack of space, the cause is gone.
        store.health.set_stall(None);
        let commit = store.commits.lock();
        store.buffered.remove(core.id);
        recount_buffers(store);
        drop(commit);
        fit_caches(store);
        Ok(true)
    }

    /// Returns the names of all keyspaces, sorted; none in a forked child.
    pub fn keyspace_names(&self) -> Vec<String> {
        if self.store().is_forked() {
            return Vec::new();
        }
        self.store().catalogue.read().names_of_users()
    }

    /// Returns an empty batch, which [commits](Batch::commit) atomically across keyspaces.
    ///
    /// ```
    /// # fn main() -> testudo::Result<()> {
    /// # let directory = std::env::temp_dir().join(format!("testudo-doc-batch-{}", std::process::id()));
    /// # let db = testudo::Db::builder(&directory).temporary().open()?;
    /// # let users = db.keyspace("users", testudo::KeyspaceOptions::default())?;
    /// let mut batch = db.batch();
    /// for (name, born) in [("ada", "1815"), ("grace", "1906")] {
    ///     batch.insert(&users, name, born);
    /// }
    /// batch.remove(&users, "charles");
    /// assert_eq!(batch.len(), 3);
    /// batch.commit()?;
    /// let names: Vec<_> = users.iter()?.collect::<testudo::Result<_>>()?;
    /// assert_eq!(names.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn batch(&self) -> Batch {
        Batch::new(self)
    }

    /// Returns a snapshot of the whole store at this moment, readable for as long as it is held.
    ///
    /// ```
    /// # fn main() -> testudo::Result<()> {
    /// # let directory = std::env::temp_dir().join(format!("testudo-doc-snapshot-{}", std::process::id()));
    /// # let db = testudo::Db::builder(&directory).temporary().open()?;
    /// # let users = db.keyspace("users", testudo::KeyspaceOptions::default())?;
    /// users.insert("ada", "1815")?;
    /// let before = db.snapshot()?;
    /// users.remove("ada")?;
    /// assert!(before.contains_key(&users, "ada")?);
    /// assert!(!users.contains_key("ada")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: `Closed`.
    pub fn snapshot(&self) -> Result<Snapshot> {
        Snapshot::take(self)
    }

    /// Brings every write that was acknowledged before the call to the given durability: with
    /// [`Durability::Sync`] it is on disk on return. With [`Durability::Buffered`] it survives the end of the
    /// process, as every acknowledged write does.
    ///
    /// ```
    /// # fn main() -> testudo::Result<()> {
    /// # let directory = std::env::temp_dir().join(format!("testudo-doc-persist-{}", std::process::id()));
    /// # let db = testudo::Db::builder(&directory).temporary().open()?;
    /// # let users = db.keyspace("users", testudo::KeyspaceOptions::default())?;
    /// use testudo::Durability;
    ///
    /// for number in 0..1000_u32 {
    ///     users.insert(number.to_be_bytes(), "")?;
    /// }
    /// db.persist(Durability::Sync)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: `Unsupported` in a read-only store; `OutOfSpace` or `Io` if the log cannot be written or
    /// synced, after which writes are `Poisoned`; `Poisoned` after an earlier failure; `Closed`.
    pub fn persist(&self, durability: Durability) -> Result<()> {
        let store = self.store();
        store.check_writable()?;
        match durability {
            Durability::Buffered => store.wal()?.write_all(),
            Durability::Sync => store.wal()?.sync_all(),
        }
    }

    /// Flushes all write buffers into the trees, durably. For backups, tests and benchmarks; normal use never
    /// needs it.
    ///
    /// Errors: `OutOfSpace` on a full device; `Corruption` with file and offset; `Io`. After these three,
    /// writes are `Poisoned`, unless only the data file ran out of space: then a retry may succeed. Also
    /// `Poisoned` after an earlier failure; `Unsupported` in a read-only store; `Closed`. Buffers flushed
    /// before the error stay flushed.
    pub fn flush(&self) -> Result<()> {
        let store = self.store();
        store.check_writable()?;
        store.wal()?;
        // Flush the buffers that are already sealed first: a round takes one buffer per keyspace.
        flush_all_sealed(store)?;
        prepare_value_logs(store)?;
        seal_all(store);
        flush_all_sealed(store)?;
        while reclaim_round(store, LeastGain::Worthwhile)? {}
        remove_released(store).map(drop)
    }

    /// Does the pending background work of the trees, then returns free space to the file system. For
    /// benchmarks and the `compact` command; it happens automatically while keyspaces are idle. For a
    /// keyspace with concurrent writers it does about as much work as was pending at the call. Writes to
    /// other keyspaces do not delay its end.
    ///
    /// Errors: as [`Db::flush`].
    pub fn compact(&self) -> Result<()> {
        self.flush()?;
        if long_values::try_sweep(self.store()) {
            self.flush()?;
        }
        settle_trees(self.store(), || {})?;
        self.store().check_writable()?;
        give_up_unused_value_logs(self.store(), UnusedIn::AllKeyspaces)?;
        give_back_all_space(self.store())
    }

    /// Returns a handle to limit, pause and watch background jobs.
    pub fn background(&self) -> Background {
        Background::of(self)
    }

    /// Returns a handle to read and change the memory budget.
    pub fn memory(&self) -> Memory {
        Memory::of(self)
    }

    /// Returns the statistics of the store; zeros in a forked child.
    pub fn stats(&self) -> DbStats {
        if self.store().is_forked() {
            return DbStats::default();
        }
        DbStats::of(self.store())
    }

    /// Closes the store for all handles: stops background work, syncs acknowledged writes, releases the lock.
    ///
    /// From then on every read or write fails with [`ErrorKind::Closed`], including steps of iterators and
    /// reads of snapshots. A read in flight returns either its correct answer or `Closed`. Data returned by
    /// earlier reads stays valid.
    ///
    /// ```
    /// # fn main() -> testudo::Result<()> {
    /// # let directory = std::env::temp_dir().join(format!("testudo-doc-close-{}", std::process::id()));
    /// # let db = testudo::Db::builder(&directory).temporary().open()?;
    /// # let users = db.keyspace("users", testudo::KeyspaceOptions::default())?;
    /// use testudo::ErrorKind;
    ///
    /// let handle = users.clone();
    /// db.close()?;
    /// assert_eq!(handle.get("ada").unwrap_err().kind(), ErrorKind::Closed);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: `OutOfSpace` or `Io` if log or manifest cannot be written or synced; `Poisoned` after an
    /// earlier failure. The store is closed even then; the next opening finds every acknowledged write.
    /// Closing a closed store is no error. In a process forked from the one that opened the store: `Closed`,
    /// with no effect on the store.
    pub fn close(self) -> Result<()> {
        self.open.close()
    }
}

/// Error for a handle of another store.
pub(crate) fn foreign_handle() -> Error {
    Error::new(ErrorKind::Invalid, "a keyspace handle belongs to another store")
}
