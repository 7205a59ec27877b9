//! A uniform random sample of all keys offered (Vitter, algorithm R).
//!
//! **Invariants**
//! - Every key so far is in the sample with the same probability. Choices are deterministic.

/// Longer keys are truncated: they are only borders of a histogram.
const KEY_BYTES_MAX: usize = 64;

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
        let chosen = self.next_random() % self.offered;
        if let Some(kept) = usize::try_from(chosen).ok().and_then(|chosen| self.keys.get_mut(chosen)) {
            *kept = key.into();
        }
    }

    /// Returns the keys of the sample, ascending.
    pub(crate) fn sorted(&self) -> Vec<Box<[u8]>> {
        let mut keys = self.keys.clone();
        keys.sort_unstable();
        keys
    }

    /// Xorshift generator (Marsaglia).
    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}
