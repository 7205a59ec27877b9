//! Delays writers to match the rate of the running flush, and of the jobs that it waits for.
//!
//! While sealed buffers flush, the active ones may fill just as fast as the flush comes to its end: the time
//! that the flush still needs, divided by the write memory that is left, is the time that each byte must
//! take. Writers that are faster are delayed in small steps. They wait for the end of the flush only when no
//! write memory is left. As long as a quarter of it is left, nobody is delayed: how long a flush takes is not
//! known when it begins, and most end before. Where jobs have to catch up first, delays begin with them.
//!
//! **Invariants**
//! - Nobody is delayed while nothing flushes, and no flush waits for a job.
//! - A single delay is at most [`MAX_DELAY`], and what large writes owe is forgotten beyond
//!   [`MAX_DEBT_NANOS`]: nobody waits for long because of a flush that has ended.

use std::time::Duration;

use crossbeam_utils::CachePadded;
use testudo_base::{
    striped::StripedCount,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};
use testudo_contract::Progress;
use testudo_env::Env;

/// Shorter delays add up until they are this long: a timer cannot sleep for less.
const MIN_DELAY_NANOS: u64 = 300_000;
/// Longest single delay.
const MAX_DELAY: Duration = Duration::from_millis(5);
/// By so much the writes that were admitted may be ahead of the time that they should have taken.
const MAX_DEBT_NANOS: u64 = 100_000_000;
/// Bytes that a job must have written for its pace to be known.
const PACE_BYTES: u64 = 1 << 20;
/// The pace of jobs before any was seen: 250 MB a second.
const FIRST_PACE: u64 = 4 << 10;
/// The delay of a byte is computed anew whenever the threads of a stripe have written this many bytes.
const RATE_STEP_BYTES: u64 = 32 << 10;

/// One buffer of a flush: its share of the whole, and how far it has come.
pub type Part = (u64, Arc<Progress>);

/// What writers wait for.
#[derive(Debug)]
struct FlushUnderway {
    started: Duration,
    parts: Vec<Part>,
}

/// A job that is done before the next flush begins.
#[derive(Debug)]
struct CatchUp {
    started: Duration,
    job: Arc<Progress>,
    /// What of it had been done.
    done_before: u64,
    /// To be written until the end of the flush, by this job, others after it, and the flush.
    bytes: u64,
}

impl CatchUp {
    /// Bytes that were done since it began.
    fn done(&self) -> u64 {
        self.job.state().0.saturating_sub(self.done_before)
    }

    /// Nanoseconds for each KiB since it began, if that can be told.
    fn pace(&self, elapsed: u64) -> Option<u64> {
        let done = self.done();
        (done >= PACE_BYTES).then(|| elapsed / (done >> 10))
    }

    /// Nanoseconds until the end of the flush. `pace`: nanoseconds for each KiB, as jobs before have shown.
    fn nanos_left(&self, elapsed: u64, pace: u64) -> u64 {
        let left = self.bytes.saturating_sub(self.done());
        (left >> 10).saturating_mul(self.pace(elapsed).unwrap_or(pace))
    }
}

#[derive(Debug)]
enum Underway {
    Flush(FlushUnderway),
    CatchUp(CatchUp),
}

impl FlushUnderway {
    /// How much is done, in thousandths.
    fn thousandths(&self) -> u64 {
        let whole: u64 = self.parts.iter().map(|(weight, _)| weight).sum();
        let done = |(weight, progress): &Part| {
            let (done, total) = progress.state();
            if total == 0 { 0 } else { weight * (done.min(total) / 64) / (total / 64 + 1) }
        };
        // The end of a flush, syncs and publication, is not counted in bytes: a tenth is kept for it.
        self.parts.iter().map(done).sum::<u64>() * 900 / whole.max(1)
    }
}

/// How much waits to be flushed, and the delays of writers that follow from it.
#[derive(Debug)]
pub struct Backpressure {
    /// Bytes of active write buffers.
    pub active_bytes: AtomicU64,
    /// Bytes of sealed write buffers.
    sealed_bytes: AtomicU64,
    /// Bytes that write buffers may have together.
    write_buffers: AtomicU64,
    /// Active bytes at which it may be time to seal.
    check_at: AtomicU64,
    /// Somebody has asked for a check whether it is time to seal, and none has begun since.
    seal_requested: AtomicBool,
    flush: Mutex<Option<Underway>>,
    /// Duration of the last flush, as a first guess for the next.
    last_flush_nanos: AtomicU64,
    /// Nanoseconds that jobs have taken for each KiB lately.
    job_pace: AtomicU64,
    /// By how much each byte is delayed; 0: not at all.
    nanos_per_byte_x1024: AtomicU64,
    /// When the byte that was admitted last may be written, in nanoseconds of the clock.
    paid_until: CachePadded<AtomicU64>,
    /// Bytes of all commits.
    admitted: StripedCount,
    waiting: Mutex<()>,
    flushed: Condvar,
    pub throttled_micros: AtomicU64,
    pub stalls: AtomicU64,
    pub max_stall_micros: AtomicU64,
}

impl Backpressure {
    pub fn new(write_buffers: u64) -> Self {
        Self {
            active_bytes: 0.into(),
            sealed_bytes: 0.into(),
            write_buffers: write_buffers.into(),
            check_at: 0.into(),
            seal_requested: false.into(),
            flush: Mutex::new(None),
            last_flush_nanos: 500_000_000.into(),
            job_pace: FIRST_PACE.into(),
            nanos_per_byte_x1024: 0.into(),
            paid_until: CachePadded::default(),
            admitted: StripedCount::default(),
            waiting: Mutex::new(()),
            flushed: Condvar::new(),
            throttled_micros: 0.into(),
            stalls: 0.into(),
            max_stall_micros: 0.into(),
        }
    }

    /// Bytes that write buffers may have together.
    pub fn write_buffers(&self) -> u64 {
        self.write_buffers.load(Relaxed)
    }

    /// Changes what write buffers may have together; whether it is time to seal is looked at again.
    pub fn set_write_buffers(&self, bytes: u64) {
        self.write_buffers.store(bytes, Relaxed);
        self.check_at.store(0, Relaxed);
    }

    /// Takes over what was counted: bytes of active and of sealed buffers, and the active bytes at which it
    /// may be time to seal.
    pub fn set_counted(&self, active: u64, sealed: u64, check_at: u64) {
        self.active_bytes.store(active, Relaxed);
        self.sealed_bytes.store(sealed, Relaxed);
        self.check_at.store(check_at, Relaxed);
    }

    /// Whether it may be time to seal active buffers.
    #[inline]
    pub fn may_be_full(&self) -> bool {
        self.active_bytes.load(Relaxed) >= self.check_at.load(Relaxed)
    }

    /// Asks for a check whether it is time to seal; `false` if somebody else has, since the last one began.
    pub fn request_seal(&self) -> bool {
        !self.seal_requested.load(Relaxed) && !self.seal_requested.swap(true, Relaxed)
    }

    /// A check begins whether it is time to seal.
    pub fn begin_seal_check(&self) {
        self.seal_requested.store(false, Relaxed);
    }

    /// Whether a flush runs.
    pub fn is_flushing(&self) -> bool {
        self.flush.lock().is_some()
    }

    /// Whether no write memory is left while a flush runs.
    pub fn is_blocked(&self) -> bool {
        self.is_over_bound() && self.is_flushing()
    }

    /// Bytes of write buffers.
    pub fn used(&self) -> u64 {
        self.active_bytes.load(Relaxed) + self.sealed_bytes.load(Relaxed)
    }

    /// Whether the write buffers hold more than they ever should.
    #[inline]
    pub fn is_over_bound(&self) -> bool {
        self.used() >= self.write_buffers() / 16 * 17
    }

    /// Whether removals may still come while a full device keeps everything from being flushed: a sixteenth
    /// more than the bound of write buffers that may have `write_buffers` bytes.
    pub fn has_memory_for_removals(&self, write_buffers: u64) -> bool {
        self.used() < write_buffers / 16 * 18
    }

    /// A flush begins.
    pub fn flush_started(&self, env: &dyn Env, parts: Vec<Part>) {
        *self.flush.lock() = Some(Underway::Flush(FlushUnderway { started: env.monotonic(), parts }));
    }

    /// A job is done before the next flush begins. `bytes` are to be written until the end of that, in all.
    pub fn catch_up_started(&self, env: &dyn Env, job: Arc<Progress>, bytes: u64) {
        let done_before = job.state().0;
        let catch_up = CatchUp { started: env.monotonic(), job, done_before, bytes };
        *self.flush.lock() = Some(Underway::CatchUp(catch_up));
    }

    /// A flush has ended, well or not, or a job before it.
    pub fn flush_ended(&self, env: &dyn Env) {
        let since = |started| nanos(env.monotonic().saturating_sub(started));
        match self.flush.lock().take() {
            Some(Underway::Flush(flush)) => {
                self.last_flush_nanos.store(since(flush.started).max(1_000_000), Relaxed);
            }
            Some(Underway::CatchUp(catch_up)) => {
                if let Some(pace) = catch_up.pace(since(catch_up.started)) {
                    self.job_pace.store(u64::midpoint(self.job_pace.load(Relaxed), pace), Relaxed);
                }
            }
            None => {}
        }
        self.nanos_per_byte_x1024.store(0, Relaxed);
        self.wake_writers();
    }

    /// There may be write memory again.
    pub fn wake_writers(&self) {
        let _waiting = self.waiting.lock();
        self.flushed.notify_all();
    }

    /// Lets a write of `bytes` go on now or after a delay.
    #[inline]
    pub fn admit(&self, env: &dyn Env, bytes: u64) {
        let before = self.admitted.add(bytes);
        if (before ^ (before + bytes)) >= RATE_STEP_BYTES {
            self.update_delay_rate(env);
        }
        let rate = self.nanos_per_byte_x1024.load(Relaxed);
        if rate > 0 {
            self.delay_write(env, bytes, rate);
        }
    }

    fn update_delay_rate(&self, env: &dyn Env) {
        let rate = self.flush.lock().as_ref().map_or(0, |flush| self.delay_per_byte(env, flush));
        self.nanos_per_byte_x1024.store(rate, Relaxed);
    }

    /// In nanoseconds × 1024.
    fn delay_per_byte(&self, env: &dyn Env, underway: &Underway) -> u64 {
        let since = |started| nanos(env.monotonic().saturating_sub(started));
        let memory = self.write_buffers();
        let free_bytes = memory.saturating_sub(self.used()).max(memory / 128).max(1);
        let left = match underway {
            Underway::Flush(_) if free_bytes > memory / 4 => return 0,
            Underway::Flush(flush) => {
                let elapsed = since(flush.started);
                let expected = match flush.thousandths() {
                    0..50 => self.last_flush_nanos.load(Relaxed).max(elapsed + elapsed / 2),
                    thousandths => elapsed / thousandths * 1000,
                };
                expected.saturating_sub(elapsed)
            }
            Underway::CatchUp(catch_up) => {
                catch_up.nanos_left(since(catch_up.started), self.job_pace.load(Relaxed))
            }
        };
        left.max(1_000_000).saturating_mul(1024) / free_bytes
    }

    /// `rate`: as of [`Backpressure::delay_per_byte`].
    fn delay_write(&self, env: &dyn Env, bytes: u64, rate: u64) {
        let now = nanos(env.monotonic());
        let cost = bytes.saturating_mul(rate) / 1024;
        // A writer that was slow by itself may be faster for a moment: by 10 ms, and no more.
        let earliest = now.saturating_sub(10_000_000);
        self.paid_until.fetch_max(earliest, Relaxed);
        let until = self.paid_until.fetch_add(cost, Relaxed) + cost;
        if until > now + MAX_DEBT_NANOS {
            self.paid_until.fetch_min(now + MAX_DEBT_NANOS, Relaxed);
        }
        if until > now + MIN_DELAY_NANOS {
            let delay = Duration::from_nanos(until - now).min(MAX_DELAY);
            env.sleep(delay);
            self.record_delay(delay);
        }
    }

    fn record_delay(&self, delay: Duration) {
        let micros = nanos(delay) / 1000;
        self.throttled_micros.fetch_add(micros, Relaxed);
        self.max_stall_micros.fetch_max(micros, Relaxed);
    }

    /// Waits until a flush has ended, at most `timeout`, if no write memory is left.
    pub fn wait_for_memory(&self, env: &dyn Env, timeout: Duration) {
        let started = env.monotonic();
        if self.wait_for_flush(timeout, || self.is_blocked()) {
            self.stalls.fetch_add(1, Relaxed);
            self.record_delay(env.monotonic().saturating_sub(started));
        }
    }

    /// Waits on behalf of a keyspace that has outgrown its own share, at most `timeout`.
    pub fn wait_for_own_memory(&self, env: &dyn Env, timeout: Duration) {
        let started = env.monotonic();
        if !self.wait_for_flush(timeout, || self.flush.lock().is_some()) {
            // The background is about to begin, or busy with something else.
            env.sleep(Duration::from_millis(1));
        }
        self.record_delay(env.monotonic().saturating_sub(started));
    }

    /// Waits until a flush has ended, at most `timeout`; `false` at once if there is no reason to.
    fn wait_for_flush(&self, timeout: Duration, is_needed: impl FnOnce() -> bool) -> bool {
        let mut waiting = self.waiting.lock();
        if !is_needed() {
            return false;
        }
        self.flushed.wait_for(&mut waiting, timeout);
        true
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
