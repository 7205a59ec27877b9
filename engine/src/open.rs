//! Opening a store: creating it, or finding out what a crash has left.
//!
//! Creation: lock, mark `CREATING`, data file, manifest, superblock, remove the mark. The superblock makes it a store; a
//! mark without a superblock is a creation that a crash cut short, and is started over.
//! Recovery: lock, superblock, manifest, trees, then the log from where the manifest says: every commit newer than what
//! its keyspace has flushed goes into memtables, which are drained on the way if they outgrow their share. A store that is opened
//! for reading does the same, with its changes in a temporary file (decision 0036).
//!
//! **Invariants**
//! - Nothing is written before the lock is held, and nothing at all for reading only.
//! - All files are reached through the directory as it was entered, never by its path again.
//! - Recovery can crash anywhere and be repeated: it only adds manifest edits that are true already.
//! - Nothing is removed, and no edit made, before superblock, manifest, watermark and log were found to
//!   belong together.
//! - After a crash log segments and manifest are written once more, to fresh files, before anything that depends on them is
//!   made durable: what was read may have stood in caches alone.

pub(crate) mod directory;
pub(crate) mod new_store;
pub(crate) mod settings;
pub(crate) mod witness;

use std::{collections::BTreeMap, path::Path};

use testudo_base::{
    Error, ErrorKind, Incarnation, KeyspaceId, Kind, ObjectId, Opening, Result, RunId, Seqno, StoreId,
    chunks::ChunkPool,
    codec::Damage,
    num::u64_of,
    planted,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use testudo_betree::{BeTree, BeTreeOptions};
use testudo_contract::{Executor, InlineExecutor, RunIds, Tree as TreeState};
use testudo_env::{
    DirLock, Env, Execution, File, LockCheckedEnv, OpenMode, OpenOptions, OverlayFile, Reserve,
};
use testudo_storage::{Change, DATA_FILE, DataFile, Manifest, SUPERBLOCK_FILE};
use testudo_wal::{LogEvidence, Record, ReplayEnd, Wal, WalOptions, WalStart, segment_file_name};

use crate::{
    handles::options::KeyspaceOptions,
    open::{
        directory::{CREATING_FILE, LOCK_FILE, RESERVE_FILE, UNFINISHED_FILE, io, is_store_file, list},
        settings::Settings,
        witness::{ManifestWitness, log_evidence},
    },
    store::{Store, StoreParts, budget::Budget, executor::Pool, shares::MemoryShares, view::KeyspaceCore},
    write::{
        batch_format::{self, Operation},
        space_guard::Room,
    },
};

/// Run ids that a crash may have used without the manifest knowing.
const RUN_ID_GAP: u64 = 1 << 24;

/// Runs that a reader makes of the log have ids from here on, begun at random; a writer never comes so far.
const READER_RUNS: u64 = 1 << 62;

/// A store, its lock, and the pool that its close must end.
pub(crate) struct Opened {
    pub(crate) store: Arc<Store>,
    pub(crate) lock: Arc<dyn DirLock>,
    pub(crate) pool: Option<Arc<Pool>>,
}

/// Opens or creates the store that `settings` describe.
pub(crate) fn open(settings: &Settings) -> Result<Opened> {
    if settings.temporary && (settings.read_only || !settings.create) {
        return Err(Error::invalid("a temporary store is always created, and never opened for reading only"));
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

/// Holds the directory open; makes it if there is none and a store may be created.
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

/// As [`open`], in the directory that `entered` holds open.
fn open_in(entered: &Arc<dyn Env>, settings: &Settings, memory: Budget) -> Result<Opened> {
    let directory = settings.directory.as_path();
    let names = list(&**entered, directory)?.unwrap_or_default();
    check_finished(directory, &names)?;
    if !names.iter().any(|name| name == SUPERBLOCK_FILE) {
        check_creatable(settings, Some(&names))?;
    }
    let lock = directory::lock(&**entered, directory, !settings.read_only, !settings.read_only)?;
    let plain_env: Arc<dyn Env> = if settings.read_only {
        Arc::clone(entered)
    } else {
        LockCheckedEnv::new(Arc::clone(entered), &lock, &directory.join(LOCK_FILE))
    };
    let settings = &Settings { env: Arc::clone(&plain_env), ..settings.clone() };
    let reserve = reserve(settings, &memory.shares())?;
    let settings = &match &reserve {
        Some(reserve) => Settings { env: reserve.env(), ..settings.clone() },
        None => settings.clone(),
    };
    let env = &settings.env;
    // The answer may have changed while the lock was being taken.
    let names = list(&**env, directory)?.unwrap_or_default();
    check_finished(directory, &names)?;
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

/// Refuses a directory that a checkpoint or a restore has not finished.
fn check_finished(directory: &Path, names: &[String]) -> Result<()> {
    if names.iter().any(|name| name == UNFINISHED_FILE) {
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
    directory::sync_own_name(&**env, directory)?;
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
    let settings = Settings { env: Arc::clone(env), read_only: true, ..Settings::new(directory) };
    let manifest = Manifest::open(Arc::clone(env), directory, false)?;
    let (store, _) = assemble(&settings, Budget::new(1 << 20)?, manifest, Room::new(None))?;
    load_keyspaces(&store)?;
    crate::check::structure::check_structure(&store, false)?;
    check_log(&store, &log_evidence(&store.manifest))
}

/// Reads the log as recovery does, without taking anything from it.
fn check_log(store: &Store, evidence: &LogEvidence) -> Result<()> {
    let next_keyspace = store.manifest.with_state(|state| state.next_keyspace);
    let check = |record: Record<'_>| check_commit(&record, next_keyspace);
    testudo_wal::replay(&*store.env, &store.directory, store.id, evidence, check).map(|_| ())
}

/// Checks that a commit decodes, and names only keyspaces that there have been.
pub(crate) fn check_commit(record: &Record<'_>, next_keyspace: KeyspaceId) -> Result<()> {
    let mut count = 0;
    let decoded = batch_format::decode(record.payload, |_, operation| {
        count += 1;
        check_keyspace(&operation, next_keyspace)
    });
    let why = match decoded {
        Ok(()) if count == record.seqno_count => return Ok(()),
        Ok(()) => "a commit has another number of operations than it says",
        Err(Damage(why)) => why,
    };
    Err(damaged_commit(record, why))
}

/// The manifest knows a keyspace before the log does: one that it cannot know shows that the manifest is
/// too old.
fn check_keyspace(operation: &Operation<'_>, next_keyspace: KeyspaceId) -> std::result::Result<(), Damage> {
    if operation.keyspace >= next_keyspace {
        return Err(Damage("it writes to a keyspace that the manifest does not know"));
    }
    Ok(())
}

fn damaged_commit(record: &Record<'_>, why: &str) -> Error {
    let (segment, offset) = record.place;
    let message = format!("commit {}: {why}", record.first_seqno);
    Error::corruption(segment_file_name(segment), offset, message)
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

pub(crate) fn assemble(
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
    let file = if settings.read_only { changed_elsewhere(settings, file)? } else { file };
    let live: Vec<_> = manifest.with_state(|state| state.live_spans().collect());
    // Never 0, which stands for no opening. What a reader writes stays with it.
    let writer = Some(Incarnation(settings.env.random_u64().max(1)));
    let data = DataFile::new(file, manifest.store(), shares.page_cache(), live.into_iter(), writer)?;
    let (executor, pool, is_stepped) = hands(settings)?;
    let next_run = if settings.read_only {
        // Whoever writes this store gives ids of its own, which copies of it know as well.
        RunId(READER_RUNS | settings.env.random_u64() >> 2)
    } else {
        RunId(manifest.with_state(|state| state.next_run).0.saturating_add(RUN_ID_GAP))
    };
    let store = Store::new(StoreParts {
        env: Arc::clone(&settings.env),
        directory: directory.to_owned(),
        memory,
        default_durability: settings.durability,
        merge_operators: settings.merge_operators.clone(),
        data,
        run_ids: Arc::new(RunIds::starting_at(next_run)),
        arena_pool: ChunkPool::new(shares.chunks()),
        executor,
        is_stepped,
        manifest: Arc::new(manifest),
        room,
    });
    Ok((store, pool))
}

/// The data file for a reader, which must not write it.
fn changed_elsewhere(settings: &Settings, file: Arc<dyn File>) -> Result<Arc<dyn File>> {
    let overlay = OverlayFile::over(file, Arc::clone(&settings.env));
    Ok(overlay.map_err(|error| Error::io(DATA_FILE, error))?)
}

fn recover(settings: &Settings, mut store: Store) -> Result<Arc<Store>> {
    load_keyspaces(&store)?;
    let evidence = log_evidence(&store.manifest);
    let log_seqno = store.manifest.with_state(|state| state.log_seqno);
    let end = replay(&store, settings.read_only, &evidence, log_seqno)?;
    store.recovered_seqno.store(end.last_seqno.max(log_seqno).0, Relaxed);
    if let Some(incarnation) = store.data.writer().filter(|_| !settings.read_only) {
        // What was read is durable by now.
        begin_writing(&store)?;
        store.manifest.record_durable(0, store.last_seqno())?;
        store.manifest.state_watermark()?;
        testudo_wal::remove_segments(&*store.env, &store.directory, evidence.first_segment)?;
        let shares = store.memory.shares();
        let options = WalOptions {
            segment_bytes: shares.wal_segment_bytes(),
            buffer_bytes: shares.wal_buffer_bytes,
            ..WalOptions::new(store.id)
        };
        let mut start = WalStart::after(&end, incarnation);
        if end.last_seqno < log_seqno {
            start.next_seqno = Seqno(log_seqno.0 + 1);
            start.recovered_seqno = log_seqno;
        }
        let witness = Arc::new(ManifestWitness(Arc::clone(&store.manifest)));
        store.wal = Some(Wal::create(Arc::clone(&store.env), &store.directory, options, start, witness)?);
    }
    Ok(Arc::new(store))
}

/// Makes the edit with which an opening for writing begins, once, before its first run and its first log
/// segment: it states the incarnation, and steps over the run ids that a crash may have used without the
/// manifest knowing. A reader keeps it to itself. REQUIRES: of a writer, everything that is read at opening has
/// been found valid.
fn begin_writing(store: &Store) -> Result<()> {
    let Some(incarnation) = store.data.writer() else { return Ok(()) };
    let has_begun = |opening: &Opening| opening.incarnation == incarnation;
    if store.manifest.with_state(|state| state.openings.last().is_some_and(has_begun)) {
        return Ok(());
    }
    store.manifest.begin_writing()?;
    let newest = testudo_wal::list_segments(&*store.env, &store.directory)?.pop().unwrap_or_default();
    let log_segment = store.manifest.with_state(|state| state.log_segment);
    let first_segment = (newest + 1).max(log_segment);
    let opening = Change::Opened(Opening { incarnation, first_segment });
    store.commit_edit(&[Change::NextRun(store.run_ids.next()), opening])
}

pub(crate) fn load_keyspaces(store: &Store) -> Result<()> {
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
fn replay(store: &Store, read_only: bool, evidence: &LogEvidence, log_seqno: Seqno) -> Result<ReplayEnd> {
    let log_segment = evidence.first_segment;
    let flushed: BTreeMap<KeyspaceId, Seqno> = store
        .manifest
        .with_state(|state| state.keyspaces.iter().map(|(&id, record)| (id, record.flushed)).collect());
    let newest_flushed = flushed.values().copied().max().unwrap_or_default().max(log_seqno);
    let mut next = None;
    let mut is_device_full = false;
    let is_planted = read_only && planted!("reader-holds-the-whole-log");
    let mut is_checked = false;
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
        while store.backpressure.may_be_full() && !is_device_full && !is_planted {
            if !read_only && !std::mem::replace(&mut is_checked, true) {
                check_log(store, evidence)?;
            }
            begin_writing(store)?;
            match store.make_room_stepped() {
                Err(error) if error.kind() == ErrorKind::OutOfSpace && !read_only => is_device_full = true,
                outcome => outcome?,
            }
        }
        Ok(())
    };
    let end = testudo_wal::replay(&*store.env, &store.directory, store.id, evidence, deliver)?;
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
    Error::corruption(segment_file_name(segment), 0, why)
}

fn replay_record(store: &Store, record: &Record<'_>, flushed: &BTreeMap<KeyspaceId, Seqno>) -> Result<()> {
    let catalogue = store.catalogue.read();
    let next_keyspace = store.manifest.with_state(|state| state.next_keyspace);
    let mut count = 0;
    let outcome = batch_format::decode::<Damage>(record.payload, |index, operation| {
        count = index + 1;
        let seqno = Seqno(record.first_seqno.0 + index);
        if index > 0 && index + 1 == u64::from(record.seqno_count) && planted!("last-of-batch-not-replayed") {
            return Ok(());
        }
        check_keyspace(&operation, next_keyspace)?;
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
        return Err(damaged_commit(record, why));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
