//! Keyspaces whose flush waits for jobs, and the delays of their writers.
//!
//! The delay per byte is the time that the jobs still need, divided by the write memory that the keyspace may
//! still fill. Writers of other keyspaces are not delayed: a keyspace that is behind may fill half of the
//! write memory, unless it is nearly alone.
//!
//! **Invariants**
//! - A single delay is at most `MAX_DELAY`, and the debt of large writes is capped: no writer waits long
//!   for jobs that have ended.

use std::{collections::BTreeMap, time::Duration};

use testudo_base::{
    KeyspaceId,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};
use testudo_contract::Progress;

/// Shorter delays accumulate up to this length: a timer cannot sleep for less.
pub(super) const MIN_DELAY_NANOS: u64 = 300_000;
/// Longest single delay.
pub(super) const MAX_DELAY: Duration = Duration::from_millis(5);
/// Maximum nanoseconds by which admitted writes may run ahead of their schedule.
pub(super) const MAX_DEBT_NANOS: u64 = 100_000_000;
/// A writer that was slow by itself may run ahead by this much.
pub(super) const AHEAD_NANOS: u64 = 10_000_000;
/// A keyspace that is behind may fill one part in this many of the write memory.
const OWN_PARTS: u64 = 2;
/// At least one part in this many of the write memory counts as free, which bounds the delay per byte. The
/// smaller the free part, the slower the writers: they fill it without ever waiting for all of it.
pub(super) const FREE_PARTS_MIN: u64 = 8192;
/// A keyspace with this many of four parts of all buffered bytes is nearly alone.
const ALONE_QUARTERS: u64 = 3;
/// Delays per byte are in nanoseconds times this.
const RATE_SCALE: u64 = 1024;

/// A keyspace that is behind.
#[derive(Debug)]
struct Behind {
    /// Bytes that jobs read until its buffer may be flushed.
    bytes: u64,
    /// Bytes of that buffer.
    buffer_bytes: u64,
    /// Its jobs in progress.
    jobs: Vec<Arc<Progress>>,
    /// Time that those need for a KiB, in nanoseconds.
    nanos_per_kib: u64,
    /// Time at which the last admitted byte may be written, in nanoseconds of the clock.
    paid_until: u64,
}

impl Behind {
    /// Nanoseconds until the buffer is flushed.
    fn nanos_left(&self) -> u64 {
        let (mut done, mut total) = (0u64, 0u64);
        for (job_done, job_total) in self.jobs.iter().map(|job| job.state()) {
            done += job_done.min(job_total);
            total += job_total;
        }
        // A job may read more than is needed, and counts when it ends.
        let left = self.bytes.max(total).saturating_sub(done) + self.buffer_bytes;
        (left >> 10).saturating_mul(self.nanos_per_kib)
    }
}

/// Write memory, as a writer of a keyspace sees it.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    /// Maximum bytes of all write buffers.
    pub write_buffers: u64,
    /// Bytes of all write buffers.
    pub used: u64,
    /// Bytes of this keyspace's.
    pub own: u64,
}

impl Fill {
    /// Bytes that the keyspace may still fill.
    fn free_bytes(self) -> u64 {
        let free = self.write_buffers.saturating_sub(self.used);
        let is_alone = self.own.saturating_mul(4) >= self.used.saturating_mul(ALONE_QUARTERS);
        let own_free = (self.write_buffers / OWN_PARTS).saturating_sub(self.own);
        let free = if is_alone { free } else { free.min(own_free) };
        free.max(self.write_buffers / FREE_PARTS_MIN).max(1)
    }
}

/// All keyspaces whose flush waits for jobs.
#[derive(Debug, Default)]
pub struct BehindKeyspaces {
    is_any: AtomicBool,
    keyspaces: Mutex<BTreeMap<KeyspaceId, Behind>>,
}

impl BehindKeyspaces {
    /// Whether there is any.
    #[inline]
    pub fn is_any(&self) -> bool {
        self.is_any.load(Relaxed)
    }

    /// Number of them.
    pub fn count(&self) -> usize {
        self.keyspaces.lock().len()
    }

    /// Whether the flush of this keyspace waits for jobs.
    pub fn contains(&self, keyspace: KeyspaceId) -> bool {
        self.is_any() && self.keyspaces.lock().contains_key(&keyspace)
    }

    /// Records that jobs must read `bytes` before a buffer of `buffer_bytes` of the keyspace is flushed, and
    /// its jobs in progress.
    pub fn set(
        &self,
        keyspace: KeyspaceId,
        (bytes, buffer_bytes): (u64, u64),
        jobs: Vec<Arc<Progress>>,
        nanos_per_kib: u64,
    ) {
        debug_assert!(bytes > 0, "a flush waits only for jobs with work");
        let mut keyspaces = self.keyspaces.lock();
        let paid_until = keyspaces.get(&keyspace).map_or(0, |before| before.paid_until);
        keyspaces.insert(keyspace, Behind { bytes, buffer_bytes, jobs, nanos_per_kib, paid_until });
        self.is_any.store(true, Relaxed);
    }

    /// Keeps only those for which `is_behind` holds.
    pub fn retain(&self, is_behind: impl Fn(KeyspaceId) -> bool) {
        let mut keyspaces = self.keyspaces.lock();
        keyspaces.retain(|keyspace, _| is_behind(*keyspace));
        self.is_any.store(!keyspaces.is_empty(), Relaxed);
    }

    /// Returns the time by which a write of `bytes` to the keyspace is delayed.
    pub fn delay(&self, keyspace: KeyspaceId, bytes: u64, fill: Fill, now: Duration) -> Duration {
        let mut keyspaces = self.keyspaces.lock();
        let Some(behind) = keyspaces.get_mut(&keyspace) else { return Duration::ZERO };
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX / 2);
        let rate = behind.nanos_left().saturating_mul(RATE_SCALE) / fill.free_bytes();
        let cost = bytes.saturating_mul(rate) / RATE_SCALE;
        let until = behind.paid_until.max(now.saturating_sub(AHEAD_NANOS)).saturating_add(cost);
        behind.paid_until = until.min(now + MAX_DEBT_NANOS);
        if behind.paid_until > now + MIN_DELAY_NANOS {
            Duration::from_nanos(behind.paid_until - now).min(MAX_DELAY)
        } else {
            Duration::ZERO
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn delay_of_mib(behind: &BehindKeyspaces, fill: Fill) -> Duration {
        let mut now = Duration::from_secs(1);
        let mut delayed = Duration::ZERO;
        for _ in 0..1024 {
            let delay = behind.delay(KeyspaceId(1), 1 << 10, fill, now);
            assert!(delay <= MAX_DELAY);
            delayed += delay;
            now += delay;
        }
        delayed
    }

    #[test]
    fn writers_fill_the_free_memory_while_the_jobs_run() {
        let behind = BehindKeyspaces::default();
        let job: Arc<Progress> = Arc::default();
        job.expect(64 * MIB);
        // Twenty microseconds for a KiB: 1.3 s for 64 MiB.
        behind.set(KeyspaceId(1), (64 * MIB, 0), vec![Arc::clone(&job)], 20_000);
        let alone = Fill { write_buffers: 32 * MIB, used: 24 * MIB, own: 24 * MIB };
        let expected = Duration::from_micros(65_536 * 20 / 8);
        let delayed = delay_of_mib(&behind, alone);
        assert!(delayed > expected / 2 && delayed < expected * 2, "{delayed:?} of {expected:?}");
        assert_eq!(behind.delay(KeyspaceId(2), MIB, alone, Duration::from_secs(9)), Duration::ZERO);
        job.advance(64 * MIB);
        assert_eq!(behind.delay(KeyspaceId(1), 1 << 10, alone, Duration::from_secs(9)), Duration::ZERO);
    }

    #[test]
    fn a_job_larger_than_the_need_is_awaited_to_its_end() {
        let behind = BehindKeyspaces::default();
        let job: Arc<Progress> = Arc::default();
        job.expect(64 * MIB);
        behind.set(KeyspaceId(1), (16 * MIB, 4 * MIB), vec![Arc::clone(&job)], 20_000);
        job.advance(32 * MIB);
        let alone = Fill { write_buffers: 32 * MIB, used: 24 * MIB, own: 24 * MIB };
        let expected = Duration::from_micros(36_864 * 20 / 8);
        let delayed = delay_of_mib(&behind, alone);
        assert!(delayed > expected / 2 && delayed < expected * 2, "{delayed:?} of {expected:?}");
    }

    #[test]
    fn writers_never_fill_the_free_memory_before_the_jobs_end() {
        let behind = BehindKeyspaces::default();
        behind.set(KeyspaceId(1), (64 * MIB, 0), Vec::new(), 20_000);
        let mut fill = Fill { write_buffers: 32 * MIB, used: 24 * MIB, own: 24 * MIB };
        let (mut now, end) = (Duration::from_secs(1), Duration::from_secs(21));
        while now < end {
            now += behind.delay(KeyspaceId(1), 124, fill, now) + Duration::from_micros(1);
            (fill.used, fill.own) = (fill.used + 124, fill.own + 124);
        }
        assert!(fill.used < 33 * MIB, "{} bytes after ten times the expected duration", fill.used);
    }

    #[test]
    fn a_keyspace_that_is_behind_leaves_memory_to_others() {
        let among_others = Fill { write_buffers: 32 * MIB, used: 18 * MIB, own: 12 * MIB };
        assert_eq!(among_others.free_bytes(), 4 * MIB);
        let alone = Fill { own: 18 * MIB, ..among_others };
        assert_eq!(alone.free_bytes(), 14 * MIB);
        let full = Fill { own: 17 * MIB, used: 30 * MIB, ..among_others };
        assert_eq!(full.free_bytes(), 32 * MIB / FREE_PARTS_MIN);
    }
}
