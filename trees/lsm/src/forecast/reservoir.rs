//! A uniform random sample of the keys of an epoch (Vitter, algorithm R).
//!
//! **Invariants**
//! - Every key offered since the last clearing is in the sample with the same probability. Choices are
//!   deterministic.
//! - Memory is bounded: by the size of the sample, and by the bytes of each key.

use testudo_base::num::{u64_of, usize_of};

/// Longer keys are truncated: they are only borders of a histogram.
const KEY_BYTES_MAX: usize = 64;

/// A sample of keys.
#[derive(Debug)]
pub(crate) struct Reservoir {
    size: usize,
    offered: u64,
    keys: Vec<Box<[u8]>>,
    random: u64,
}

impl Reservoir {
    /// Creates a sample of `size` keys.
    pub(crate) fn new(size: usize) -> Self {
        Self { size: size.max(1), offered: 0, keys: Vec::new(), random: 0x9E37_79B9_7F4A_7C15 }
    }

    pub(crate) fn offer(&mut self, key: &[u8]) {
        let key = &key[..key.len().min(KEY_BYTES_MAX)];
        self.offered += 1;
        if self.keys.len() < self.size {
            return self.keys.push(key.into());
        }
        let chosen = usize_of(self.next_random() % self.offered);
        if let Some(kept) = self.keys.get_mut(chosen) {
            *kept = key.into();
        }
    }

    /// Returns the keys of the sample, ascending, and clears it for `size` keys.
    pub(crate) fn take_sorted(&mut self, size: usize) -> Vec<Box<[u8]>> {
        let mut keys = std::mem::take(&mut self.keys);
        (self.size, self.offered) = (size.max(1), 0);
        keys.sort_unstable();
        keys
    }

    /// Bytes of the sampled keys.
    pub(crate) fn memory_bytes(&self) -> u64 {
        u64_of(self.keys.iter().map(|key| key.len() + size_of::<Box<[u8]>>()).sum())
    }

    /// Xorshift generator (Marsaglia).
    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}
