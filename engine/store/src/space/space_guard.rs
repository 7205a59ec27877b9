//! Admission of commits while the device is full.
//!
//! The reserve guarantees that everything already promised can be written: log buffers, manifest edits, the
//! close. From the first portion that it releases until it is whole again, only removals are accepted. Once
//! half of it is used, removals are refused here too. Before one fails, `engine/flush/src/space/reclaim.rs`
//! reclaims space for it, so it is refused only if nothing more can be reclaimed. Refused writers, and the
//! background while idle, check whether the device has space again.
//!
//! The reserve is a fraction of the stored bytes, so that a small store is small on the device. If the device
//! does not have plenty of space, the reserve covers what flushing and reclaiming need once other users have
//! taken the rest. As soon as the device is nearly full, most of it is handed over to them
//! (`engine/flush/src/space/hold_space.rs`).
//!
//! **Invariants**
//! - A write is refused before any part of it is done.
//! - Nothing is refused here unless a call has failed for lack of space.

use std::time::Duration;

use testudo_base::{
    Error, ErrorKind, Result,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use testudo_env::{Env, Execution, Reserve};

use crate::memory::shares::MemoryShares;

/// Portions of the reserve that removals must leave for earlier promises.
const PORTIONS_KEPT: u32 = Reserve::PORTIONS / 2;
/// Minimum size of the reserve, and its fraction of the stored bytes.
pub const RESERVE_BYTES_MIN: u64 = 256 << 10;
const RESERVE_PARTS: u64 = 16;
/// Writers check the device for space at most this often.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

const _: () = assert!(
    PORTIONS_KEPT > 0 && PORTIONS_KEPT < Reserve::PORTIONS,
    "removals and earlier promises have a part each"
);

/// Kind of a commit, for admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// The commit writes at least one value.
    Write,
    /// The commit only removes.
    Remove,
}

impl Intent {
    /// The error for a commit of this intent when the device has no space for it.
    pub fn refusal(self) -> Error {
        let taken = match self {
            Self::Write => "only removals are accepted until space is free again",
            Self::Remove => "nothing is accepted until space is free again",
        };
        Error::new(ErrorKind::OutOfSpace, format!("no space is left on the device: {taken}"))
    }
}

/// Time of the last device check by refused writers, which limits their rate.
#[derive(Debug, Default)]
pub struct SpaceChecks {
    last_millis: AtomicU64,
}

impl SpaceChecks {
    /// Whether another check is due; records it as done if so.
    pub fn is_due(&self, env: &dyn Env) -> bool {
        let now = u64::try_from(env.monotonic().as_millis()).unwrap_or(u64::MAX);
        let passed = Duration::from_millis(now.saturating_sub(self.last_millis.load(Relaxed)));
        let is_due = env.execution() == Execution::Stepped || passed >= CHECK_INTERVAL;
        if is_due {
            self.last_millis.store(now, Relaxed);
        }
        is_due
    }
}

/// Bytes reserved by a store with `stored_bytes` on a device with plenty of space.
pub fn kept_back_of(stored_bytes: u64, shares: &MemoryShares) -> u64 {
    debug_assert!(shares.reserve_bytes_max() >= RESERVE_BYTES_MIN, "the bounds of a reserve");
    let part = (stored_bytes / RESERVE_PARTS).next_power_of_two();
    part.clamp(RESERVE_BYTES_MIN, shares.reserve_bytes_max())
}

/// Guards the space on the device.
#[derive(Debug)]
pub struct SpaceGuard {
    /// `None` in a store that is open for reading only.
    reserve: Option<Arc<Reserve>>,
    checks: SpaceChecks,
}

impl SpaceGuard {
    pub fn new(reserve: Option<Arc<Reserve>>) -> Self {
        Self { reserve, checks: SpaceChecks::default() }
    }

    /// The environment for writes that must not use the reserve, if `env` would.
    pub fn plain_env(&self, env: &Arc<dyn Env>) -> Arc<dyn Env> {
        self.reserve.as_ref().map_or_else(|| Arc::clone(env), |reserve| reserve.plain_env())
    }

    /// The environment for writes that may use only the first portion of the reserve, which detects a full
    /// device.
    pub fn bulk_env(&self, env: &Arc<dyn Env>) -> Arc<dyn Env> {
        self.reserve.as_ref().map_or_else(|| Arc::clone(env), |reserve| reserve.bulk_env())
    }

    /// Bytes reserved now.
    pub fn reserve_bytes(&self) -> u64 {
        self.reserve.as_ref().map_or(0, |reserve| reserve.bytes())
    }

    /// Bytes reserved when no portion is missing.
    pub fn whole_reserve_bytes(&self) -> u64 {
        self.reserve.as_ref().map_or(0, |reserve| reserve.whole_bytes())
    }

    /// Resizes the reserve to about `bytes`, if the device has them.
    pub fn fit(&self, bytes: u64) -> Result<()> {
        let Some(reserve) = &self.reserve else { return Ok(()) };
        reserve.resize(bytes).map_err(|e| Error::io("reserve", e))
    }

    /// Releases the reserve beyond `bytes` on a device that has become nearly full.
    pub fn hand_over(&self, bytes: u64) -> Result<()> {
        let Some(reserve) = &self.reserve else { return Ok(()) };
        reserve.hand_over(bytes).map_err(|e| Error::io("reserve", e))
    }

    /// Bytes beyond `least` that can be handed over.
    pub fn surplus_bytes(&self, least: u64) -> u64 {
        if self.is_short() { 0 } else { self.reserve_bytes().saturating_sub(least) }
    }

    /// Whether there is a reserve: not for readers.
    pub fn is_kept(&self) -> bool {
        self.reserve.is_some()
    }

    /// Bytes missing from the reserve, plus some extra space.
    pub fn missing_bytes(&self) -> u64 {
        self.reserve
            .as_ref()
            .filter(|reserve| reserve.is_short())
            .map_or(0, |reserve| reserve.missing_bytes())
    }

    /// Whether the device was full and, as far as known, still is.
    #[inline]
    pub fn is_short(&self) -> bool {
        self.reserve.as_ref().is_some_and(|reserve| reserve.is_short())
    }

    /// Fails with `OutOfSpace` if a commit of this intent cannot be accepted now.
    #[inline]
    pub fn check(&self, env: &dyn Env, intent: Intent) -> Result<()> {
        if self.is_short() { self.check_short(env, intent) } else { Ok(()) }
    }

    #[cold]
    fn check_short(&self, env: &dyn Env, intent: Intent) -> Result<()> {
        debug_assert!(self.reserve.is_some(), "only a reserve can be short");
        let Some(reserve) = &self.reserve else { return Ok(()) };
        if intent == Intent::Remove && reserve.portions() >= PORTIONS_KEPT {
            return Ok(());
        }
        if self.checks.is_due(env) && self.refill()? {
            return Ok(());
        }
        Err(intent.refusal())
    }

    /// Completes the reserve if there is space; returns whether it is whole.
    pub fn refill(&self) -> Result<bool> {
        match &self.reserve {
            Some(reserve) if reserve.is_short() => reserve.refill().map_err(|e| Error::io("reserve", e)),
            _ => Ok(true),
        }
    }
}
