//! Measures the log in a directory: buffered appends per thread, and synced commits per second compared with
//! the bare device. `wal_rate DIRECTORY [MILLISECONDS]`; the directory must not exist and is removed at the
//! end.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use testudo_base::{Error, Incarnation, Result, StoreId};
use testudo_env::{AlignedBuffer, Env, MemEnv, OpenMode, OpenOptions, RealEnv};
use testudo_wal::{
    LogEvidence, NoListener, Wal, WalOptions, WalStart, list_segments, remove_segments, replay,
    segment_file_name,
};

const PAYLOAD: [u8; 150] = [7; 150];

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().ok_or_else(|| Error::invalid("give a directory"))?);
    let milliseconds = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(2000);
    let duration = Duration::from_millis(milliseconds);
    let env: Arc<dyn Env> = RealEnv::new();
    env.create_dir(&dir).map_err(|error| Error::io(dir.display().to_string(), error))?;
    let measured = measure(&env, &dir, duration);
    remove_segments(&*env, &dir, u64::MAX)?;
    env.remove_dir(&dir).map_err(|error| Error::io(dir.display().to_string(), error))?;
    measured
}

fn measure(env: &Arc<dyn Env>, dir: &Path, duration: Duration) -> Result<()> {
    for writers in [1, 2] {
        measure_memory(writers);
    }
    for writers in [1, 2] {
        let memory = MemEnv::with_threads(1, 2);
        let memory_dir = Path::new("/m");
        memory.create_dir(memory_dir).map_err(|error| Error::io("memory", error))?;
        let memory: Arc<dyn Env> = memory;
        report("buffered, to memory", writers, &run(&memory, memory_dir, writers, duration / 4, false)?);
        report("buffered, to the device", writers, &run(env, dir, writers, duration, false)?);
        measure_replay(env, dir)?;
    }
    for round in 0..2 {
        println!("bare write and sync of 4 KiB: {:.0}/s", bare_rate(env, dir, duration)?);
        for writers in [1, 8, 64] {
            let outcome = run(env, dir, writers, duration, true)?;
            report(&format!("synced, round {round}"), writers, &outcome);
        }
    }
    Ok(())
}

struct Outcome {
    commits: u64,
    seconds: f64,
    wal: Arc<Wal>,
}

fn report(what: &str, writers: usize, outcome: &Outcome) {
    let per_commit = outcome.seconds * 1e9 / outcome.commits as f64;
    let stats = outcome.wal.stats();
    println!(
        "{what}, {writers} writers: {:.0} commits/s, {per_commit:.0} ns each, {:.1} commits per round, \
         {:.1} bytes each",
        1e9 / per_commit,
        stats.commits as f64 / stats.sync_rounds.max(1) as f64,
        stats.bytes_written as f64 / outcome.commits as f64,
    );
}

/// Appends that fit into the buffers: the cost of reserve and fill alone.
fn measure_memory(writers: u64) {
    let env = MemEnv::with_threads(1, 2);
    let dir = Path::new("/m");
    env.create_dir(dir).expect("a new directory");
    let options = WalOptions { buffer_bytes: 64 << 20, buffer_count: 1, ..WalOptions::new(StoreId(1)) };
    let wal =
        Wal::create(env.clone(), dir, options, WalStart::new_store(Incarnation(1)), Arc::new(NoListener))
            .expect("a log in memory");
    drop(wal.reserve(64 << 19, 1));
    wal.write_all().expect("written to memory");
    let commits = (60 << 20) / 192 / writers;
    let started = env.monotonic();
    std::thread::scope(|scope| {
        for _ in 0..writers {
            scope.spawn(|| {
                for _ in 0..commits {
                    wal.reserve(PAYLOAD.len(), 1).expect("room").write(&PAYLOAD);
                }
            });
        }
    });
    let nanos = (env.monotonic() - started).as_nanos() as f64;
    println!("reserve and fill, {writers} writers: {:.0} ns each", nanos / (commits * writers) as f64);
}

/// Runs writers that commit for `duration` under a lock like the engine's, and a flushing thread.
fn run(
    env: &Arc<dyn Env>,
    dir: &Path,
    writers: usize,
    duration: Duration,
    is_synced: bool,
) -> Result<Outcome> {
    let start = WalStart {
        segment_number: list_segments(&**env, dir)?.last().map_or(1, |last| last + 1),
        ..WalStart::new_store(Incarnation(1))
    };
    let wal = Wal::create(Arc::clone(env), dir, WalOptions::new(StoreId(1)), start, Arc::new(NoListener))?;
    let (commit_lock, is_over, commits) = (Mutex::new(()), AtomicBool::new(false), AtomicU64::new(0));
    let started = env.monotonic();
    let write = || -> Result<()> {
        let mut count = 0;
        while count % 64 != 0 && !is_synced || env.monotonic() - started < duration {
            let guard = commit_lock.lock();
            let reservation = wal.reserve(PAYLOAD.len(), 1)?;
            drop(guard);
            let seqno = reservation.last_seqno();
            reservation.write(&PAYLOAD);
            if is_synced {
                wal.sync_to(seqno)?;
            }
            count += 1;
        }
        commits.fetch_add(count, Ordering::Relaxed);
        Ok(())
    };
    let flush = || -> Result<()> {
        while !is_over.load(Ordering::Relaxed) {
            let has_sealed = wal.wait_for_sealed(Duration::from_millis(100));
            if has_sealed {
                wal.write_sealed()?
            } else {
                wal.write_all()?
            }
            wal.prepare_segment()?;
            wal.release_before(wal.first_needed_segment(wal.last_reserved_seqno()));
            wal.remove_released()?;
        }
        Ok(())
    };
    let seconds = std::thread::scope(|scope| {
        let flusher = scope.spawn(flush);
        let handles: Vec<_> = (0..writers).map(|_| scope.spawn(write)).collect();
        let outcomes: Vec<_> = handles.into_iter().map(|handle| handle.join().expect("no panic")).collect();
        let seconds = (env.monotonic() - started).as_secs_f64();
        is_over.store(true, Ordering::Relaxed);
        flusher.join().expect("no panic")?;
        outcomes.into_iter().collect::<Result<()>>()?;
        Ok::<f64, Error>(seconds)
    })?;
    Ok(Outcome { commits: commits.into_inner(), seconds, wal })
}

/// Reads the newest segments left by the runs, back to the first gap in their numbers.
fn measure_replay(env: &Arc<dyn Env>, dir: &Path) -> Result<()> {
    let segments = list_segments(&**env, dir)?;
    let first =
        segments.iter().rev().zip(segments.iter().rev().skip(1)).find(|(next, number)| **number + 1 < **next);
    let first = first.map_or(segments.first(), |(next, _)| Some(next)).copied().unwrap_or(0);
    let (started, mut payload_bytes) = (env.monotonic(), 0);
    let end = replay(&**env, dir, StoreId(1), &LogEvidence::starting_at(first), |record| {
        payload_bytes += record.payload.len();
        Ok(())
    })?;
    let seconds = (env.monotonic() - started).as_secs_f64();
    let rate = payload_bytes as f64 / seconds / f64::from(1 << 20);
    println!("replay up to seqno {}: {payload_bytes} bytes, {rate:.0} MiB/s", end.last_seqno);
    Ok(())
}

/// Rate of the bare device: one page written into written space, then synced.
fn bare_rate(env: &Arc<dyn Env>, dir: &Path, duration: Duration) -> Result<f64> {
    let number = list_segments(&**env, dir)?.last().map_or(1, |last| last + 1);
    let path = dir.join(segment_file_name(number));
    let failed = |error| Error::io("bare", error);
    let options = OpenOptions { mode: OpenMode::CreateNew, direct: true };
    let file = env.open(&path, options).map_err(failed)?;
    file.write_at(0, &AlignedBuffer::zeroed(16 << 20)).and_then(|()| file.sync()).map_err(failed)?;
    let page = AlignedBuffer::zeroed(4096);
    let started = env.monotonic();
    let mut count = 0u64;
    while env.monotonic() - started < duration {
        file.write_at(count % 4096 * 4096, &page).and_then(|()| file.sync()).map_err(failed)?;
        count += 1;
    }
    env.remove_file(&path).map_err(failed)?;
    Ok(count as f64 / duration.as_secs_f64())
}
