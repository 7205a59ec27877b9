//! A small process-wide cache of used mappings for their next owner.
//!
//! **Invariants**
//! - A mapping is cached, or has one owner, or is unmapped.
//! - At most [`KEPT_BYTES_MAX`] are cached, however many stores are open; all other mappings return to the
//!   system.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Mapping;

/// Maximum bytes in the cache. A larger mapping is never cached.
const KEPT_BYTES_MAX: usize = 2 << 20;
/// Sizes are multiples of this, so that mappings of similar sizes can be reused.
const GRAIN_BYTES: usize = 16 << 10;

/// Cached mappings, oldest first.
struct Kept {
    mappings: Vec<Mapping>,
    bytes: usize,
}

/// A lock of `std` even under the scheduler of `sync`: leftovers of earlier work must not change a schedule.
static KEPT: Mutex<Kept> = Mutex::new(Kept { mappings: Vec::new(), bytes: 0 });

fn kept() -> MutexGuard<'static, Kept> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Rounds `bytes` up to the size of a mapping; `None` if it overflows.
pub(super) fn whole(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(GRAIN_BYTES)
}

/// Takes a mapping of `bytes` or slightly more; `None` if the system refuses.
pub(super) fn take(bytes: usize) -> Option<Mapping> {
    let bytes = whole(bytes)?;
    if bytes <= KEPT_BYTES_MAX {
        let mut kept = kept();
        // The last one is the warmest.
        if let Some(at) = kept.mappings.iter().rposition(|mapping| mapping.bytes() == bytes) {
            debug_assert!(kept.bytes >= bytes, "cached bytes are counted");
            kept.bytes -= bytes;
            return Some(kept.mappings.remove(at));
        }
    }
    Mapping::fresh(bytes)
}

/// Returns a mapping from its owner to the cache.
pub(super) fn give_back(mut mapping: Mapping) {
    if mapping.bytes() > KEPT_BYTES_MAX {
        return;
    }
    mapping.is_used = true;
    // Unmapped after the lock has been released.
    let mut excess = Vec::new();
    let mut kept = kept();
    kept.bytes += mapping.bytes();
    kept.mappings.push(mapping);
    while kept.bytes > KEPT_BYTES_MAX {
        let oldest = kept.mappings.remove(0);
        kept.bytes -= oldest.bytes();
        excess.push(oldest);
    }
    debug_assert!(kept.bytes <= KEPT_BYTES_MAX, "the cache is bounded");
    drop(kept);
}
