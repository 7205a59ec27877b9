//! What a store takes on while the device is full.
//!
//! The reserve lets everything be written that was promised already: log buffers, manifest edits, the close.
//! From the first piece that it gives up until it is whole again, only removals are taken. Once half of it is
//! gone this file refuses removals too; before one fails, `flush/nearly_full.rs` reclaims space for it, and
//! it is refused only if nothing more can be reclaimed. Whoever is refused, and the background while it is
//! idle, checks whether the device has space again.
//!
//! The reserve is a part of what the store holds, so that a small store is small on the device. Where the
//! device has not plenty of space it is what flushing and reclaiming need once others have taken the rest; as
//! soon as the device is nearly full most of it is handed over to them (`flush/hold_space.rs`).
//!
//! **Invariants**
//! - A write is refused before anything of it was done.
//! - Without a failed call for want of space nothing is ever refused here.

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

/// Pieces of the reserve that removals leave to what was promised before.
const PIECES_KEPT: u32 = Reserve::PIECES / 2;
/// Least size of the reserve, and its part of what the store holds.
pub const RESERVE_BYTES_MIN: u64 = 256 << 10;
const RESERVE_PARTS: u64 = 16;
/// Writers check the device for space at most this often.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// What a commit does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// It writes at least one value.
    Write,
    /// It only removes.
    Remove,
}

impl Intent {
    /// What a commit of this intent is told when the device has no space for it.
    pub fn refusal(self) -> Error {
        let taken = match self {
            Self::Write => "only removals are taken until there is room again",
            Self::Remove => "nothing is taken until there is room again",
        };
        Error::new(ErrorKind::OutOfSpace, format!("no space is left on the device: {taken}"))
    }
}

/// When refused writers last had the device checked: not each of them can.
#[derive(Debug, Default)]
pub struct SpaceChecks {
    last_millis: AtomicU64,
}

impl SpaceChecks {
    /// Whether it is time for another check; then this is it.
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

/// What a store that holds `stored_bytes` keeps back on a device with plenty of space.
pub fn kept_back_of(stored_bytes: u64, shares: &MemoryShares) -> u64 {
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

    /// The environment for what must not use the reserve, if `env` would.
    pub fn plain_env(&self, env: &Arc<dyn Env>) -> Arc<dyn Env> {
        self.reserve.as_ref().map_or_else(|| Arc::clone(env), |reserve| reserve.plain_env())
    }

    /// The environment for what may only find out, by the first piece of the reserve, that the device is
    /// full.
    pub fn bulk_env(&self, env: &Arc<dyn Env>) -> Arc<dyn Env> {
        self.reserve.as_ref().map_or_else(|| Arc::clone(env), |reserve| reserve.bulk_env())
    }

    /// Bytes kept back.
    pub fn reserve_bytes(&self) -> u64 {
        self.reserve.as_ref().map_or(0, |reserve| reserve.bytes())
    }

    /// Bytes kept back when no piece is missing.
    pub fn whole_reserve_bytes(&self) -> u64 {
        self.reserve.as_ref().map_or(0, |reserve| reserve.whole_bytes())
    }

    /// Has the reserve keep back about `bytes`, if the device has them.
    pub fn fit(&self, bytes: u64) -> Result<()> {
        let Some(reserve) = &self.reserve else { return Ok(()) };
        reserve.resize(bytes).map_err(|e| Error::io("reserve", e))
    }

    /// Leaves what the reserve has beyond `bytes` to the device, which has become nearly full.
    pub fn hand_over(&self, bytes: u64) -> Result<()> {
        let Some(reserve) = &self.reserve else { return Ok(()) };
        reserve.hand_over(bytes).map_err(|e| Error::io("reserve", e))
    }

    /// Bytes beyond `least` that could be handed over.
    pub fn surplus_bytes(&self, least: u64) -> u64 {
        if self.is_short() { 0 } else { self.reserve_bytes().saturating_sub(least) }
    }

    /// Whether space is kept back at all: not for readers.
    pub fn is_kept(&self) -> bool {
        self.reserve.is_some()
    }

    /// Bytes that are to be taken back, with some space beside them.
    pub fn missing_bytes(&self) -> u64 {
        self.reserve
            .as_ref()
            .filter(|reserve| reserve.is_short())
            .map_or(0, |reserve| reserve.missing_bytes())
    }

    /// Whether the device was full and, as far as is known, still is.
    #[inline]
    pub fn is_short(&self) -> bool {
        self.reserve.as_ref().is_some_and(|reserve| reserve.is_short())
    }

    /// Fails with `OutOfSpace` if a commit of this intent must not be taken now.
    #[inline]
    pub fn check(&self, env: &dyn Env, intent: Intent) -> Result<()> {
        if self.is_short() { self.check_short(env, intent) } else { Ok(()) }
    }

    #[cold]
    fn check_short(&self, env: &dyn Env, intent: Intent) -> Result<()> {
        let Some(reserve) = &self.reserve else { return Ok(()) };
        if intent == Intent::Remove && reserve.pieces() >= PIECES_KEPT {
            return Ok(());
        }
        if self.checks.is_due(env) && self.refill()? {
            return Ok(());
        }
        Err(intent.refusal())
    }

    /// Makes the reserve whole if there is space; says whether it is.
    pub fn refill(&self) -> Result<bool> {
        match &self.reserve {
            Some(reserve) if reserve.is_short() => reserve.refill().map_err(|e| Error::io("reserve", e)),
            _ => Ok(true),
        }
    }
}
