//! A small seeded generator for simulated disks and their crashes.
//!
//! Splitmix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014): one
//! addition and a mix per number; every seed is valid.
//!
//! **Invariants**
//! - The same seed produces the same numbers on every machine and in every version of the store.

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Seeded pseudo-random numbers. Not for cryptographic use.
#[derive(Clone, Debug)]
pub struct SplitMix {
    state: u64,
}

impl SplitMix {
    /// A generator; equal seeds produce equal numbers.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the next number, uniform over all 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        mix(self.state)
    }

    /// Returns a number in `0..bound`; `bound` must not be zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "the range is not empty");
        self.next_u64() % bound
    }

    /// Returns true with a probability of `percent` / 100.
    pub fn percent(&mut self, percent: u8) -> bool {
        debug_assert!(percent <= 100, "a percentage");
        self.below(100) < u64::from(percent)
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            part.copy_from_slice(&self.next_u64().to_le_bytes()[..part.len()]);
        }
    }
}

/// Mixes one number; distinct inputs give distinct outputs.
pub(crate) fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests;
