//! Decides when active write buffers are sealed, and which: pure arithmetic over sizes.
//!
//! Sealed buffers are flushed while writers continue. So sealing is due once the free write memory is no
//! larger than the buffers that would be sealed. A single keyspace seals at half of the write memory, and
//! fills the other half during the flush.
//!
//! Of many keyspaces only the largest buffers are sealed, an eighth of the memory at a time. Nearly all
//! memory then holds growing buffers, batches are several times larger than if all were sealed together, and
//! rounds are short. A round has fixed costs, so below 2 MiB of write memory it takes a larger share: 256
//! KiB, or half.
//!
//! **Invariants**
//! - At least one buffer is chosen when sealing is due.

/// Number of rounds into which many buffers divide the write memory.
const ROUNDS: u64 = 8;

/// Minimum bytes of a round that justify an edit, a sync and a pass over all keyspaces.
const ROUND_BYTES_MIN: u64 = 256 << 10;

/// A round is at most one part in this many of the write memory for the sake of its fixed costs: the other
/// part fills meanwhile.
const LARGE_ROUND_PARTS: u64 = 2;
/// All new writes may go to the largest buffer, which then counts this many times: as active, and as part of
/// the next round.
const LARGEST_COUNTS: u64 = 2;
/// Fullness is checked at least each time one part in this many of the write memory was written.
const CHECK_PARTS: u64 = 256;

/// Minimum bytes a round should flush. `largest`: bytes of the largest active buffer.
fn round_bytes(largest: u64, write_buffers: u64) -> u64 {
    let least = ROUND_BYTES_MIN.min(write_buffers / LARGE_ROUND_PARTS);
    largest.max(write_buffers / ROUNDS).max(least)
}

/// How full write buffers are, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fill {
    pub active: u64,
    /// Bytes of the largest active buffer.
    pub largest: u64,
    pub sealed: u64,
}

impl Fill {
    /// Whether sealing is due; `Err` holds the number of active bytes at which to check again.
    pub fn is_time(self, write_buffers: u64) -> Result<(), u64> {
        let Self { active, largest, sealed } = self;
        debug_assert!(largest <= active, "the largest buffer is one of the active ones");
        let free_bytes = write_buffers.saturating_sub(active + sealed + round_bytes(largest, write_buffers));
        let step = (free_bytes / LARGEST_COUNTS).max(write_buffers / CHECK_PARTS).max(1);
        if free_bytes == 0 { Ok(()) } else { Err(active + step) }
    }
}

/// Chooses the buffers to seal, given their sizes: the largest, until they fill a round.
pub fn choose(sizes: &[u64], write_buffers: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_unstable_by_key(|&buffer| (std::cmp::Reverse(sizes[buffer]), buffer));
    let count = count_of_round(order.iter().map(|&buffer| sizes[buffer]), write_buffers);
    debug_assert!(count > 0 || sizes.is_empty(), "at least one buffer is chosen");
    order.truncate(count);
    order
}

/// Number of buffers, in this order, that fill a round.
pub fn count_of_round(sizes: impl Iterator<Item = u64>, write_buffers: u64) -> usize {
    let wanted = round_bytes(0, write_buffers).max(1);
    debug_assert!(wanted <= write_buffers.max(1), "a round fits into the write memory");
    let mut chosen = 0;
    sizes
        .take_while(|bytes| {
            let is_needed = chosen < wanted;
            chosen += bytes;
            is_needed
        })
        .count()
}

#[cfg(test)]
mod tests;
