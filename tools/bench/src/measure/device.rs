//! Raw disk performance, without a store: random reads, bandwidth, syncs, all with direct I/O.
//!
//! **Invariants**
//! - Every block that is read or overwritten was written before, so no read is served from a hole.
//! - The file is in its own directory, which is removed at the end.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde::Serialize;
use testudo::{Error, Result};
use testudo_base::{PAGE_BYTES, PAGE_SIZE, num::u64_of};
use testudo_env::{AlignedBuffer, Env, File, OpenMode, OpenOptions, ReadRequest, SplitMix};

use crate::{
    Context, DeviceArgs, Outcome,
    report::{
        histogram::{Histogram, Percentiles},
        output::Output,
        size::{human_bytes, human_count, quotient},
    },
    subject::scratch::Scratch,
};

const STREAM_BYTES: usize = 1 << 20;
const SMOKE_BYTES: u64 = 8 << 20;
const SMOKE_TIME: Duration = Duration::from_millis(20);

/// One measurement.
#[derive(Clone, Debug, Serialize)]
struct DeviceResult {
    measurement: &'static str,
    request_bytes: usize,
    threads: usize,
    in_flight: usize,
    operations: u64,
    seconds: f64,
    per_second: f64,
    bytes_per_second: f64,
    latency_us: Percentiles,
    io_backend: &'static str,
}

/// One round of requests; returns the number of requests.
type Round<'a> = Box<dyn FnMut() -> io::Result<u64> + Send + 'a>;

/// The file to measure.
struct Probe<'a> {
    context: &'a Context,
    file: Arc<dyn File>,
    file_bytes: u64,
    time: Duration,
}

/// Measures the disk.
pub(crate) fn run(args: &DeviceArgs, context: &Context) -> Result<Outcome> {
    let mut output = Output::new(args.json.as_deref())?;
    let scratch = Scratch::new(&*context.env, None, args.dir.as_deref())?;
    let whole = u64_of(STREAM_BYTES);
    let file_bytes = if args.smoke { SMOKE_BYTES } else { args.file_bytes / whole * whole };
    if file_bytes < SMOKE_BYTES {
        return Err(Error::invalid(format!("--file-bytes: at least {}", human_bytes(SMOKE_BYTES))));
    }
    let options = OpenOptions { mode: OpenMode::CreateNew, direct: true };
    let path = scratch.path().join("blocks");
    let name = path.display().to_string();
    let file = context.env.open(&path, options).map_err(|error| Error::io(name.as_str(), error))?;
    let time = if args.smoke { SMOKE_TIME } else { Duration::from_secs_f64(args.seconds) };
    let probe = Probe { context, file, file_bytes, time };
    let mut rows = vec![head()];
    let measured = probe.measure_all(&mut |result| {
        rows.push(row(&result));
        output.result(&result)
    });
    output.table(&rows)?;
    measured.map(|()| Outcome::Fine)
}

impl Probe<'_> {
    fn measure_all(&self, sink: &mut dyn FnMut(DeviceResult) -> Result<()>) -> Result<()> {
        sink(self.first_write()?)?;
        for in_flight in [1, 2, 8, 32] {
            sink(self.rounds("random_read", PAGE_SIZE, (1, in_flight), |thread| {
                self.read_round(thread, in_flight)
            })?)?;
        }
        for threads in [2, 4] {
            sink(self.rounds("random_read", PAGE_SIZE, (threads, 1), |thread| self.read_round(thread, 1))?)?;
        }
        for in_flight in [1, 4] {
            sink(
                self.rounds("sequential_read", STREAM_BYTES, (1, in_flight), |_| {
                    self.stream_read(in_flight)
                })?,
            )?;
        }
        sink(self.rounds("sequential_write", STREAM_BYTES, (1, 1), |_| self.stream_write())?)?;
        for threads in [1, 2, 8] {
            sink(self.rounds("write_and_sync", PAGE_SIZE, (threads, 1), |thread| {
                self.sync_round(thread, threads)
            })?)?;
        }
        Ok(())
    }

    /// Fills the file, allocating its blocks.
    fn first_write(&self) -> Result<DeviceResult> {
        let env = &*self.context.env;
        let mut latency = Histogram::new();
        let started = env.monotonic();
        let mut last = started;
        let mut round = self.stream_write();
        let mut operations = 0;
        for _ in 0..self.file_bytes / u64_of(STREAM_BYTES) {
            operations += round().map_err(failed)?;
            let now = env.monotonic();
            latency.record(now - last);
            last = now;
            if self.context.stopped() {
                return Err(Error::invalid("stopped while the file was written"));
            }
        }
        self.file.sync().map_err(failed)?;
        let elapsed = env.monotonic() - started;
        Ok(self.result("first_write", STREAM_BYTES, (1, 1), (operations, elapsed, &latency)))
    }

    /// Repeats rounds in `threads` threads until the time is up.
    fn rounds<'s>(
        &'s self,
        measurement: &'static str,
        request_bytes: usize,
        (threads, in_flight): (usize, usize),
        make_round: impl Fn(usize) -> Round<'s>,
    ) -> Result<DeviceResult> {
        let env = &*self.context.env;
        let rounds: Vec<Round<'s>> = (0..threads).map(make_round).collect();
        let failed_flag = AtomicBool::new(false);
        let started = env.monotonic();
        let outcomes: Vec<io::Result<(u64, Histogram)>> = std::thread::scope(|scope| {
            let spawn = |mut round: Round<'s>| {
                let failed_flag = &failed_flag;
                scope.spawn(move || {
                    let outcome = self.repeat(started, failed_flag, &mut *round);
                    failed_flag.fetch_or(outcome.is_err(), Ordering::Relaxed);
                    outcome
                })
            };
            let handles: Vec<_> = rounds.into_iter().map(spawn).collect();
            let join = |handle: std::thread::ScopedJoinHandle<'_, _>| {
                handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            handles.into_iter().map(join).collect()
        });
        let elapsed = env.monotonic() - started;
        let (mut operations, mut latency) = (0, Histogram::new());
        for outcome in outcomes {
            let (count, part) = outcome.map_err(failed)?;
            operations += count;
            latency.merge(&part);
        }
        Ok(self.result(measurement, request_bytes, (threads, in_flight), (operations, elapsed, &latency)))
    }

    fn repeat(
        &self,
        started: Duration,
        failed_flag: &AtomicBool,
        round: &mut (dyn FnMut() -> io::Result<u64> + Send),
    ) -> io::Result<(u64, Histogram)> {
        let env = &*self.context.env;
        let (mut operations, mut latency) = (0, Histogram::new());
        let mut last = env.monotonic();
        while last - started < self.time && !self.context.stopped() && !failed_flag.load(Ordering::Relaxed) {
            operations += round()?;
            let now = env.monotonic();
            latency.record(now - last);
            last = now;
        }
        Ok((operations, latency))
    }

    fn read_round(&self, thread: usize, in_flight: usize) -> Round<'_> {
        let mut random = SplitMix::new(u64_of(thread) + 1);
        let pages = self.file_bytes / PAGE_BYTES;
        let mut buffer = AlignedBuffer::zeroed(PAGE_SIZE * in_flight);
        Box::new(move || {
            if in_flight == 1 {
                self.file.read_at(random.below(pages) * PAGE_BYTES, &mut buffer)?;
                return Ok(1);
            }
            let parts = buffer.chunks_exact_mut(PAGE_SIZE);
            self.read_together(
                parts.map(|part| ReadRequest::new(random.below(pages) * PAGE_BYTES, part)).collect(),
            )
        })
    }

    fn stream_read(&self, in_flight: usize) -> Round<'_> {
        let mut buffer = AlignedBuffer::zeroed(STREAM_BYTES * in_flight);
        let mut next = self.positions();
        Box::new(move || {
            if in_flight == 1 {
                self.file.read_at(next(), &mut buffer)?;
                return Ok(1);
            }
            let parts = buffer.chunks_exact_mut(STREAM_BYTES);
            self.read_together(parts.map(|part| ReadRequest::new(next(), part)).collect())
        })
    }

    fn read_together(&self, mut requests: Vec<ReadRequest<'_>>) -> io::Result<u64> {
        self.file.read_batch(&mut requests);
        let count = u64_of(requests.len());
        requests.into_iter().try_for_each(|request| request.result)?;
        Ok(count)
    }

    fn stream_write(&self) -> Round<'_> {
        let mut buffer = AlignedBuffer::zeroed(STREAM_BYTES);
        // Incompressible data, so that a compressing device gains nothing.
        SplitMix::new(7).fill(&mut buffer);
        let mut next = self.positions();
        Box::new(move || self.file.write_at(next(), &buffer).map(|()| 1))
    }

    /// Returns the offsets of consecutive stream requests, wrapping at the end of the file.
    fn positions(&self) -> impl FnMut() -> u64 + Send + use<> {
        let (mut position, end) = (0, self.file_bytes);
        move || {
            let current = position;
            position = (position + u64_of(STREAM_BYTES)) % end;
            current
        }
    }

    /// Returns a round that writes a page in the thread's own part of the file and then syncs the file.
    fn sync_round(&self, thread: usize, threads: usize) -> Round<'_> {
        let mut buffer = AlignedBuffer::zeroed(PAGE_SIZE);
        SplitMix::new(u64_of(thread)).fill(&mut buffer);
        let part_pages = self.file_bytes / PAGE_BYTES / u64_of(threads);
        let first = u64_of(thread) * part_pages;
        let mut count = 0;
        Box::new(move || {
            self.file.write_at((first + count % part_pages) * PAGE_BYTES, &buffer)?;
            self.file.sync()?;
            count += 1;
            Ok(1)
        })
    }

    fn result(
        &self,
        measurement: &'static str,
        request_bytes: usize,
        (threads, in_flight): (usize, usize),
        (operations, elapsed, latency): (u64, Duration, &Histogram),
    ) -> DeviceResult {
        let seconds = elapsed.as_secs_f64();
        let per_second = quotient(operations as f64, seconds);
        DeviceResult {
            measurement,
            request_bytes,
            threads,
            in_flight,
            operations,
            seconds,
            per_second,
            bytes_per_second: per_second * request_bytes as f64,
            latency_us: latency.percentiles(),
            io_backend: self.context.env.io_backend(),
        }
    }
}

fn failed(error: io::Error) -> Error {
    Error::io("the file to measure", error)
}

fn head() -> Vec<String> {
    [
        "measurement",
        "request",
        "threads",
        "in flight",
        "per second",
        "per second",
        "p50 µs",
        "p99 µs",
        "max µs",
    ]
    .map(str::to_owned)
    .to_vec()
}

fn row(result: &DeviceResult) -> Vec<String> {
    let Percentiles { p50, p99, max, .. } = result.latency_us;
    vec![
        result.measurement.to_owned(),
        human_bytes(u64_of(result.request_bytes)),
        result.threads.to_string(),
        result.in_flight.to_string(),
        human_count(result.per_second),
        human_bytes(crate::report::size::floor(result.bytes_per_second)),
        format!("{p50:.1}"),
        format!("{p99:.1}"),
        format!("{max:.1}"),
    ]
}

#[cfg(test)]
mod tests;
