//! Writings of replaced pages, and short codes for them: the list of a run's replaced pages names the writing
//! of each in four bytes.
//!
//! Codes count generations. Those of one incarnation are close to each other, so that a few *stretches* cover
//! all writings, however many there are.
//!
//! **Invariants**
//! - Codes ascend with the writings, and the first of a stretch is above all codes of the stretch before it.

use testudo_base::{
    RunId,
    num::{low32, u64_of},
};

/// A batch of pages that were written together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Writing {
    /// Generation in the headers of the pages.
    pub generation: RunId,
    /// Lowest 32 bits of the incarnation that wrote them.
    pub incarnation: u32,
}

/// Generations of one incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    first_code: u32,
    incarnation: u32,
    first_generation: u64,
}

/// The writings behind codes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WritingCodes(Box<[Stretch]>);

impl WritingCodes {
    /// Assigns codes to writings; returns that of each.
    pub(crate) fn of(writings: impl Iterator<Item = Writing> + Clone) -> (Self, Vec<u32>) {
        let mut sorted: Vec<Writing> = writings.clone().collect();
        sorted.sort_unstable();
        sorted.dedup();
        // Codes cannot overflow if each is at most this far from the one before.
        let distance_max = u64::from(u32::MAX) / u64_of(sorted.len().max(1));
        let mut stretches: Vec<Stretch> = Vec::new();
        let mut codes: Vec<u32> = Vec::with_capacity(sorted.len());
        let mut before: Option<Writing> = None;
        for writing in &sorted {
            let next_code = codes.last().map_or(0, |last| last + 1);
            let distance = before.filter(|before| before.incarnation == writing.incarnation);
            let distance = distance.map(|before| writing.generation.0 - before.generation.0);
            let code = match (distance.filter(|distance| *distance < distance_max), codes.last()) {
                (Some(distance), Some(last)) => last + low32(distance),
                _ => {
                    stretches.push(Stretch {
                        first_code: next_code,
                        incarnation: writing.incarnation,
                        first_generation: writing.generation.0,
                    });
                    next_code
                }
            };
            codes.push(code);
            before = Some(*writing);
        }
        let code_of = |writing: Writing| sorted.binary_search(&writing).map_or(0, |at| codes[at]);
        let of_each = writings.map(code_of).collect();
        (Self(stretches.into()), of_each)
    }

    /// Returns the writing with a code.
    #[inline]
    pub(crate) fn get(&self, code: u32) -> Writing {
        let at = self.0.partition_point(|stretch| stretch.first_code <= code);
        let stretch = self.0[at - 1];
        Writing {
            generation: RunId(stretch.first_generation + u64::from(code - stretch.first_code)),
            incarnation: stretch.incarnation,
        }
    }

    /// Bytes of memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

#[cfg(test)]
mod tests;
