//! The handle of an open store.
//!
//! **Invariants**
//! - The last handle (of the store, a keyspace, a snapshot or an iterator) closes the store: threads end, the
//!   log is written and synced, the lock is released.
//! - In a forked child handles are forgotten instead (decision 0057): no lock is taken there, no thread is
//!   waited for, no file written or removed, and nothing freed that a thread of the parent may have left
//!   halfway.

pub(crate) mod batch;
pub(crate) mod builder;
pub(crate) mod dead_run;
pub(crate) mod entry;
pub(crate) mod inspect;
pub(crate) mod iter;
pub(crate) mod key_range;
pub(crate) mod keyspace;
pub(crate) mod memory;
pub(crate) mod outlying_value;
pub(crate) mod pinned;
pub(crate) mod read_view;
pub(crate) mod scan_front;
pub(crate) mod snapshot;
pub(crate) mod stats;
pub(crate) mod value_reader;

use std::{collections::BTreeSet, mem, path::Path};

use testudo_base::{
    Error, ErrorKind, KeyspaceId, Result,
    num::u32_of,
    planted,
    sync::{Arc, Mutex},
};
use testudo_contract::LeastGain;
use testudo_env::{DirLock, Thread};
use testudo_flush::{
    at_close::{fit_at_close, give_back_at_close},
    govern::keyspace_settings::commit_catalogue,
    round::spill::retire_buffers,
    seal::{
        begin_value_log::{give_up_unused_value_logs, prepare_value_logs, without_value_logs},
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
    values::pieces::check_keyspace_name,
};
use testudo_write::sweep_pieces::try_sweep_pieces;

use crate::{
    Batch, DbBuilder, DbStats, Keyspace, Memory, Snapshot, background,
    status::{end_publishing, start_publishing},
};

/// A store that has more log segments than this when it is closed, beside those in which a log grows long,
/// begins its log anew: a later opening reads all of them.
const LOG_SEGMENTS_CLOSED: u32 = 4;
/// So does one that has more when it is opened, because it was never closed.
const LOG_SEGMENTS_OPENED: u32 = 8;

/// Keeps the store open; its drop closes it.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) store: Arc<Store>,
    threads: Mutex<Vec<Box<dyn Thread>>>,
    pool: Option<Arc<Pool>>,
    lock: Mutex<Option<Arc<dyn DirLock>>>,
    is_temporary: bool,
}

impl Open {
    /// Closes the store; does nothing the second time.
    ///
    /// Errors: in a forked child `Closed`, and nothing was done.
    fn close(&self) -> Result<()> {
        if !planted!("forked-child-closes") {
            self.store.health.check_process()?;
        }
        let Some(lock) = self.lock.lock().take() else { return Ok(()) };
        // Where there is no room for it the log keeps what it has; other failures are told below.
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
        // A flush or a change of the catalogue that was under way ends first; later ones are refused.
        let _flush = self.store.flush_lock.lock();
        // Writers that were under way when closing began have reserved their place by now or never will.
        drop(self.store.commits.lock());
        self.store.commits.in_flight.wait_for(self.store.last_seqno());
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

    /// What is left of the store in a forked child stays as it is until that ends. Only its copy of the lock
    /// is closed, so that the lock is free once the owner is gone.
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
        // A drop has nobody to tell; `Db::close` reports.
        let _ = self.close();
    }
}

/// An open store. Clones are cheap and name the same store.
#[derive(Clone, Debug)]
pub struct Db {
    pub(crate) open: Arc<Open>,
}

impl Db {
    /// Settings for opening the store in `directory`.
    pub fn builder(directory: impl AsRef<Path>) -> DbBuilder {
        DbBuilder::new(directory.as_ref())
    }

    /// Opens or creates the store in `directory` with default settings. If it is created, so are the
    /// directories above that do not exist, with mode 0700.
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

    /// The keyspace called `name`; it is created with `options`, plain ones or a closure that makes them, if
    /// there is none. Durable on return.
    ///
    /// One that exists keeps what it was created with: another tree in `options` is no error and changes
    /// nothing ([`Keyspace::set_tree`] does that), and [`Keyspace::options`] tells what it has. But if
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
    /// Errors: `Invalid` for a name that is empty, longer than 1,024 bytes or the store's own, and for
    /// another merge operator than the keyspace has; `Closed`. If it would have to be created, also:
    /// `Invalid` for settings outside their limits and for a merge operator that is not registered;
    /// `Unsupported` in a store that is open for reading only; `OutOfSpace` on a full device; `Io`;
    /// `Poisoned` after an earlier failure.
    pub fn keyspace(&self, name: &str, options: impl IntoKeyspaceOptions) -> Result<Keyspace> {
        let created = self.keyspaces([name], options)?.pop();
        Ok(created.expect("as many keyspaces as names"))
    }

    /// The keyspace called `name`, if there is one.
    ///
    /// Errors: `Closed`.
    pub fn open_keyspace(&self, name: &str) -> Result<Option<Keyspace>> {
        self.store().check_open()?;
        let core = self.store().catalogue.read().of_users(name).cloned();
        Ok(core.map(|core| Keyspace::new(self, core)))
    }

    /// The keyspaces with these names, in this order; all that are missing are created with `options`, in one
    /// edit with one sync, where [`Db::keyspace`] needs one for each. Durable on return.
    ///
    /// Errors: as [`Db::keyspace`]. None of them is there then; after a failed write or sync of the manifest
    /// writes are `Poisoned`, and the next opening finds either all of them or none.
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
        // Somebody else may have made one meanwhile.
        self.check_operators(&names, &options)?;
        Ok(keyspaces)
    }

    /// Whether those of the keyspaces that exist have the merge operator that `options` name, if they name
    /// one.
    fn check_operators(&self, names: &[&str], options: &KeyspaceOptions) -> Result<()> {
        let Some(wanted) = options.merge_operator_name() else { return Ok(()) };
        let catalogue = self.store().catalogue.read();
        for core in names.iter().filter_map(|name| catalogue.by_name.get(*name)) {
            let stored = *core.view.load().options;
            if stored.merge_operator_name() != Some(wanted) {
                let has = stored.merge_operator_name().map_or("none".to_owned(), |name| format!("{name:?}"));
                let message = format!(
                    "the keyspace {:?} has another merge operator than {wanted:?}: {has}, for good",
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
            let message = format!("there is no merge operator {name:?}; there are: {}", known.join(", "));
            return Err(Error::invalid(message));
        }
        Ok(())
    }

    /// As [`Db::keyspaces`], with options that another store had: their merge operator may not be known here.
    pub(crate) fn keyspaces_as_described(
        &self,
        names: &[&str],
        options: &KeyspaceOptions,
    ) -> Result<Vec<Keyspace>> {
        let _flush = self.store().flush_lock.lock();
        self.create_missing(names, options)?;
        Ok(self.open_all(names).expect("who drops one waits for the round to end"))
    }

    /// The keyspaces with these names, if there are all of them.
    fn open_all(&self, names: &[&str]) -> Option<Vec<Keyspace>> {
        let catalogue = self.store().catalogue.read();
        let open = |name: &&str| Some(Keyspace::new(self, Arc::clone(catalogue.by_name.get(*name)?)));
        names.iter().map(open).collect()
    }

    /// Creates those that are missing. REQUIRES: `flush_lock` is held.
    fn create_missing(&self, names: &[&str], options: &KeyspaceOptions) -> Result<()> {
        let store = self.store();
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
        // The catalogue is durable at once; what was written before it must be as well.
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
        commit_catalogue(store, &edit)?;
        let core = |(id, name): (KeyspaceId, &str)| {
            store.new_keyspace(id, name, options, empty_tree(&store.data, &options, id))
        };
        let cores: Vec<_> = ids.zip(missing).map(core).collect();
        let mut catalogue = store.catalogue.write();
        for core in cores {
            catalogue.by_name.insert(Arc::clone(&core.name), Arc::clone(&core));
            catalogue.by_id.insert(core.id, core);
        }
        drop(catalogue);
        fit_caches(store);
        Ok(())
    }

    /// Drops the keyspace called `name` with everything in it; `false` if there is none. Durable on return.
    /// Handles and snapshots that still name it keep reading what was there; writes to it fail.
    ///
    /// Errors, only if there is one: `Closed`; `Unsupported` in a store that is open for reading only;
    /// `Poisoned` after an earlier failure; `OutOfSpace` or `Io` if log or manifest cannot be written. After
    /// the last two writes to the keyspace fail, and the next opening finds it whole or gone.
    pub fn drop_keyspace(&self, name: &str) -> Result<bool> {
        let store = self.store();
        store.health.check_process()?;
        let _flush = store.flush_lock.lock();
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
        // Who still has a handle has the values in memory.
        core.give_up_value_logs();
        let mut catalogue = store.catalogue.write();
        catalogue.by_name.remove(name);
        catalogue.by_id.remove(&core.id);
        drop(catalogue);
        store.buffered.remove(core.id);
        retire_buffers(store, &core);
        // Nothing refers to what it had in pieces.
        store.pieces.expect_sweep();
        // If it was its buffers for which there was no space, they are gone.
        store.health.set_stall(None);
        let commit = store.commits.lock();
        recount_buffers(store);
        drop(commit);
        fit_caches(store);
        Ok(true)
    }

    /// Names of all keyspaces, sorted; none in a forked child.
    pub fn keyspace_names(&self) -> Vec<String> {
        if self.store().is_forked() {
            return Vec::new();
        }
        self.store().catalogue.read().names_of_users()
    }

    /// An empty batch, to be committed atomically across keyspaces.
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

    /// The state of the whole store at this moment, for as long as it is held.
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

    /// Makes everything durable that was acknowledged before the call ([`Durability::Sync`]). With
    /// [`Durability::Buffered`] it means what every write means: that survives the end of the process.
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
    /// Errors: `Unsupported` in a store that is open for reading only; `OutOfSpace` or `Io` if the log cannot
    /// be written or synced, after which writes are `Poisoned`; `Poisoned` after an earlier failure;
    /// `Closed`.
    pub fn persist(&self, durability: Durability) -> Result<()> {
        let store = self.store();
        store.check_writable()?;
        match durability {
            Durability::Buffered => store.wal()?.write_all(),
            Durability::Sync => store.wal()?.sync_all(),
        }
    }

    /// Moves everything from the write buffers into the trees, durably. For backups, tests and benchmarks;
    /// normal use never needs it.
    ///
    /// Errors: `OutOfSpace` on a full device; `Corruption` with file and offset; `Io`; after these three
    /// writes are `Poisoned`, unless only the data file found no room: then another try may succeed.
    /// `Poisoned` after an earlier failure; `Unsupported` in a store that is open for reading only; `Closed`.
    /// What was flushed before the error stays so.
    pub fn flush(&self) -> Result<()> {
        let store = self.store();
        store.check_writable()?;
        store.wal()?;
        // What is sealed already must leave first: a round takes one buffer of each keyspace.
        flush_all_sealed(store)?;
        prepare_value_logs(store)?;
        seal_all(store);
        flush_all_sealed(store)?;
        while reclaim_round(store, LeastGain::Worthwhile)? {}
        Ok(())
    }

    /// Does the background work that the trees owe, then gives free space back. For benchmarks and the
    /// `compact` command; it happens by itself while keyspaces are idle. Of a keyspace that is written to
    /// meanwhile it does about as much as was owed at the call; what others write does not delay its end.
    ///
    /// Errors: as [`Db::flush`].
    pub fn settle(&self) -> Result<()> {
        self.flush()?;
        if try_sweep_pieces(self.store()) {
            self.flush()?;
        }
        settle_trees(self.store(), || {})?;
        self.store().check_writable()?;
        give_up_unused_value_logs(self.store(), true)?;
        give_back_all_space(self.store())
    }

    /// One piece of background work, in stepped execution; `false` if there is none.
    ///
    /// Errors: as [`Db::flush`].
    pub fn step(&self) -> Result<bool> {
        self.store().check_writable()?;
        background::step(self.store())
    }

    /// The memory budget, to be looked at and changed.
    pub fn memory(&self) -> Memory {
        Memory::of(self)
    }

    /// Statistics; zeros in a forked child.
    pub fn stats(&self) -> DbStats {
        if self.store().is_forked() {
            return DbStats::default();
        }
        DbStats::of(self.store())
    }

    /// Closes the store for all handles: background work ends, acknowledged writes are synced, the lock is
    /// released.
    ///
    /// From then on everything that reads or writes fails with [`ErrorKind::Closed`], the steps of iterators
    /// and the reads of snapshots included. A read under way gives its right answer or `Closed`. What reads
    /// returned before stays valid.
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
    /// earlier failure. The store is closed all the same; the next opening finds what was acknowledged.
    /// Closing a closed store is no error. In a process that was forked from the one that opened the store:
    /// `Closed`; there nothing happens to it.
    pub fn close(self) -> Result<()> {
        self.open.close()
    }
}

/// Says that a handle of another store was used.
pub(crate) fn foreign_handle() -> Error {
    Error::new(ErrorKind::Invalid, "a keyspace handle belongs to another store")
}
