//! Fragments never overlap, and whole chunks are returned.

use std::sync::atomic::Ordering::Relaxed;

use super::*;
use crate::LargeSlice;

/// Pseudo-random numbers below a bound.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        usize_of(self.0 >> 33) % bound
    }
}

fn chunk(level: Level) -> Memory {
    Memory::Whole(LargeSlice::unfilled_words(level.chunk_bytes() / 8))
}

#[test]
fn fragments_never_overlap_and_whole_chunks_are_returned() {
    takes_and_returns(Level::Normal, WHOLE_BYTES_MIN);
    takes_and_returns(Level::Small, FRAGMENT_BYTES);
}

fn takes_and_returns(level: Level, bytes_max: usize) {
    let (mut fragments, mut rng) = (Fragments::new(level), Numbers(7));
    let mut taken: Vec<(Fragment, u64)> = Vec::new();
    let (mut cut, mut whole) = (0, 0);
    for step in 0..20_000_u64 {
        // First mostly takes, then mostly returns.
        if rng.below(100) < if step < 10_000 { 60 } else { 40 } {
            let bytes = (level.part_bytes() + rng.below(bytes_max - level.part_bytes())) / 8 * 8;
            let fragment = fragments.take(bytes).unwrap_or_else(|| {
                cut += 1;
                fragments.cut(chunk(level), bytes)
            });
            assert_eq!(fragment.words().len() * 8, bytes);
            let ends = [fragment.words().first(), fragment.words().last()];
            ends.into_iter().flatten().for_each(|word| word.store(step, Relaxed));
            taken.push((fragment, step));
        } else if !taken.is_empty() {
            let at = rng.below(taken.len());
            let (fragment, wrote) = taken.swap_remove(at);
            let ends = [fragment.words().first(), fragment.words().last()];
            assert!(ends.into_iter().flatten().all(|word| word.load(Relaxed) == wrote));
            whole += usize::from(fragments.give_back(fragment).is_some());
        }
    }
    for (fragment, _) in taken.drain(..) {
        whole += usize::from(fragments.give_back(fragment).is_some());
    }
    assert!(cut > 10 && whole == cut, "{whole} of {cut}");
    assert!(fragments.chunks.iter().all(Option::is_none) && fragments.unused.len() == fragments.chunks.len());
}

#[test]
fn free_parts_are_used_before_cutting_another_chunk() {
    let mut fragments = Fragments::new(Level::Normal);
    let first = fragments.cut(chunk(Level::Normal), FRAGMENT_BYTES);
    let rest: Vec<Fragment> = (1..64).map_while(|_| fragments.take(FRAGMENT_BYTES)).collect();
    assert_eq!(rest.len(), 63);
    assert!(fragments.take(FRAGMENT_BYTES).is_none());
    assert!(fragments.give_back(first).is_none());
    assert!(fragments.take(2 * FRAGMENT_BYTES).is_none(), "only one part is free");
    assert!(fragments.take(FRAGMENT_BYTES).is_some());
}
