//! Derives inputs from seeds: bit flips, boundary numbers, format words, splices, copies, truncations,
//! insertions.
//!
//! **Invariants**
//! - A seed determines the sequence of inputs.
//! - No input is longer than [`MAX_INPUT_BYTES`].

use testudo_base::num::{low32, u64_of, usize_of};
use testudo_env::SplitMix;

/// Maximum length of an input.
pub(crate) const MAX_INPUT_BYTES: usize = 64 << 10;
/// Numbers that provoke errors in lengths, counts and sums.
pub(crate) const BOUNDARIES: [u64; 20] = [
    0,
    1,
    2,
    0x7f,
    0x80,
    0xff,
    0xfff,
    0x1000,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 40,
    1 << 51,
    1 << 52,
    (1 << 63) - 1,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];
/// Words with a meaning in the formats.
const WORDS: [&[u8]; 6] =
    [b"TESTUDO\0", b"TSTDOWAL", &[1, 0, 0, 0], &[2, 0, 0, 0], &[3, 0, 0, 0], &[0xff, 0xff, 0xff, 0xff, 0x0f]];

/// A seeded source of inputs.
#[derive(Debug)]
pub struct Mutator {
    random: SplitMix,
    corpus: Vec<Vec<u8>>,
}

impl Mutator {
    /// Creates a mutator that starts from these inputs.
    pub fn new(seed: u64, corpus: Vec<Vec<u8>>) -> Self {
        Self { random: SplitMix::new(seed), corpus }
    }

    /// Returns the next input.
    pub fn next_input(&mut self) -> Vec<u8> {
        let mut input = self.pick();
        let count = 1 + self.below(4) + if self.below(8) == 0 { 12 } else { 0 };
        for _ in 0..count {
            self.mutate(&mut input);
        }
        input.truncate(MAX_INPUT_BYTES);
        input
    }

    fn below(&mut self, bound: usize) -> usize {
        usize_of(self.random.below(u64_of(bound.max(1))))
    }

    fn pick(&mut self) -> Vec<u8> {
        let index = self.below(self.corpus.len());
        self.corpus.get(index).cloned().unwrap_or_default()
    }

    fn mutate(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len());
        match self.below(10) {
            0 if !input.is_empty() => input[at] ^= 1 << self.below(8),
            1 if !input.is_empty() => input[at] = self.random.next_u64().to_le_bytes()[0],
            2 => {
                let number = BOUNDARIES[self.below(BOUNDARIES.len())].to_le_bytes();
                let width = 1 << self.below(4);
                overwrite(input, at, &number[..width]);
            }
            3 => {
                let word = WORDS[self.below(WORDS.len())];
                overwrite(input, at, word);
            }
            4 => self.add(input, at),
            5 => input.truncate(at),
            6 => {
                let mut bytes = vec![0; 1 + self.below(16)];
                self.random.fill(&mut bytes);
                input.splice(at..at, bytes);
            }
            7 => {
                let end = (at + 1 + self.below(64)).min(input.len());
                let copy = input[at..end].to_vec();
                let to = self.below(input.len());
                if self.below(2) == 0 {
                    overwrite(input, to, &copy)
                } else {
                    drop(input.splice(to..to, copy))
                }
            }
            8 => {
                let end = (at + 1 + self.below(32)).min(input.len());
                drop(input.drain(at..end));
            }
            _ => {
                let other = self.pick();
                let from = self.below(other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
        }
    }

    /// Adds a small number to 32 bits of the input.
    fn add(&mut self, input: &mut [u8], at: usize) {
        let delta = low32(self.random.below(9)).wrapping_sub(4);
        if let Some(bytes) = input.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>()) {
            *bytes = u32::from_le_bytes(*bytes).wrapping_add(delta).to_le_bytes();
        }
    }
}

/// Writes as much of `bytes` at `at` as fits.
pub(crate) fn overwrite(input: &mut [u8], at: usize, bytes: &[u8]) {
    let Some(target) = input.get_mut(at..) else { return };
    let count = bytes.len().min(target.len());
    target[..count].copy_from_slice(&bytes[..count]);
}
