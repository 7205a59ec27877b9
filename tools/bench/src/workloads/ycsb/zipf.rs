//! Key distributions: zipfian, uniform, latest, hot range, and the mixgraph model (`mixgraph.rs`).
//!
//! Zipfian ranks follow Gray, Sundaresan, Englert, Baclawski and Weinberger, "Quickly generating
//! billion-record synthetic databases" (SIGMOD 1994), as YCSB does. The sum over all ranks uses the
//! Euler-Maclaurin formula after the first terms, so the start-up cost does not depend on the count.
//!
//! **Invariants**
//! - A picked record was acknowledged before the pick.
//! - Ranks are spread over the records by a bijection, so no two hot ranks share a record.

use std::ops::Range;

use testudo_env::SplitMix;

use super::{keys::KeyMaker, mixgraph::KeyModel};
use crate::{Distribution, report::size::floor};

/// YCSB's skew.
pub(crate) const THETA: f64 = 0.99;
/// Number of terms that are summed exactly.
const EXACT_TERMS: u64 = 1_000;

/// Zipfian distribution of ranks below a count; rank 0 is the most frequent.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    count: u64,
    zeta: f64,
    exponent: f64,
    eta: f64,
    second: f64,
}

impl Zipf {
    /// Creates ranks below `count`, which is at least 1, with YCSB's skew.
    pub fn new(count: u64) -> Self {
        Self::with_skew(count, THETA)
    }

    /// As [`Zipf::new`], with another skew. REQUIRES: it is not 1.
    pub fn with_skew(count: u64, theta: f64) -> Self {
        let zeta = zeta(count, theta);
        let second = 1.0 + 0.5f64.powf(theta);
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - theta)) / (1.0 - second / zeta);
        Self { count, zeta, exponent: 1.0 / (1.0 - theta), eta, second }
    }

    /// Draws a rank.
    #[inline]
    pub fn rank(&self, random: &mut SplitMix) -> u64 {
        let uniform = unit(random);
        let scaled = uniform * self.zeta;
        if scaled < 1.0 || self.count == 1 {
            return 0;
        }
        if scaled < self.second {
            return 1;
        }
        let share = self.eta.mul_add(uniform, 1.0 - self.eta).powf(self.exponent);
        floor(self.count as f64 * share).min(self.count - 1)
    }
}

/// Returns the sum of `rank^-θ` over the first `count` ranks.
fn zeta(count: u64, theta: f64) -> f64 {
    let term = |rank: f64| rank.powf(-theta);
    let exact: f64 = (1..=count.min(EXACT_TERMS)).map(|rank| term(rank as f64)).sum();
    if count <= EXACT_TERMS {
        return exact;
    }
    let (from, to) = (EXACT_TERMS as f64, count as f64);
    let integral = (to.powf(1.0 - theta) - from.powf(1.0 - theta)) / (1.0 - theta);
    let slope = |rank: f64| -theta * term(rank) / rank;
    exact + integral + (term(to) - term(from)) / 2.0 + (slope(to) - slope(from)) / 12.0
}

/// Picks records.
#[derive(Clone, Debug)]
pub(crate) enum Picker {
    Zipfian { zipf: Zipf, stride: u64 },
    Uniform,
    Latest { zipf: Zipf },
    RangeHot { keys: KeyMaker, hot: Range<f64> },
    Mixgraph(Box<KeyModel>),
}

/// Start of the hot range in the key space, unless it would end outside.
const HOT_FROM: f64 = 0.4;
const HOT_PERCENT: u64 = 98;
/// Maximum draws for one pick. At least one in a thousand hits, so only a very small store comes near this.
const DRAWS_MAX: u32 = 10_000;

impl Picker {
    /// Creates a zipfian picker among `records`, at least 1.
    pub(crate) fn zipfian(records: u64) -> Self {
        Self::Zipfian { zipf: Zipf::new(records), stride: stride_of(records) }
    }

    /// Creates a picker for a store that holds `records` records under `keys`, at least 1, and may grow.
    /// `hot_fraction` is the size of a hot range as a fraction of the key space.
    pub(crate) fn new(distribution: Distribution, records: u64, keys: KeyMaker, hot_fraction: f64) -> Self {
        match distribution {
            Distribution::Zipfian => Self::zipfian(records),
            Distribution::Uniform => Self::Uniform,
            Distribution::Latest => Self::Latest { zipf: Zipf::new(records) },
            Distribution::RangeHot => Self::RangeHot { keys, hot: hot_range(hot_fraction) },
            Distribution::Mixgraph => Self::Mixgraph(Box::new(KeyModel::new(records, keys))),
        }
    }

    /// Picks a record below `acknowledged`, which is at least the initial count.
    #[inline]
    pub(crate) fn pick(&self, random: &mut SplitMix, acknowledged: u64) -> u64 {
        match self {
            Self::Zipfian { zipf, stride } => scatter(zipf.rank(random), *stride, zipf.count),
            Self::Uniform => below(random, acknowledged),
            Self::Latest { zipf } => acknowledged - 1 - zipf.rank(random),
            Self::RangeHot { keys, hot } if below(random, 100) < HOT_PERCENT => {
                pick_hot(random, acknowledged, keys, hot)
            }
            Self::RangeHot { .. } => below(random, acknowledged),
            Self::Mixgraph(model) => model.pick(random),
        }
    }
}

/// Returns the hot range, as fractions of the key space.
fn hot_range(fraction: f64) -> Range<f64> {
    let from = HOT_FROM.min(1.0 - fraction);
    from..from + fraction
}

/// Draws until a record is in the hot range. This needs no memory, and takes about 0.1 µs for a twentieth
/// of the key space.
fn pick_hot(random: &mut SplitMix, acknowledged: u64, keys: &KeyMaker, hot: &Range<f64>) -> u64 {
    let mut draw = || below(random, acknowledged);
    let is_hot = |record: &u64| hot.contains(&keys.fraction(*record));
    let draws = (0..DRAWS_MAX).map(|_| draw()).find(is_hot);
    draws.unwrap_or_else(draw)
}

/// Returns a random number below `bound`, without a division.
#[inline]
pub fn below(random: &mut SplitMix, bound: u64) -> u64 {
    let product = u128::from(random.next_u64()) * u128::from(bound);
    testudo_base::num::low64(product >> 64)
}

#[inline]
pub(crate) fn unit(random: &mut SplitMix) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Permutes the numbers below `count` by multiplication with a coprime number.
#[inline]
pub fn scatter(rank: u64, stride: u64, count: u64) -> u64 {
    testudo_base::num::low64((u128::from(rank) + 1) * u128::from(stride) % u128::from(count))
}

/// Returns a number coprime to `count`, for [`scatter`].
pub fn stride_of(count: u64) -> u64 {
    let mut stride = floor(count as f64 * 0.618_033_988_749_894_9).max(1);
    while common_divisor(stride, count) != 1 {
        stride += 1;
    }
    stride
}

fn common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests;
