//! Opening a store: creating it, or finding out what a crash has left.
//!
//! Creation: lock, mark `CREATING`, data file, manifest, superblock, remove the mark. The superblock makes it a store; a
//! mark without a superblock is a creation that a crash cut short, and is started over.
//! Recovery: lock, superblock, manifest, trees, then the log from where the manifest says: every commit newer than what
//! its keyspace has flushed goes into memtables, which are drained on the way if they outgrow their share.
//!
//! **Invariants**
//! - Nothing is written before the lock is held, and nothing at all for reading only.
//! - Recovery can crash anywhere and be repeated: it only adds manifest edits that are true already.
//! - After a crash log segments and manifest are written once more, to fresh files, before anything that depends on them is
//!   made durable: what was read may have stood in caches alone.

use std::{collections::BTreeMap, path::Path};

use testudo_base::{
    Error, ErrorKind, KeyspaceId, Kind, ObjectId, Result, RunId, Seqno, StoreId,
    chunks::ChunkPool,
    codec::Damage,
    num::u64_of,
    planted,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use testudo_betree::{BeTree, BeTreeOptions};
use testudo_contract::{Executor, InlineExecutor, RunIds, Tree as TreeState};
use testudo_env::{DirLock, EntryType, Env, Execution, OpenMode, OpenOptions, Reserve};
use testudo_storage::{Change, DATA_FILE, DataFile, Manifest, SUPERBLOCK_FILE};
use testudo_wal::{Record, ReplayEnd, Wal, WalOptions, WalStart};

use crate::{
    batch_format,
    builder::Settings,
    executor::Pool,
    memory::Budget,
    options::KeyspaceOptions,
    room::Room,
    shares::MemoryShares,
    store::{Store, StoreParts},
    view::KeyspaceCore,
};

/// Locked for as long as the store is open.
pub(crate) const LOCK_FILE: &str = "LOCK";
/// There while a store is being created.
pub(crate) const CREATING_FILE: &str = "CREATING";
/// There while a checkpoint or a restore fills the directory; such a directory is no store.
pub(crate) const UNFINISHED_FILE: &str = "UNFINISHED";
/// Keeps room for what must still be written when the device is full.
const RESERVE_FILE: &str = "reserve";
/// Run ids that a crash may have used without the manifest knowing.
const RUN_ID_GAP: u64 = 1 << 24;

/// A store, its lock, and the pool that its close must end.
pub(crate) struct Opened {
    pub(crate) store: Arc<Store>,
    pub(crate) lock: Box<dyn DirLock>,
    pub(crate) pool: Option<Arc<Pool>>,
}

pub(crate) fn io(what: &Path, error: std::io::Error) -> Error {
    Error::io(what.display().to_string(), error)
}

/// Opens or creates the store that `settings` describe.
pub(crate) fn open(settings: &Settings) -> Result<Opened> {
    let memory = Budget::new(settings.memory_bytes)?;
    let env = &settings.env;
    let directory = settings.directory.as_path();
    let names = list(&**env, directory)?;
    check_finished(directory, names.as_deref())?;
    let is_store = names.as_ref().is_some_and(|names| names.iter().any(|name| name == SUPERBLOCK_FILE));
    if !is_store {
        check_creatable(settings, names.as_deref())?;
        if names.is_none() {
            env.create_dir(directory).map_err(|e| io(directory, e))?;
        }
    }
    let lock = take_lock(settings, directory)?;
    let plain_env = Arc::clone(env);
    let reserve = reserve(settings, &memory.shares())?;
    let settings = &match &reserve {
        Some(reserve) => Settings { env: reserve.env(), ..settings.clone() },
        None => settings.clone(),
    };
    let env = &settings.env;
    // The answer may have changed while the lock was being taken.
    let names = list(&**env, directory)?.unwrap_or_default();
    check_finished(directory, Some(&names))?;
    let has = |name: &str| names.iter().any(|present| present == name);
    // Until the mark is gone a superblock that cannot be read was never complete.
    let is_cut_short = has(SUPERBLOCK_FILE)
        && has(CREATING_FILE)
        && !settings.read_only
        && testudo_storage::SuperblockFile::open(&**env, directory, false)
            .is_err_and(|error| error.kind() == ErrorKind::Corruption);
    if is_cut_short {
        create(settings, directory, &names)?;
    } else if !has(SUPERBLOCK_FILE) {
        check_creatable(settings, Some(&names))?;
        create(settings, directory, &names)?;
    } else if has(CREATING_FILE) && !settings.read_only {
        let path = directory.join(CREATING_FILE);
        env.remove_file(&path).map_err(|e| io(&path, e))?;
    }
    let manifest = Manifest::open(Arc::clone(env), directory, !settings.read_only)?;
    if !settings.read_only && !manifest.was_closed() {
        // Copies may be given up when there is no room; they must not use what is kept for writes.
        make_durable(&*plain_env, directory, &manifest)?;
    }
    if let Some(reserve) = &reserve {
        reserve.refill().map_err(|e| Error::io(RESERVE_FILE, e))?;
    }
    let (store, pool) = assemble(settings, memory, manifest, Room::new(reserve))?;
    let outcome = recover(settings, store);
    if outcome.is_err()
        && let Some(pool) = &pool
    {
        pool.close();
    }
    Ok(Opened { store: outcome?, lock, pool })
}

/// The room kept back in the directory; none for readers.
fn reserve(settings: &Settings, memory: &MemoryShares) -> Result<Option<Arc<Reserve>>> {
    if settings.read_only {
        return Ok(None);
    }
    let path = settings.directory.join(RESERVE_FILE);
    let reserve = Reserve::open(Arc::clone(&settings.env), path, memory.reserve_bytes());
    reserve.map(Some).map_err(|e| Error::io(RESERVE_FILE, e))
}

/// Writes once more what a crash may have left in caches alone, before anything is built on it.
fn make_durable(env: &dyn Env, directory: &Path, manifest: &Manifest) -> Result<()> {
    let log_segment = manifest.with_state(|state| state.log_segment);
    if !planted!("unproven-log-believed") {
        testudo_wal::rewrite_unproven(env, directory, log_segment)?;
    }
    manifest.rewrite()
}

pub(crate) fn list(env: &dyn Env, directory: &Path) -> Result<Option<Vec<String>>> {
    match env.list_dir(directory) {
        Ok(entries) => {
            let odd = |name: &str| [LOCK_FILE, SUPERBLOCK_FILE, DATA_FILE, RESERVE_FILE].contains(&name);
            if let Some(entry) = entries.iter().find(|e| odd(&e.name) && e.entry_type != EntryType::File) {
                let path = directory.join(&entry.name);
                return Err(Error::invalid(format!("{} is not a regular file", path.display())));
            }
            Ok(Some(entries.into_iter().map(|entry| entry.name).collect()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
            Err(Error::invalid(format!("{} is not a directory", directory.display())))
        }
        Err(error) => Err(io(directory, error)),
    }
}

/// Whether a file of this name can belong to a store.
pub(crate) fn is_store_file(name: &str) -> bool {
    [LOCK_FILE, CREATING_FILE, UNFINISHED_FILE, DATA_FILE, SUPERBLOCK_FILE, RESERVE_FILE].contains(&name)
        || name.starts_with("manifest-")
        || name.starts_with("wal-")
}

/// Refuses a directory that a checkpoint or a restore has not finished.
fn check_finished(directory: &Path, names: Option<&[String]>) -> Result<()> {
    if names.unwrap_or_default().iter().any(|name| name == UNFINISHED_FILE) {
        let message = format!(
            "{} holds a store that was not finished ({UNFINISHED_FILE}): make it again, or remove the directory",
            directory.display()
        );
        return Err(Error::invalid(message));
    }
    Ok(())
}

/// A store may be created in a directory that does not exist, is empty, or holds an unfinished creation.
fn check_creatable(settings: &Settings, names: Option<&[String]>) -> Result<()> {
    let directory = settings.directory.display();
    if settings.read_only || !settings.create {
        let what = if names.is_none() { "does not exist" } else { "is not a Testudo store" };
        return Err(Error::invalid(format!("{directory} {what}")));
    }
    let names = names.unwrap_or_default();
    let is_unfinished = names.iter().any(|name| name == CREATING_FILE);
    let ours = |name: &String| name != SUPERBLOCK_FILE && is_store_file(name);
    if names.iter().any(|name| name.starts_with("manifest-")) && !is_unfinished {
        return Err(Error::corruption(
            SUPERBLOCK_FILE,
            0,
            format!("the superblock of {directory} is missing"),
        ));
    }
    let only_lock = names.iter().all(|name| name == LOCK_FILE);
    if only_lock || (is_unfinished && names.iter().all(ours)) {
        return Ok(());
    }
    Err(Error::invalid(format!("{directory} is not a Testudo store and not empty")))
}

fn take_lock(settings: &Settings, directory: &Path) -> Result<Box<dyn DirLock>> {
    lock_directory(&*settings.env, directory, !settings.read_only, !settings.read_only)
}

/// Locks a directory; `Locked` if somebody else holds it in a way that excludes this one.
pub(crate) fn lock_directory(
    env: &dyn Env,
    directory: &Path,
    create: bool,
    exclusive: bool,
) -> Result<Box<dyn DirLock>> {
    let path = directory.join(LOCK_FILE);
    let is_exclusive = exclusive && !planted!("second-open-not-locked");
    env.lock(&path, create, is_exclusive).map_err(|error| {
        if error.kind() == std::io::ErrorKind::WouldBlock {
            let message = format!("{} is open in another process or handle", directory.display());
            return Error::new(ErrorKind::Locked, message);
        }
        io(&path, error)
    })
}

fn create(settings: &Settings, directory: &Path, names: &[String]) -> Result<()> {
    let env = &settings.env;
    let create = |name: &str, direct: bool| {
        let path = directory.join(name);
        env.open(&path, OpenOptions { mode: OpenMode::CreateNew, direct }).map_err(|e| io(&path, e))
    };
    if !names.iter().any(|name| name == CREATING_FILE) {
        create(CREATING_FILE, false)?;
    }
    env.sync_dir(directory).map_err(|e| io(directory, e))?;
    if let Some(parent) = directory.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        env.sync_dir(parent).map_err(|e| io(parent, e))?;
    }
    for name in names.iter().filter(|name| ![LOCK_FILE, CREATING_FILE].contains(&name.as_str())) {
        let path = directory.join(name);
        env.remove_file(&path).map_err(|e| io(&path, e))?;
    }
    let data = create(DATA_FILE, true)?;
    data.sync().map_err(|e| Error::io(DATA_FILE, e))?;
    let store = StoreId(u128::from(env.random_u64()) << 64 | u128::from(env.random_u64()));
    let first =
        [Change::NextRun(RunId(1)), Change::NextKeyspace(KeyspaceId(1)), Change::LogStart(1, Seqno(0))];
    drop(Manifest::create(Arc::clone(env), directory, store, &first)?);
    let path = directory.join(CREATING_FILE);
    env.remove_file(&path).map_err(|e| io(&path, e))?;
    env.sync_dir(directory).map_err(|e| io(directory, e))
}

/// Checks a store that is not finished, and locked by the caller: its trees, what they refer to, its log.
pub(crate) fn check_unfinished(env: &Arc<dyn Env>, directory: &Path) -> Result<()> {
    let builder = crate::Db::builder(directory).env(Arc::clone(env)).memory_bytes(1 << 20).read_only();
    let manifest = Manifest::open(Arc::clone(env), directory, false)?;
    let (store, _) = assemble(builder.settings(), Budget::new(1 << 20)?, manifest, Room::new(None))?;
    load_keyspaces(&store)?;
    crate::verify::check_structure(&store, false)?;
    let (segment, seqno) = store.manifest.with_state(|state| (state.log_segment, state.log_seqno));
    let end = testudo_wal::replay(&**env, directory, store.id, segment, |record| {
        batch_format::decode::<Damage>(record.payload, |_, _| Ok(()))
            .map_err(|Damage(why)| Error::corruption(testudo_wal::segment_file_name(segment), 0, why))
    })?;
    if end.last_seqno.max(seqno) < store.manifest.floor_seqno() {
        return Err(hole(segment, "the log ends too early"));
    }
    Ok(())
}

type Hands = (Arc<dyn Executor>, Option<Arc<Pool>>, bool);

fn hands(settings: &Settings) -> Result<Hands> {
    match settings.env.execution() {
        Execution::Threads { cores } if !settings.read_only => {
            let pool = Pool::start(&*settings.env, cores.clamp(2, 8) - 1)?;
            Ok((Arc::clone(&pool) as Arc<dyn Executor>, Some(pool), false))
        }
        Execution::Threads { .. } => Ok((Arc::new(InlineExecutor), None, false)),
        Execution::Stepped => Ok((Arc::new(InlineExecutor), None, true)),
    }
}

fn assemble(
    settings: &Settings,
    memory: Budget,
    manifest: Manifest,
    room: Room,
) -> Result<(Store, Option<Arc<Pool>>)> {
    let directory = settings.directory.as_path();
    let shares = memory.shares();
    let mode = if settings.read_only { OpenMode::Read } else { OpenMode::Write };
    // A drain that finds no room is tried again; what is kept back is for log and manifest.
    let data_env = room.bulk_env(&settings.env);
    let file = data_env.open(&directory.join(DATA_FILE), OpenOptions { mode, direct: true });
    let file = file.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::corruption(DATA_FILE, 0, "the file is missing"),
        _ => Error::io(DATA_FILE, error),
    })?;
    let live: Vec<_> = manifest.with_state(|state| state.live_spans().collect());
    let data =
        DataFile::new(file, manifest.store(), shares.page_cache(), live.into_iter(), settings.read_only)?;
    let (executor, pool, is_stepped) = hands(settings)?;
    let next_run = manifest.with_state(|state| state.next_run);
    let store = Store::new(StoreParts {
        env: Arc::clone(&settings.env),
        directory: directory.to_owned(),
        memory,
        default_durability: settings.durability,
        merge_operators: settings.merge_operators.clone(),
        data,
        run_ids: Arc::new(RunIds::starting_at(RunId(next_run.0.saturating_add(RUN_ID_GAP)))),
        arena_pool: ChunkPool::new(shares.chunks()),
        executor,
        is_stepped,
        manifest,
        room,
    });
    Ok((store, pool))
}

fn recover(settings: &Settings, mut store: Store) -> Result<Arc<Store>> {
    load_keyspaces(&store)?;
    let (log_segment, log_seqno) = store.manifest.with_state(|state| (state.log_segment, state.log_seqno));
    if !settings.read_only {
        testudo_wal::remove_segments(&*store.env, &store.directory, log_segment)?;
    }
    let end = replay(&store, settings.read_only, log_segment, log_seqno)?;
    store.recovered_seqno.store(end.last_seqno.max(log_seqno).0, Relaxed);
    if store.last_seqno() < store.manifest.floor_seqno() && !planted!("lost-end-of-log-overlooked") {
        return Err(hole(end.last_segment, "the log ends before commits that were durable"));
    }
    if !settings.read_only {
        reserve_run_ids(&store)?;
        store.manifest.raise_floor(store.last_seqno(), false)?;
        let shares = store.memory.shares();
        let options = WalOptions {
            segment_bytes: shares.wal_segment_bytes(),
            buffer_bytes: shares.wal_buffer_bytes,
            ..WalOptions::new(store.id)
        };
        let mut start = WalStart::after(&end);
        if end.last_seqno < log_seqno {
            start.next_seqno = Seqno(log_seqno.0 + 1);
            start.recovered_seqno = log_seqno;
        }
        store.wal = Some(Wal::create(Arc::clone(&store.env), &store.directory, options, start)?);
    }
    Ok(Arc::new(store))
}

/// Steps over the run ids that a crash may have used without the manifest knowing, once, before the first run is written.
fn reserve_run_ids(store: &Store) -> Result<()> {
    let next = store.run_ids.next();
    if store.manifest.with_state(|state| state.next_run < next) {
        store.commit_edit(&[Change::NextRun(next)])?;
    }
    Ok(())
}

fn load_keyspaces(store: &Store) -> Result<()> {
    let records: Vec<_> = store.manifest.with_state(|state| {
        let records = state.keyspaces.iter();
        records.map(|(&id, record)| (id, record.clone(), state.objects_of(id))).collect()
    });
    let mut catalogue = store.catalogue.write();
    for (id, record, objects) in records {
        let options = KeyspaceOptions::decode(&record.options)
            .map_err(|Damage(why)| Error::corruption("manifest", 0, format!("keyspace {id}: {why}")))?;
        let tree = stored_tree(&store.data, &options, id, objects)?;
        let core = KeyspaceCore::new(store, id, &record.name, options, tree);
        if catalogue.by_name.insert(record.name, Arc::clone(&core)).is_some() {
            return Err(Error::corruption("manifest", 0, "two keyspaces have the same name"));
        }
        catalogue.by_id.insert(id, core);
    }
    Ok(())
}

/// An empty tree for a new keyspace.
pub(crate) fn empty_tree(store: &Store, options: &KeyspaceOptions, id: KeyspaceId) -> Arc<dyn TreeState> {
    BeTree::empty(tree_options(options, id), &store.data)
}

/// The settings of a keyspace's tree. Equal keyspaces merge in different rounds, each of which would otherwise be many.
fn tree_options(options: &KeyspaceOptions, id: KeyspaceId) -> BeTreeOptions {
    BeTreeOptions { stagger: u64::from(id.0), ..options.chosen_tree().betree_options() }
}

/// The tree of a keyspace as its objects describe it.
pub(crate) fn stored_tree(
    data: &Arc<DataFile>,
    options: &KeyspaceOptions,
    id: KeyspaceId,
    objects: BTreeMap<ObjectId, Arc<[u8]>>,
) -> Result<Arc<dyn TreeState>> {
    Ok(BeTree::open(tree_options(options, id), data, id, objects)?)
}

/// Puts the commits of the log into memtables.
fn replay(store: &Store, read_only: bool, log_segment: u64, log_seqno: Seqno) -> Result<ReplayEnd> {
    let flushed: BTreeMap<KeyspaceId, Seqno> = store
        .manifest
        .with_state(|state| state.keyspaces.iter().map(|(&id, record)| (id, record.flushed)).collect());
    let newest_flushed = flushed.values().copied().max().unwrap_or_default().max(log_seqno);
    let mut next = None;
    let mut is_device_full = false;
    let deliver = |record: Record<'_>| {
        if next.is_none() && record.first_seqno.0 > log_seqno.0 + 1 {
            return Err(hole(log_segment, "commits before the first one of the log are missing"));
        }
        let end = record.first_seqno.0 + u64::from(record.seqno_count);
        next = Some(end);
        if end <= log_seqno.0 + 1 {
            return Ok(());
        }
        replay_record(store, &record, &flushed)?;
        store.recovered_seqno.store(end - 1, Relaxed);
        // A log can hold more than the write buffers may. On a full device they hold it all the same, or it would not open.
        while store.backpressure.may_be_full() && !read_only && !is_device_full {
            reserve_run_ids(store)?;
            match store.make_room_stepped() {
                Err(error) if error.kind() == ErrorKind::OutOfSpace => is_device_full = true,
                outcome => outcome?,
            }
        }
        Ok(())
    };
    let end = testudo_wal::replay(&*store.env, &store.directory, store.id, log_segment, deliver)?;
    // A segment that lost its header looks like one that was never used; the next one tells them apart.
    let first = end.segments.iter().find(|segment| segment.first_seqno.0 > 0);
    if first.is_some_and(|segment| segment.first_seqno.0 > log_seqno.0 + 1) {
        return Err(hole(log_segment, "the segment lost its header"));
    }
    if end.last_seqno < newest_flushed && newest_flushed > log_seqno {
        return Err(hole(log_segment, "the log ends before commits that the trees already hold"));
    }
    Ok(end)
}

fn hole(segment: u64, why: &str) -> Error {
    Error::corruption(testudo_wal::segment_file_name(segment), 0, why)
}

fn replay_record(store: &Store, record: &Record<'_>, flushed: &BTreeMap<KeyspaceId, Seqno>) -> Result<()> {
    let catalogue = store.catalogue.read();
    let mut count = 0;
    let outcome = batch_format::decode::<Damage>(record.payload, |index, operation| {
        count = index + 1;
        let seqno = Seqno(record.first_seqno.0 + index);
        if index > 0 && index + 1 == u64::from(record.seqno_count) && planted!("last-of-batch-not-replayed") {
            return Ok(());
        }
        let Some(keyspace) = catalogue.by_id.get(&operation.keyspace) else { return Ok(()) };
        let is_flushed = flushed.get(&operation.keyspace).is_some_and(|flushed| seqno <= *flushed);
        if is_flushed && !(operation.kind == Kind::Operands && planted!("flushed-operand-replayed")) {
            return Ok(());
        }
        let view = keyspace.view.load();
        view.active.note_commit(seqno);
        let value = if operation.kind == Kind::Tombstone { &[] } else { operation.value };
        let outcome = view.active.table.insert(seqno, operation.kind, operation.key, value, None);
        let grown = u64_of(outcome.memory_bytes_added);
        store.backpressure.active_bytes.fetch_add(grown, Relaxed);
        Ok(())
    });
    if outcome.is_err() || count != u64::from(record.seqno_count) {
        let why = outcome.err().map_or("a commit has another number of operations than it says", |d| d.0);
        let message = format!("commit {}: {why}", record.first_seqno);
        return Err(Error::new(ErrorKind::Corruption, message));
    }
    Ok(())
}
