//! Assembles an open store from its files and settings, before recovery.

use testudo_base::{
    Error, Incarnation, Result, RunId,
    chunks::ChunkPool,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use testudo_contract::{InlineExecutor, RunIds};
use testudo_env::{Execution, File, OpenMode, OpenOptions, OverlayFile, Reserve};
use testudo_options::Settings;
use testudo_storage::{DATA_FILE, DataFile, Manifest};
use testudo_store::{
    Store, StoreParts,
    background::executor::{Executors, JobExecutor, Pool},
    directory::RESERVE_FILE,
    memory::budget::Budget,
    space::space_guard::{RESERVE_BYTES_MIN, SpaceGuard},
};

/// Run ids that a crash may have used without the manifest recording them.
const RUN_ID_GAP: u64 = 1 << 24;

/// First id, plus a random offset, of runs that a reader creates from the log; a writer never reaches it.
const READER_RUNS: u64 = 1 << 62;

/// Execution of background work.
struct Workers {
    executors: Executors,
    /// The threads of the executors, if they have any.
    pool: Option<Arc<Pool>>,
    /// There are no background threads: the same work is done in steps.
    is_stepped: bool,
}

pub fn assemble(
    settings: &Settings,
    memory: Budget,
    manifest: Manifest,
    space: SpaceGuard,
) -> Result<(Store, Option<Arc<Pool>>)> {
    debug_assert!(space.is_kept() != settings.read_only, "writers have a reserve, readers have none");
    let directory = settings.directory.as_path();
    let shares = memory.shares();
    let mode = if settings.read_only { OpenMode::Read } else { OpenMode::Write };
    // A flush that runs out of space is retried; the reserve is for log and manifest.
    let data_env = space.bulk_env(&settings.env);
    let file = data_env.open(&directory.join(DATA_FILE), OpenOptions { mode, direct: true });
    let file = file.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::corruption(DATA_FILE, 0, "the file is missing"),
        _ => Error::io(DATA_FILE, error),
    })?;
    let file = if settings.read_only { changed_elsewhere(settings, file)? } else { file };
    let live: Vec<_> = manifest.with_state(|state| state.live_spans().collect());
    // Never 0, which means no opening. A reader's pages never leave its process.
    let writer = Some(Incarnation(settings.env.random_u64().max(1)));
    let data = DataFile::new(file, manifest.store(), shares.page_cache(), live.into_iter(), writer)?;
    data.set_warms_merges(settings.warm_merges);
    data.set_retained_percent(settings.retained_percent);
    data.small_runs_apart().store(settings.small_runs_apart, Relaxed);
    let Workers { executors, pool, is_stepped } = workers(settings)?;
    let next_run = if settings.read_only {
        // The writer of this store assigns ids of its own, which copies of the store also hold.
        RunId(READER_RUNS | settings.env.random_u64() >> 3)
    } else {
        RunId(manifest.with_state(|state| state.next_run).0.saturating_add(RUN_ID_GAP))
    };
    debug_assert!(writer.is_some_and(|incarnation| incarnation.0 > 0), "incarnation 0 means no opening");
    let store = Store::new(StoreParts {
        env: Arc::clone(&settings.env),
        directory: directory.to_owned(),
        memory,
        default_durability: settings.durability,
        merge_operators: settings.merge_operators.clone(),
        data,
        run_ids: Arc::new(RunIds::starting_at(next_run)),
        arena_pool: ChunkPool::new(shares.chunks()),
        executors,
        is_stepped,
        manifest: Arc::new(manifest),
        space,
        warm_restart: settings.warm_restart && !settings.temporary,
        record_cache: settings.record_cache,
    });
    store.background.limits.set_bytes_per_second(settings.job_bytes_per_second);
    Ok((store, pool))
}

/// Maximum number of threads that merge.
const THREADS_MAX: usize = 64;

fn workers(settings: &Settings) -> Result<Workers> {
    let inline = || Executors { flushes: Arc::new(InlineExecutor), jobs: Arc::new(InlineExecutor) };
    match settings.env.execution() {
        Execution::Threads { cores } if !settings.read_only => {
            let threads = settings.background_threads.unwrap_or(cores.clamp(2, 8)).clamp(1, THREADS_MAX);
            let pool = Pool::start(&*settings.env, threads - 1)?;
            let jobs = Arc::new(JobExecutor(Arc::clone(&pool)));
            let executors = Executors { flushes: Arc::clone(&pool) as _, jobs };
            Ok(Workers { executors, pool: Some(pool), is_stepped: false })
        }
        Execution::Threads { .. } => Ok(Workers { executors: inline(), pool: None, is_stepped: false }),
        Execution::Stepped => Ok(Workers { executors: inline(), pool: None, is_stepped: true }),
    }
}

/// The data file for a reader, with writes redirected to an overlay.
fn changed_elsewhere(settings: &Settings, file: Arc<dyn File>) -> Result<Arc<dyn File>> {
    let overlay = OverlayFile::over(file, Arc::clone(&settings.env));
    Ok(overlay.map_err(|error| Error::io(DATA_FILE, error))?)
}

/// The reserve file in the directory, as an earlier opening left it; `None` for readers.
pub fn reserve(settings: &Settings) -> Result<Option<Arc<Reserve>>> {
    if settings.read_only {
        return Ok(None);
    }
    let path = settings.directory.join(RESERVE_FILE);
    let reserve = Reserve::open(Arc::clone(&settings.env), path, RESERVE_BYTES_MIN);
    reserve.map(Some).map_err(|e| Error::io(RESERVE_FILE, e))
}
