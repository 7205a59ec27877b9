//! Measures batches of random direct reads against the same reads one at a time.
//!
//! Usage: `batch_read DIRECTORY [FILE_MIB] [ROUNDS]`. Creates a file in the directory and removes it. The
//! defaults are small; 256 MiB and 2,000 rounds give stable numbers.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use testudo_env::{AlignedBuffer, Env, File, OpenMode, OpenOptions, ReadRequest, RealEnv, SplitMix};

const PAGE: usize = 4096;
const BATCH: usize = 32;

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().unwrap_or_else(|| ".".to_owned()));
    let mut number = |default| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (file_mib, rounds): (u64, u64) = (number(8), number(100));
    let path = directory.join("batch_read.tmp");
    let env = RealEnv::new();
    let result = fill(&env, &path, file_mib).and_then(|()| measure_all(&env, &path, file_mib << 20, rounds));
    env.remove_file(&path)?;
    result
}

fn fill(env: &RealEnv, path: &Path, file_mib: u64) -> io::Result<()> {
    let file = env.open(path, OpenOptions { mode: OpenMode::CreateNew, direct: true })?;
    let mut random = SplitMix::new(1);
    let mut bytes = AlignedBuffer::zeroed(1 << 20);
    for part in 0..file_mib {
        random.fill(&mut bytes);
        file.write_at(part << 20, &bytes)?;
    }
    file.sync()
}

fn measure_all(ring: &Arc<RealEnv>, path: &Path, file_bytes: u64, rounds: u64) -> io::Result<()> {
    let threads = RealEnv::builder().without_io_uring().build();
    let pages = file_bytes / PAGE as u64;
    let direct = OpenOptions { mode: OpenMode::Read, direct: true };
    for (name, env, batched) in [
        ("sequential reads", ring, false),
        (ring.io_backend(), ring, true),
        (threads.io_backend(), &threads, true),
    ] {
        let file = env.open(path, direct)?;
        let taken = measure(env, &*file, pages, rounds, batched)?;
        let micros = taken.as_secs_f64() * 1e6 / rounds as f64;
        println!(
            "{name:>16}: {micros:8.1} us per {BATCH} reads of 4 KiB, {:6.2} us each",
            micros / BATCH as f64
        );
    }
    Ok(())
}

fn measure(env: &RealEnv, file: &dyn File, pages: u64, rounds: u64, batched: bool) -> io::Result<Duration> {
    let mut random = SplitMix::new(2);
    let mut bytes = AlignedBuffer::zeroed(BATCH * PAGE);
    let started = env.monotonic();
    for _ in 0..rounds {
        let mut requests: Vec<_> = bytes
            .chunks_mut(PAGE)
            .map(|buffer| ReadRequest::new(random.below(pages) * PAGE as u64, buffer))
            .collect();
        if batched {
            file.read_batch(&mut requests);
        } else {
            for request in &mut requests {
                request.result = file.read_at(request.offset, request.buffer);
            }
        }
        for request in requests {
            request.result?;
        }
    }
    Ok(env.monotonic() - started)
}
