//! Division of a store's memory over time.
//!
//! **Invariants**
//! - The sampling thread ends with [`MemorySampler::stop`], or when the sampler is dropped.

use std::{
    mem,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use testudo::{Db, DbStats, Error, Result};
use testudo_env::{Env as _, RealEnv, Thread};

use crate::report::line_chart::{Line, LineChart};

const INTERVAL: Duration = Duration::from_millis(200);

/// Name and value of a line.
type Series = (&'static str, fn(&DbStats) -> u64);
const SERIES: [Series; 4] = [
    ("write memory limit", |stats| stats.write_memory.bytes),
    ("memtables", |stats| stats.memory.memtable_bytes),
    ("record cache", |stats| stats.record_cache.used_bytes),
    ("page cache", |stats| stats.page_cache.used_bytes),
];

/// State shared by the thread and its owner.
#[derive(Debug, Default)]
struct Samples {
    is_over: AtomicBool,
    seen: Mutex<Vec<(f64, DbStats)>>,
}

/// Samples the statistics of a store until stopped.
#[derive(Debug)]
pub(super) struct MemorySampler {
    samples: Arc<Samples>,
    thread: Option<Box<dyn Thread>>,
}

impl MemorySampler {
    pub(super) fn start(env: &Arc<RealEnv>, db: &Db) -> Result<Self> {
        let samples = Arc::new(Samples::default());
        let (shared, db, clock) = (Arc::clone(&samples), db.clone(), Arc::clone(env));
        let began = env.monotonic();
        let look = move || {
            while !shared.is_over.load(Relaxed) {
                let sample = ((clock.monotonic() - began).as_secs_f64(), db.stats());
                shared.seen.lock().unwrap_or_else(PoisonError::into_inner).push(sample);
                clock.sleep(INTERVAL);
            }
        };
        let thread = env.spawn("bench-memory", Box::new(look));
        let thread = Some(thread.map_err(|error| Error::io("a thread that samples memory", error))?);
        Ok(Self { samples, thread })
    }

    /// Stops sampling and returns the samples as a chart.
    pub(super) fn stop(mut self) -> LineChart {
        self.end();
        let samples = mem::take(&mut *self.samples.seen.lock().unwrap_or_else(PoisonError::into_inner));
        #[expect(clippy::cast_precision_loss, reason = "precision is irrelevant in a chart")]
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let line = |&(name, value): &Series| Line {
            name: name.to_owned(),
            points: samples.iter().map(|(second, stats)| (*second, mib(value(stats)))).collect(),
        };
        LineChart {
            title: "Division of memory over load, A, B, C, E, F".to_owned(),
            x_name: "seconds".to_owned(),
            y_name: "MiB".to_owned(),
            x_doubles: false,
            lines: SERIES.iter().map(line).collect(),
        }
    }

    fn end(&mut self) {
        self.samples.is_over.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for MemorySampler {
    fn drop(&mut self) {
        self.end();
    }
}
