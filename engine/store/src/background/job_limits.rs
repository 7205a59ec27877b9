//! Limits of jobs: their size, the rate at which they read, and whether they are paused.
//!
//! A job is bounded so that it ends soon at the pace of the device: waiters wait for at most one. A limit on
//! the rate, set by the user, is kept on average: after a job, none begins until its bytes are paid for.
//! Jobs that a flush waits for are neither paused nor delayed, because writers wait for them; their bytes
//! count.
//!
//! **Invariants**
//! - The size of a job depends on past jobs only, not on the clock at its choice.

use std::time::Duration;

use testudo_base::{
    num::low64,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};
use testudo_contract::JOB_BYTES;

/// Intended maximum duration of a job.
const JOB_TIME: Duration = Duration::from_millis(250);
/// Limits of the size of a job.
const JOB_BYTES_MIN: u64 = 4 << 20;
const JOB_BYTES_MAX: u64 = 2 * JOB_BYTES;
/// Inverse of the weight of a job in the measured pace.
const PACE_PARTS: u64 = 4;
/// Smaller jobs do not show the pace of the device.
const MEASURED_BYTES: u64 = 1 << 20;

const _: () =
    assert!(JOB_BYTES_MIN < JOB_BYTES && JOB_BYTES < JOB_BYTES_MAX, "a slow device has smaller jobs");

/// Limits of jobs, and what was measured of them.
#[derive(Debug, Default)]
pub struct JobLimits {
    is_paused: AtomicBool,
    /// Bytes per second; 0 for no limit.
    bytes_per_second: AtomicU64,
    /// Time at which the bytes of past jobs are paid for.
    paid_at: Mutex<Duration>,
    /// Measured bytes per second of a job; 0 before the first.
    pace: AtomicU64,
    /// Bytes that jobs have read.
    bytes: AtomicU64,
    /// Bytes read by the largest job.
    largest: AtomicU64,
}

impl JobLimits {
    pub fn is_paused(&self) -> bool {
        self.is_paused.load(Relaxed)
    }

    pub fn set_paused(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Relaxed);
    }

    /// Limit of the rate in bytes per second, if there is one.
    pub fn bytes_per_second(&self) -> Option<u64> {
        Some(self.bytes_per_second.load(Relaxed)).filter(|rate| *rate > 0)
    }

    /// Sets the limit of the rate. What was owed under the previous one is forgiven.
    pub fn set_bytes_per_second(&self, rate: Option<u64>) {
        self.bytes_per_second.store(rate.map_or(0, |rate| rate.max(1)), Relaxed);
        *self.paid_at.lock() = Duration::ZERO;
    }

    /// Time from `now` on for which no job may begin.
    pub fn time_to_wait(&self, now: Duration) -> Duration {
        self.paid_at.lock().saturating_sub(now)
    }

    /// Measured time of a job for a KiB, in nanoseconds; `None` before the first job.
    pub fn nanos_per_kib(&self) -> Option<u64> {
        let pace = self.pace.load(Relaxed);
        (pace > 0).then(|| (1_000_000_000 << 10) / pace)
    }

    /// Limit on the bytes that a job reads, and on those that it writes.
    pub fn job_bytes_max(&self) -> u64 {
        let of_time = |rate: u64| low64(u128::from(rate) * JOB_TIME.as_millis() / 1000);
        let of_device = match self.pace.load(Relaxed) {
            0 => JOB_BYTES,
            pace => of_time(pace),
        };
        let limited = self.bytes_per_second().map_or(of_device, |rate| of_device.min(of_time(rate)));
        limited.clamp(JOB_BYTES_MIN, JOB_BYTES_MAX)
    }

    /// Records a job that has read `bytes` from `began` until `now`.
    pub fn record_job(&self, bytes: u64, began: Duration, now: Duration) {
        self.bytes.fetch_add(bytes, Relaxed);
        self.largest.fetch_max(bytes, Relaxed);
        if let Some(rate) = self.bytes_per_second() {
            let cost = Duration::from_nanos(low64(u128::from(bytes) * 1_000_000_000 / u128::from(rate)));
            let mut paid_at = self.paid_at.lock();
            *paid_at = (*paid_at).max(began) + cost;
        }
        let micros = now.saturating_sub(began).as_micros();
        if bytes >= MEASURED_BYTES && micros > 0 {
            let pace = low64(u128::from(bytes) * 1_000_000 / micros).max(1);
            let before = self.pace.load(Relaxed);
            let next = if before == 0 { pace } else { before - before / PACE_PARTS + pace / PACE_PARTS };
            self.pace.store(next.max(1), Relaxed);
        }
    }

    /// Bytes that jobs have read.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Bytes read by the largest job.
    pub fn largest(&self) -> u64 {
        self.largest.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn jobs_are_smaller_on_slow_devices() {
        let limits = JobLimits::default();
        assert_eq!(limits.job_bytes_max(), JOB_BYTES);
        for _ in 0..40 {
            limits.record_job(32 << 20, SECOND, SECOND * 5);
        }
        assert_eq!(limits.job_bytes_max(), JOB_BYTES_MIN, "8 MiB a second");
        for _ in 0..40 {
            limits.record_job(32 << 20, SECOND, SECOND + SECOND / 100);
        }
        assert_eq!(limits.job_bytes_max(), JOB_BYTES_MAX, "3 GiB a second");
    }

    #[test]
    fn a_limited_rate_is_kept_on_average() {
        let limits = JobLimits::default();
        limits.set_bytes_per_second(Some(16 << 20));
        let mut now = SECOND;
        for _ in 0..8 {
            now += limits.time_to_wait(now);
            limits.record_job(8 << 20, now, now + SECOND / 10);
            now += SECOND / 10;
        }
        now += limits.time_to_wait(now);
        assert_eq!(now, SECOND * 5, "64 MiB in four seconds");
        limits.set_bytes_per_second(None);
        assert_eq!(limits.time_to_wait(SECOND), Duration::ZERO);
    }
}
