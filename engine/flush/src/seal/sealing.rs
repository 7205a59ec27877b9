//! When active write buffers are sealed, and which of them: pure arithmetic over sizes.
//!
//! What is sealed flushes while writers go on. So it is time once the rest of the write memory is no more
//! than what would be sealed: a single keyspace is sealed at half of the write memory, and fills the other
//! half meanwhile. Of many keyspaces only the largest buffers are sealed, an eighth of the memory at a time:
//! then nearly all of it holds what is still growing, batches are several times larger than if all were
//! sealed together, and each round is short.
//! A round has costs of its own, so of less than 2 MiB it takes more: 256 KiB, or half.
//!
//! **Invariants**
//! - At least one buffer is chosen when it is time.

/// Rounds into which many buffers divide the write memory.
const ROUNDS: u64 = 8;

/// But a round should be worth an edit, a sync, and a look at all keyspaces.
const ROUND_BYTES_MIN: u64 = 256 << 10;

/// Bytes that a round should flush at least. `largest`: bytes of the largest active buffer.
fn round_bytes(largest: u64, write_buffers: u64) -> u64 {
    let least = ROUND_BYTES_MIN.min(write_buffers / 2);
    largest.max(write_buffers / ROUNDS).max(least)
}

/// How full write buffers are, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fill {
    pub active: u64,
    /// The largest active one.
    pub largest: u64,
    pub sealed: u64,
}

impl Fill {
    /// Whether buffers should be sealed: `Err` says at how many active bytes to look again.
    pub fn is_time(self, write_buffers: u64) -> Result<(), u64> {
        let Self { active, largest, sealed } = self;
        let free_bytes = write_buffers.saturating_sub(active + sealed + round_bytes(largest, write_buffers));
        // All that comes may go to the largest buffer, and then counts twice.
        if free_bytes == 0 { Ok(()) } else { Err(active + (free_bytes / 2).max(write_buffers / 256).max(1)) }
    }
}

/// Chooses which buffers (their sizes are given) are sealed: the largest, until they make a round.
pub fn choose(sizes: &[u64], write_buffers: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_unstable_by_key(|&buffer| (std::cmp::Reverse(sizes[buffer]), buffer));
    let count = count_of_round(order.iter().map(|&buffer| sizes[buffer]), write_buffers);
    order.truncate(count);
    order
}

/// How many of the buffers, in this order, make a round.
pub fn count_of_round(sizes: impl Iterator<Item = u64>, write_buffers: u64) -> usize {
    let wanted = round_bytes(0, write_buffers).max(1);
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
