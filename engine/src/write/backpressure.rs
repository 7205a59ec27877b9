//! How writers are slowed down to the throttle of the background, smoothly.
//!
//! While sealed buffers flush, the active ones may fill just as fast as the flush comes to its end: the time
//! that the flush still needs, divided by the write memory that is left, is the time that each byte must
//! take. Writers that are ahead of that throttle rest in small steps; only when there is no room at all do
//! they wait for the flush itself. As long as a quarter of the memory is left, nobody rests: how long a flush
//! takes is not known when it begins, and most end before.
//!
//! **Invariants**
//! - Nobody rests while nothing flushes.
//! - A single rest is at most [`MAX_REST`].

use std::time::Duration;

use crossbeam_utils::CachePadded;
use testudo_base::sync::{
    Arc, Condvar, Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};
use testudo_contract::Progress;
use testudo_env::Env;

/// Rests shorter than this are saved up: a timer cannot do them.
const MIN_REST_NANOS: u64 = 300_000;
/// Longest single rest.
const MAX_REST: Duration = Duration::from_millis(5);
/// The throttle is computed anew whenever this many bytes were written.
const THROTTLE_STEP_BYTES: u64 = 32 << 10;

/// One buffer of a flush: its share of the whole, and how far it has come.
pub(crate) type Part = (u64, Arc<Progress>);

#[derive(Debug)]
struct FlushUnderway {
    started: Duration,
    parts: Vec<Part>,
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

/// Debt of the background, and what writers pay for it.
#[derive(Debug)]
pub(crate) struct Backpressure {
    /// Bytes of active write buffers.
    pub(crate) active_bytes: AtomicU64,
    /// Bytes of sealed write buffers.
    sealed_bytes: AtomicU64,
    /// Bytes that write buffers may have together.
    write_buffers: AtomicU64,
    /// Active bytes at which it may be time to seal.
    check_at: AtomicU64,
    /// Somebody saw that it may be time, and nobody has looked since.
    was_seen: AtomicBool,
    flush: Mutex<Option<FlushUnderway>>,
    /// Duration of the last flush, as a first guess for the next.
    last_flush_nanos: AtomicU64,
    nanos_per_byte_x1024: AtomicU64,
    /// When the byte that was admitted last may be written, in nanoseconds of the clock.
    paid_until: CachePadded<AtomicU64>,
    /// Bytes of all commits. On a line of its own, for every commit changes it.
    admitted: CachePadded<AtomicU64>,
    waiting: Mutex<()>,
    flushed: Condvar,
    pub(crate) throttled_micros: AtomicU64,
    pub(crate) stalls: AtomicU64,
    pub(crate) max_stall_micros: AtomicU64,
}

impl Backpressure {
    pub(crate) fn new(write_buffers: u64) -> Self {
        Self {
            active_bytes: 0.into(),
            sealed_bytes: 0.into(),
            write_buffers: write_buffers.into(),
            check_at: 0.into(),
            was_seen: false.into(),
            flush: Mutex::new(None),
            last_flush_nanos: 500_000_000.into(),
            nanos_per_byte_x1024: 0.into(),
            paid_until: CachePadded::default(),
            admitted: CachePadded::default(),
            waiting: Mutex::new(()),
            flushed: Condvar::new(),
            throttled_micros: 0.into(),
            stalls: 0.into(),
            max_stall_micros: 0.into(),
        }
    }

    /// Bytes that write buffers may have together.
    pub(crate) fn write_buffers(&self) -> u64 {
        self.write_buffers.load(Relaxed)
    }

    /// Changes what write buffers may have together; whether it is time to seal is looked at again.
    pub(crate) fn set_write_buffers(&self, bytes: u64) {
        self.write_buffers.store(bytes, Relaxed);
        self.check_at.store(0, Relaxed);
    }

    /// Takes over what was counted: bytes of active and of sealed buffers, and the active bytes at which it
    /// may be time to seal.
    pub(crate) fn set_counted(&self, active: u64, sealed: u64, check_at: u64) {
        self.active_bytes.store(active, Relaxed);
        self.sealed_bytes.store(sealed, Relaxed);
        self.check_at.store(check_at, Relaxed);
    }

    /// Whether it may be time to seal active buffers.
    #[inline]
    pub(crate) fn may_be_full(&self) -> bool {
        self.active_bytes.load(Relaxed) >= self.check_at.load(Relaxed)
    }

    /// Whether the caller is the first who sees that it may be time to seal, since somebody looked.
    pub(crate) fn is_first_to_see(&self) -> bool {
        !self.was_seen.load(Relaxed) && !self.was_seen.swap(true, Relaxed)
    }

    /// Somebody is about to look whether it is time to seal.
    pub(crate) fn checking(&self) {
        self.was_seen.store(false, Relaxed);
    }

    /// Whether there is no room for writers at all.
    pub(crate) fn is_blocked(&self) -> bool {
        self.is_over_bound() && self.flush.lock().is_some()
    }

    /// Bytes of write buffers.
    pub(crate) fn used(&self) -> u64 {
        self.active_bytes.load(Relaxed) + self.sealed_bytes.load(Relaxed)
    }

    /// Whether the write buffers hold more than they ever should.
    #[inline]
    pub(crate) fn is_over_bound(&self) -> bool {
        self.used() >= self.write_buffers() / 16 * 17
    }

    /// Whether removals may still come while a full device keeps everything from being flushed: a sixteenth
    /// more than the bound.
    pub(crate) fn has_memory_for_removals(&self) -> bool {
        self.used() < self.write_buffers() / 16 * 18
    }

    /// A flush begins.
    pub(crate) fn flush_started(&self, env: &dyn Env, parts: Vec<Part>) {
        *self.flush.lock() = Some(FlushUnderway { started: env.monotonic(), parts });
    }

    /// A flush has ended, well or not.
    pub(crate) fn flush_ended(&self, env: &dyn Env) {
        if let Some(flush) = self.flush.lock().take() {
            let nanos = nanos(env.monotonic().saturating_sub(flush.started));
            self.last_flush_nanos.store(nanos.max(1_000_000), Relaxed);
        }
        self.nanos_per_byte_x1024.store(0, Relaxed);
        let _waiting = self.waiting.lock();
        self.flushed.notify_all();
    }

    /// Lets a write of `bytes` go on now or after a rest.
    #[inline]
    pub(crate) fn admit(&self, env: &dyn Env, bytes: u64) {
        let before = self.admitted.fetch_add(bytes, Relaxed);
        if (before ^ (before + bytes)) >= THROTTLE_STEP_BYTES {
            self.set_throttle(env);
        }
        let throttle = self.nanos_per_byte_x1024.load(Relaxed);
        if throttle > 0 {
            self.rest(env, bytes, throttle);
        }
    }

    fn set_throttle(&self, env: &dyn Env) {
        let throttle = self.flush.lock().as_ref().map_or(0, |flush| self.throttle(env, flush));
        self.nanos_per_byte_x1024.store(throttle, Relaxed);
    }

    fn throttle(&self, env: &dyn Env, flush: &FlushUnderway) -> u64 {
        let elapsed = nanos(env.monotonic().saturating_sub(flush.started));
        let thousandths = flush.thousandths();
        let expected = match thousandths {
            0..50 => self.last_flush_nanos.load(Relaxed).max(elapsed + elapsed / 2),
            _ => elapsed / thousandths * 1000,
        };
        let left = expected.saturating_sub(elapsed).max(1_000_000);
        let memory = self.write_buffers();
        let room = memory.saturating_sub(self.used()).max(memory / 128).max(1);
        if room > memory / 4 { 0 } else { left.saturating_mul(1024) / room }
    }

    fn rest(&self, env: &dyn Env, bytes: u64, throttle: u64) {
        let now = nanos(env.monotonic());
        let cost = bytes.saturating_mul(throttle) / 1024;
        // A writer that was slow by itself may be ahead for a moment, but does not save up without end.
        let floor = now.saturating_sub(10_000_000);
        self.paid_until.fetch_max(floor, Relaxed);
        let until = self.paid_until.fetch_add(cost, Relaxed) + cost;
        if until > now + MIN_REST_NANOS {
            let rest = Duration::from_nanos(until - now).min(MAX_REST);
            env.sleep(rest);
            self.record_pause(rest);
        }
    }

    fn record_pause(&self, rest: Duration) {
        let micros = nanos(rest) / 1000;
        self.throttled_micros.fetch_add(micros, Relaxed);
        self.max_stall_micros.fetch_max(micros, Relaxed);
    }

    /// Waits until a flush has ended, at most `timeout`, if there is no room.
    pub(crate) fn wait_for_memory(&self, env: &dyn Env, timeout: Duration) {
        let started = env.monotonic();
        if self.wait_for_flush(timeout, || self.is_blocked()) {
            self.stalls.fetch_add(1, Relaxed);
            self.record_pause(env.monotonic().saturating_sub(started));
        }
    }

    /// Waits on behalf of a keyspace that has outgrown its own share, at most `timeout`.
    pub(crate) fn wait_for_own_memory(&self, env: &dyn Env, timeout: Duration) {
        let started = env.monotonic();
        if !self.wait_for_flush(timeout, || self.flush.lock().is_some()) {
            // The background is about to begin, or busy with something else.
            env.sleep(Duration::from_millis(1));
        }
        self.record_pause(env.monotonic().saturating_sub(started));
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
