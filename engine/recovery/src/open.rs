//! Opens a store: creates it, or determines its state after a close or crash.
//!
//! Creation: lock, mark `CREATING`, data file, manifest, superblock, remove the mark. The superblock makes it
//! a store; a mark without a superblock is an interrupted creation, which is restarted.
//!
//! Recovery: lock, superblock, manifest, trees, then the log from its start in the manifest. Every commit
//! newer than the flushed seqno of its keyspace goes into memtables, which are flushed if they outgrow their
//! share. A read-only open does the same, with its changes in a temporary file (decision 0036).
//!
//! **Invariants**
//! - Nothing is written before the lock is held, and nothing at all by a read-only open.
//! - All files are accessed through the directory handle, never by its path again.
//! - Recovery can crash at any point and be repeated: it only adds manifest edits that are already true.
//! - Nothing is removed, and no edit made, before superblock, manifest, watermark and log are found to belong
//!   together.
//! - After a crash, log segments and manifest are rewritten to fresh files before anything that depends on
//!   them becomes durable: the data read may exist only in volatile caches.

use std::path::Path;

use testudo_base::{Error, ErrorKind, Result, planted, sync::Arc};
use testudo_env::{DirLock, Env, LockCheckedEnv, OpenMode, OpenOptions};
use testudo_options::{Settings, stored_tree::check_known};
use testudo_storage::{Manifest, SUPERBLOCK_FILE};
use testudo_store::{
    Store,
    background::executor::Pool,
    directory::{self, CREATING_FILE, LOCK_FILE, LockAs, RESERVE_FILE, UNFINISHED_FILE, io, list},
    memory::budget::Budget,
    space::space_guard::SpaceGuard,
    values::tail_values_format::drain_tail,
};

use crate::{
    assemble::{assemble, reserve},
    create::{check_creatable, create},
    durability_listener::log_evidence,
    load_keyspaces::load_keyspaces,
    recover::{make_durable, recover},
    replay::check_log,
};

/// A store, its lock, and the pool to stop when it is closed.
pub struct Opened {
    pub store: Arc<Store>,
    pub lock: Arc<dyn DirLock>,
    pub pool: Option<Arc<Pool>>,
}

/// Opens or creates the store that `settings` describe.
pub fn open(settings: &Settings) -> Result<Opened> {
    if settings.temporary && (settings.read_only || !settings.create) {
        return Err(Error::invalid("a temporary store is always created and never opened read-only"));
    }
    let memory = Budget::new(settings.memory_bytes)?;
    let directory = settings.directory.as_path();
    let env = enter(settings)?;
    let outcome = open_in(&env, settings, memory);
    if outcome.is_err() && settings.temporary {
        directory::remove_store(&*env, directory);
    }
    outcome
}

/// Opens a handle to the directory; creates it if it does not exist and a store may be created.
fn enter(settings: &Settings) -> Result<Arc<dyn Env>> {
    let (env, directory) = (&settings.env, settings.directory.as_path());
    if settings.temporary {
        return directory::make(env, directory);
    }
    if let Some(entered) = directory::anchor(env, directory)? {
        return Ok(entered);
    }
    check_creatable(settings, None)?;
    Ok(directory::anchor_or_make(env, directory)?.0)
}

/// As [`open`], in the directory whose handle is `entered`.
fn open_in(entered: &Arc<dyn Env>, settings: &Settings, memory: Budget) -> Result<Opened> {
    let directory = settings.directory.as_path();
    let names = list(&**entered, directory)?.unwrap_or_default();
    check_mark(settings, &names)?;
    if !settings.unfinished && !names.iter().any(|name| name == SUPERBLOCK_FILE) {
        check_creatable(settings, Some(&names))?;
    }
    let lock_as = if settings.read_only { LockAs::Reader } else { LockAs::Creator };
    let lock = directory::lock(&**entered, directory, lock_as)?;
    let plain_env: Arc<dyn Env> = if settings.read_only {
        Arc::clone(entered)
    } else {
        LockCheckedEnv::new(Arc::clone(entered), &lock, &directory.join(LOCK_FILE))
    };
    let settings = &Settings { env: Arc::clone(&plain_env), ..settings.clone() };
    let reserve = reserve(settings)?;
    let settings = &match &reserve {
        Some(reserve) => Settings { env: reserve.env(), ..settings.clone() },
        None => settings.clone(),
    };
    let env = &settings.env;
    // The directory may have changed while the lock was being taken.
    let names = list(&**env, directory)?.unwrap_or_default();
    check_mark(settings, &names)?;
    let has = |name: &str| names.iter().any(|present| present == name);
    // While the mark exists, an unreadable superblock was never complete.
    let is_cut_short = has(SUPERBLOCK_FILE)
        && has(CREATING_FILE)
        && !settings.read_only
        && testudo_storage::SuperblockFile::open(&**env, directory, false)
            .is_err_and(|error| error.kind() == ErrorKind::Corruption);
    if settings.unfinished {
        create_marked(settings, directory, &names)?;
    } else if is_cut_short {
        create(settings, directory, &names)?;
    } else if !has(SUPERBLOCK_FILE) {
        check_creatable(settings, Some(&names))?;
        create(settings, directory, &names)?;
    } else if has(CREATING_FILE) && !settings.read_only {
        let path = directory.join(CREATING_FILE);
        env.remove_file(&path).map_err(|e| io(&path, e))?;
    }
    let manifest = Manifest::open(Arc::clone(env), directory, !settings.read_only)?;
    if !planted!("newer-tree-overlooked") {
        manifest.with_state(|state| check_known(&state.keyspaces))?;
    }
    if !settings.read_only && !manifest.was_closed() {
        // Copies are optional if space is short; they must not use the reserve for writes.
        make_durable(&*plain_env, directory, &manifest)?;
        // The tail may hold acknowledged writes, so it may use the reserve.
        drain_tail(&**env, directory, &manifest)?;
    }
    if let Some(reserve) = &reserve {
        reserve.refill().map_err(|e| Error::io(RESERVE_FILE, e))?;
    }
    let was_closed = manifest.was_closed();
    let (store, pool) = assemble(settings, memory, manifest, SpaceGuard::new(reserve))?;
    let outcome = recover(settings, store, was_closed);
    if outcome.is_err()
        && let Some(pool) = &pool
    {
        pool.close();
    }
    Ok(Opened { store: outcome?, lock, pool })
}

/// Refuses a directory with an unfinished checkpoint, restore or salvage. Building a marked store accepts
/// only such a directory or an empty one.
fn check_mark(settings: &Settings, names: &[String]) -> Result<()> {
    if settings.unfinished {
        return directory::check_makes_way(&settings.directory, names);
    }
    if names.iter().any(|name| name == UNFINISHED_FILE) {
        let directory = settings.directory.display();
        let message = format!(
            "{directory} holds an unfinished store ({UNFINISHED_FILE}): create it again or remove \
             the directory"
        );
        return Err(Error::invalid(message));
    }
    Ok(())
}

/// Creates a new store over an unfinished one or in an empty directory; the mark exists throughout.
fn create_marked(settings: &Settings, directory: &Path, names: &[String]) -> Result<()> {
    let is_mark = |name: &String| name == UNFINISHED_FILE;
    if !names.iter().any(is_mark) {
        let path = directory.join(UNFINISHED_FILE);
        let options = OpenOptions { mode: OpenMode::CreateNew, direct: false };
        settings.env.open(&path, options).map_err(|e| io(&path, e))?;
    }
    let others: Vec<String> = names.iter().filter(|name| !is_mark(name)).cloned().collect();
    create(settings, directory, &others)
}

/// Checks an unfinished store that the caller has locked: its trees, the objects they refer to, its log.
pub fn check_unfinished(env: &Arc<dyn Env>, directory: &Path) -> Result<()> {
    let settings = Settings { env: Arc::clone(env), read_only: true, ..Settings::new(directory) };
    let manifest = Manifest::open(Arc::clone(env), directory, false)?;
    let (store, _) = assemble(&settings, Budget::new(1 << 20)?, manifest, SpaceGuard::new(None))?;
    load_keyspaces(&store)?;
    crate::structure::check_structure(&store, false)?;
    check_log(&store, &log_evidence(&store.manifest))
}
