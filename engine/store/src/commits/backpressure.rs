//! Delays writers to match the rate of the running flush.
//!
//! While sealed buffers flush, the active ones may fill just as fast as the flush progresses. The delay per
//! byte is the remaining time of the flush divided by the remaining write memory. Faster writers are delayed
//! in small steps, longer ones the less memory is left, so that they hardly ever wait for a whole flush.
//! While a quarter of it is left, no writer is delayed: the duration of a flush is unknown when it begins,
//! and most end before that. A flush that is due but has not begun counts as one at its beginning. If the
//! flush of a keyspace waits for jobs, only its own writers are delayed (`behind.rs`).
//!
//! **Invariants**
//! - No writer is delayed unless a flush or a spill runs or is due, or the flush of its keyspace waits for
//!   jobs.
//! - A single delay is at most `MAX_DELAY`, and the debt of large writes is capped at `MAX_DEBT_NANOS`:
//!   no writer waits long for a flush that has ended.

use std::time::Duration;

use crossbeam_utils::CachePadded;
use testudo_base::{
    KeyspaceId,
    striped::StripedCount,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};
use testudo_contract::Progress;
use testudo_env::Env;

use crate::{
    commits::{
        behind::{
            AHEAD_NANOS, BehindKeyspaces, FREE_PARTS_MIN, Fill, MAX_DEBT_NANOS, MAX_DELAY, MIN_DELAY_NANOS,
        },
        delays::{Delays, StallCause},
    },
    memory::shares::{hard_bound, removals_bound},
};

/// Nanoseconds per KiB of a spill: 250 MB a second.
const SPILL_PACE: u64 = 4 << 10;
/// Progress is counted in units of this many bytes, so that its product with a weight fits into 64 bits.
const PROGRESS_BYTES: u64 = 64;
/// Thousandths of a flush that its merges are: the end of it, syncs and publication, is not counted in bytes.
const MERGE_THOUSANDTHS: u64 = 900;
/// Until this many thousandths of a flush are done, the last flush predicts its duration better.
const EARLY_THOUSANDTHS: u64 = 50;
/// A flush that is slower than the last one, and still early, is expected to take longer than it has by one
/// part in this many.
const EARLY_PARTS: u64 = 2;
/// A flush delays no writer while more than one part in this many of the write memory is free.
const UNDELAYED_PARTS: u64 = 4;
/// A flush, or a job before it, counts as at least this far from its end.
const LEFT_NANOS_MIN: u64 = 1_000_000;
/// Duration of the first flush, before any was seen, and the shortest that is recorded.
const FIRST_FLUSH_NANOS: u64 = 500_000_000;
const FLUSH_NANOS_MIN: u64 = 1_000_000;
/// Delays per byte are in nanoseconds times this.
const RATE_SCALE: u64 = 1024;
/// The delay per byte is recomputed whenever the threads of a stripe have written this many bytes.
const RATE_STEP_BYTES: u64 = 32 << 10;

const _: () =
    assert!(MAX_DELAY.as_nanos() > MIN_DELAY_NANOS as u128, "a timer can sleep for the longest delay");
const _: () = assert!(MAX_DEBT_NANOS as u128 > MAX_DELAY.as_nanos(), "debts outlast a delay");

/// One buffer of a flush: its weight in the whole, and its progress.
pub type Part = (u64, Arc<Progress>);

/// The running flush that writers are delayed by.
#[derive(Debug)]
struct FlushUnderway {
    started: Duration,
    parts: Vec<Part>,
}

/// Buffers being spilled.
#[derive(Debug)]
struct Spill {
    progress: Arc<Progress>,
    bytes: u64,
}

#[derive(Debug)]
enum Underway {
    Flush(FlushUnderway),
    Spill(Spill),
}

impl FlushUnderway {
    /// Completed part, in thousandths.
    fn thousandths(&self) -> u64 {
        let whole: u64 = self.parts.iter().map(|(weight, _)| weight).sum();
        let done = |(weight, progress): &Part| {
            let (done, total) = progress.state();
            if total == 0 {
                0
            } else {
                weight * (done.min(total) / PROGRESS_BYTES) / (total / PROGRESS_BYTES + 1)
            }
        };
        let thousandths = self.parts.iter().map(done).sum::<u64>() * MERGE_THOUSANDTHS / whole.max(1);
        debug_assert!(thousandths <= MERGE_THOUSANDTHS, "no buffer is done more than completely");
        thousandths
    }
}

/// The amount of data waiting to be flushed, and the delays of writers that follow from it.
#[derive(Debug)]
pub struct Backpressure {
    /// Bytes of active write buffers.
    pub active_bytes: AtomicU64,
    /// Bytes of active write buffers except the largest, when they were last counted.
    other_active_bytes: AtomicU64,
    /// Bytes of sealed write buffers.
    sealed_bytes: AtomicU64,
    /// Maximum bytes of all write buffers.
    write_buffers: AtomicU64,
    /// Active bytes at which a seal may be due.
    check_at: AtomicU64,
    /// A seal check was requested and has not begun.
    seal_requested: AtomicBool,
    flush: Mutex<Option<Underway>>,
    /// Duration of the last flush, as the first estimate for the next.
    last_flush_nanos: AtomicU64,
    /// Keyspaces whose flush waits for jobs.
    pub behind: BehindKeyspaces,
    /// Delay per byte; 0 for none.
    nanos_per_byte_x1024: AtomicU64,
    /// Time at which the last admitted byte may be written, in nanoseconds of the clock.
    paid_until: CachePadded<AtomicU64>,
    /// Bytes of all commits.
    admitted: StripedCount,
    waiting: Mutex<()>,
    flushed: Condvar,
    pub delays: Delays,
    /// Number of waits for exhausted memory.
    pub stalls: AtomicU64,
}

impl Backpressure {
    pub fn new(write_buffers: u64) -> Self {
        Self {
            active_bytes: 0.into(),
            other_active_bytes: 0.into(),
            sealed_bytes: 0.into(),
            write_buffers: write_buffers.into(),
            check_at: 0.into(),
            seal_requested: false.into(),
            flush: Mutex::new(None),
            last_flush_nanos: FIRST_FLUSH_NANOS.into(),
            behind: BehindKeyspaces::default(),
            nanos_per_byte_x1024: 0.into(),
            paid_until: CachePadded::default(),
            admitted: StripedCount::default(),
            waiting: Mutex::new(()),
            flushed: Condvar::new(),
            delays: Delays::default(),
            stalls: 0.into(),
        }
    }

    /// Maximum bytes of all write buffers.
    pub fn write_buffers(&self) -> u64 {
        self.write_buffers.load(Relaxed)
    }

    /// Changes the maximum bytes of all write buffers, and has the seal check repeated.
    pub fn set_write_buffers(&self, bytes: u64) {
        debug_assert!(bytes > 0, "writes need memory");
        self.write_buffers.store(bytes, Relaxed);
        self.check_at.store(0, Relaxed);
    }

    /// Stores the counted bytes of active buffers, and of the largest of them.
    pub fn set_active(&self, active: u64, largest: u64) {
        debug_assert!(largest <= active, "the largest buffer is one of the active ones");
        self.active_bytes.store(active, Relaxed);
        self.other_active_bytes.store(active - largest, Relaxed);
    }

    /// Bytes of active buffers, and of the largest of them if all writes since the last count went to it.
    pub fn active(&self) -> (u64, u64) {
        let active = self.active_bytes.load(Relaxed);
        (active, active.saturating_sub(self.other_active_bytes.load(Relaxed)))
    }

    /// Stores the counted bytes of sealed buffers, and the active bytes at which a seal may be due.
    pub fn set_sealed(&self, sealed: u64, check_at: u64) {
        self.sealed_bytes.store(sealed, Relaxed);
        self.check_at.store(check_at, Relaxed);
    }

    /// Whether sealing active buffers may be due.
    #[inline]
    pub fn may_be_full(&self) -> bool {
        self.active_bytes.load(Relaxed) >= self.check_at.load(Relaxed)
    }

    /// Requests a seal check; returns `false` if one was already requested since the last check began.
    pub fn request_seal(&self) -> bool {
        !self.seal_requested.load(Relaxed) && !self.seal_requested.swap(true, Relaxed)
    }

    /// Records that a seal check begins.
    pub fn begin_seal_check(&self) {
        self.seal_requested.store(false, Relaxed);
    }

    /// Whether a flush or a spill runs.
    pub fn is_flushing(&self) -> bool {
        self.flush.lock().is_some()
    }

    /// Whether write memory is exhausted while a flush runs, or waits for jobs.
    pub fn is_blocked(&self) -> bool {
        self.is_over_bound() && (self.is_flushing() || self.behind.is_any())
    }

    /// Bytes of write buffers.
    pub fn used(&self) -> u64 {
        self.active_bytes.load(Relaxed) + self.sealed_bytes.load(Relaxed)
    }

    /// Whether the write buffers exceed their hard limit.
    #[inline]
    pub fn is_over_bound(&self) -> bool {
        self.used() >= hard_bound(self.write_buffers())
    }

    /// Whether removals are still accepted while a full device prevents flushes: up to
    /// [`removals_bound`] of write buffers with a bound of `write_buffers` bytes.
    pub fn has_memory_for_removals(&self, write_buffers: u64) -> bool {
        self.used() < removals_bound(write_buffers)
    }

    /// Records that a flush begins.
    pub fn flush_started(&self, env: &dyn Env, parts: Vec<Part>) {
        debug_assert!(!parts.is_empty(), "a flush has buffers");
        *self.flush.lock() = Some(Underway::Flush(FlushUnderway { started: env.monotonic(), parts }));
        self.update_delay_rate(env);
    }

    /// Records that `bytes` of flushed buffers are about to be spilled.
    pub fn spill_started(&self, progress: Arc<Progress>, bytes: u64) {
        debug_assert!(bytes > 0, "a spill has buffers");
        *self.flush.lock() = Some(Underway::Spill(Spill { progress, bytes }));
    }

    /// Records that a flush or a spill has ended, successfully or not.
    pub fn flush_ended(&self, env: &dyn Env) {
        let since = |started| nanos(env.monotonic().saturating_sub(started));
        match self.flush.lock().take() {
            Some(Underway::Flush(flush)) => {
                self.last_flush_nanos.store(since(flush.started).max(FLUSH_NANOS_MIN), Relaxed);
            }
            Some(Underway::Spill(_)) | None => {}
        }
        self.nanos_per_byte_x1024.store(0, Relaxed);
        self.wake_writers();
    }

    /// Wakes writers: there may be write memory again.
    pub fn wake_writers(&self) {
        let _waiting = self.waiting.lock();
        self.flushed.notify_all();
    }

    /// Admits a write of `bytes`, delaying it if necessary.
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

    /// Delays a write of `bytes` while a flush is due that has no delay of its own yet, as if it were at its
    /// beginning. Otherwise writers would fill the memory that is to last until its end.
    #[inline]
    pub fn admit_before_flush(&self, env: &dyn Env, bytes: u64) {
        let memory = self.write_buffers();
        let free_bytes = memory.saturating_sub(self.used());
        if free_bytes <= memory / UNDELAYED_PARTS && self.nanos_per_byte_x1024.load(Relaxed) == 0 {
            let left = self.last_flush_nanos.load(Relaxed);
            self.delay_write(env, bytes, self.rate_for(left));
        }
    }

    /// Delays a write of `bytes` to a keyspace whose flush waits for jobs. `own`: bytes of its write buffers.
    /// Returns the delay.
    #[cold]
    pub fn admit_behind(&self, env: &dyn Env, keyspace: KeyspaceId, bytes: u64, own: u64) -> Duration {
        let fill = Fill { write_buffers: self.write_buffers(), used: self.used(), own };
        let delay = self.behind.delay(keyspace, bytes, fill, env.monotonic());
        if !delay.is_zero() {
            env.sleep(delay);
            self.delays.record(delay, StallCause::Jobs);
        }
        delay
    }

    fn update_delay_rate(&self, env: &dyn Env) {
        let rate = self.flush.lock().as_ref().map_or(0, |flush| self.delay_per_byte(env, flush));
        self.nanos_per_byte_x1024.store(rate, Relaxed);
    }

    /// Delay per byte in nanoseconds × [`RATE_SCALE`].
    fn delay_per_byte(&self, env: &dyn Env, underway: &Underway) -> u64 {
        let since = |started| nanos(env.monotonic().saturating_sub(started));
        let memory = self.write_buffers();
        let left = match underway {
            Underway::Flush(_) if memory.saturating_sub(self.used()) > memory / UNDELAYED_PARTS => return 0,
            Underway::Flush(flush) => {
                let elapsed = since(flush.started);
                let expected = match flush.thousandths() {
                    0..EARLY_THOUSANDTHS => {
                        self.last_flush_nanos.load(Relaxed).max(elapsed + elapsed / EARLY_PARTS)
                    }
                    thousandths => elapsed / thousandths * 1000,
                };
                expected.saturating_sub(elapsed)
            }
            Underway::Spill(Spill { progress, bytes }) => {
                (bytes.saturating_sub(progress.state().0) >> 10).saturating_mul(SPILL_PACE)
            }
        };
        self.rate_for(left)
    }

    /// Delay per byte with which writers fill the free memory in `left` nanoseconds, × [`RATE_SCALE`].
    fn rate_for(&self, left: u64) -> u64 {
        let memory = self.write_buffers();
        let free_bytes = memory.saturating_sub(self.used()).max(memory / FREE_PARTS_MIN).max(1);
        left.max(LEFT_NANOS_MIN).saturating_mul(RATE_SCALE) / free_bytes
    }

    /// `rate`: see [`Backpressure::delay_per_byte`].
    fn delay_write(&self, env: &dyn Env, bytes: u64, rate: u64) {
        debug_assert!(rate > 0, "only a behind flush delays writers");
        let now = nanos(env.monotonic());
        let cost = bytes.saturating_mul(rate) / RATE_SCALE;
        let earliest = now.saturating_sub(AHEAD_NANOS);
        self.paid_until.fetch_max(earliest, Relaxed);
        let until = self.paid_until.fetch_add(cost, Relaxed) + cost;
        if until > now + MAX_DEBT_NANOS {
            self.paid_until.fetch_min(now + MAX_DEBT_NANOS, Relaxed);
        }
        if until > now + MIN_DELAY_NANOS {
            let delay = Duration::from_nanos(until - now).min(MAX_DELAY);
            debug_assert!(delay.as_nanos() >= u128::from(MIN_DELAY_NANOS), "shorter delays accumulate");
            env.sleep(delay);
            self.delays.record(delay, StallCause::Flush);
            self.update_delay_rate(env);
        }
    }

    /// Waits for a flush to end, at most `timeout`, if write memory is exhausted.
    pub fn wait_for_memory(&self, env: &dyn Env, timeout: Duration) {
        let started = env.monotonic();
        if self.wait_for_flush(timeout, || self.is_blocked()) {
            self.stalls.fetch_add(1, Relaxed);
            self.delays.record(env.monotonic().saturating_sub(started), StallCause::Memory);
        }
    }

    /// Waits for a keyspace that exceeds its own share, at most `timeout`. Returns the delay.
    pub fn wait_for_own_memory(&self, env: &dyn Env, timeout: Duration) -> Duration {
        let started = env.monotonic();
        if !self.wait_for_flush(timeout, || self.flush.lock().is_some()) {
            // The background is about to begin, or busy with other work.
            env.sleep(Duration::from_millis(1));
        }
        let delay = env.monotonic().saturating_sub(started);
        self.delays.record(delay, StallCause::OwnShare);
        delay
    }

    /// Waits for a flush to end, at most `timeout`; returns `false` at once if `is_needed` is false.
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

#[cfg(test)]
mod tests;
