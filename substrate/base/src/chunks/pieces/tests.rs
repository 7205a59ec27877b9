//! Pieces never overlap, and whole chunks are returned.

use std::sync::atomic::Ordering::Relaxed;

use super::*;

/// Pseudo-random numbers below a bound.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        usize_of(self.0 >> 33) % bound
    }
}

#[test]
fn pieces_never_overlap_and_whole_chunks_are_returned() {
    let (mut pieces, mut rng) = (Pieces::default(), Numbers(7));
    let mut taken: Vec<(Piece, u64)> = Vec::new();
    let (mut cut, mut whole) = (0, 0);
    for step in 0..20_000_u64 {
        // First mostly takes, then mostly returns.
        if rng.below(100) < if step < 10_000 { 60 } else { 40 } {
            let bytes = (PIECE_BYTES + rng.below(WHOLE_BYTES_MIN - PIECE_BYTES)) / 8 * 8;
            let piece = pieces.take(bytes).unwrap_or_else(|| {
                cut += 1;
                pieces.cut(LargeSlice::unfilled_words(CHUNK_BYTES / 8), bytes)
            });
            assert_eq!(piece.words().len() * 8, bytes);
            let ends = [piece.words().first(), piece.words().last()];
            ends.into_iter().flatten().for_each(|word| word.store(step, Relaxed));
            taken.push((piece, step));
        } else if !taken.is_empty() {
            let at = rng.below(taken.len());
            let (piece, wrote) = taken.swap_remove(at);
            let ends = [piece.words().first(), piece.words().last()];
            assert!(ends.into_iter().flatten().all(|word| word.load(Relaxed) == wrote));
            whole += usize::from(pieces.give_back(piece).is_some());
        }
    }
    for (piece, _) in taken.drain(..) {
        whole += usize::from(pieces.give_back(piece).is_some());
    }
    assert!(cut > 10 && whole == cut, "{whole} of {cut}");
    assert!(pieces.chunks.iter().all(Option::is_none) && pieces.unused.len() == pieces.chunks.len());
}

#[test]
fn free_parts_are_used_before_cutting_another_chunk() {
    let mut pieces = Pieces::default();
    let first = pieces.cut(LargeSlice::unfilled_words(CHUNK_BYTES / 8), PIECE_BYTES);
    let rest: Vec<Piece> = (1..64).map_while(|_| pieces.take(PIECE_BYTES)).collect();
    assert_eq!(rest.len(), 63);
    assert!(pieces.take(PIECE_BYTES).is_none());
    assert!(pieces.give_back(first).is_none());
    assert!(pieces.take(2 * PIECE_BYTES).is_none(), "only one part is free");
    assert!(pieces.take(PIECE_BYTES).is_some());
}
