//! A few used mappings of the whole process that wait for their next owner.
//!
//! **Invariants**
//! - A mapping is kept, or has one owner, or is gone.
//! - What is kept is at most [`KEPT_BYTES_MAX`], however many stores are open; everything else goes back to
//!   the system.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Mapping;

/// Most bytes that wait for an owner. A larger mapping is never kept.
const KEPT_BYTES_MAX: usize = 2 << 20;
/// Sizes are multiples of this, so that similar ones can follow each other.
const GRAIN_BYTES: usize = 16 << 10;

/// Mappings without an owner, the oldest first.
struct Kept {
    mappings: Vec<Mapping>,
    bytes: usize,
}

/// A lock of `std` also where locks are those of a scheduler: what earlier work left here must not change a
/// schedule.
static KEPT: Mutex<Kept> = Mutex::new(Kept { mappings: Vec::new(), bytes: 0 });

fn kept() -> MutexGuard<'static, Kept> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a mapping of so many bytes has; `None` if none can have it.
pub(super) fn whole(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(GRAIN_BYTES)
}

/// A mapping of `bytes` or a little more; `None` if the system has none to give.
pub(super) fn take(bytes: usize) -> Option<Mapping> {
    let bytes = whole(bytes)?;
    if bytes <= KEPT_BYTES_MAX {
        let mut kept = kept();
        // The last one is the warmest.
        if let Some(at) = kept.mappings.iter().rposition(|mapping| mapping.bytes() == bytes) {
            kept.bytes -= bytes;
            return Some(kept.mappings.remove(at));
        }
    }
    Mapping::fresh(bytes)
}

/// Takes a mapping back from its owner.
pub(super) fn give_back(mut mapping: Mapping) {
    if mapping.bytes() > KEPT_BYTES_MAX {
        return;
    }
    mapping.is_used = true;
    // They end after the lock has been released.
    let mut excess = Vec::new();
    let mut kept = kept();
    kept.bytes += mapping.bytes();
    kept.mappings.push(mapping);
    while kept.bytes > KEPT_BYTES_MAX {
        let oldest = kept.mappings.remove(0);
        kept.bytes -= oldest.bytes();
        excess.push(oldest);
    }
    drop(kept);
}
