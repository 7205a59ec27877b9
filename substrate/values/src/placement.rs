//! Which values lie outside the runs of their tree (PAPERS P1).
//!
//! Parallax goes by p = prefix bytes / (key and value bytes): what an index keeps of a pair, as a part of the
//! pair. Of a pair with a small p little is merged if its value lies elsewhere. Large pairs are worth winning
//! back the space of dead values for it. Medium ones are not: their values lie elsewhere until they come to
//! the bottom of the tree.
//!
//! Values of large pairs cost scans more than values beside their keys. Where the thresholds move
//! (decision 0053) a keyspace has them outside as long as that spares merges more than it costs scans.
//!
//! **Invariants**
//! - Ratios are between 0 and 1.

use std::{fmt, str::FromStr};

use testudo_base::{Error, Result, num::u64_of};

/// Values shorter than this stay: a reference takes as much.
const VALUE_BYTES_MIN: usize = 32;
/// Below this ratio Parallax calls a pair large (T_ML).
const LARGE_RATIO: f64 = 0.02;
/// Below this one it calls a pair medium (T_SM).
const SMALL_RATIO: f64 = 0.2;
/// Below this ratio a pair is large by default: from 1,536 bytes on. Values that are shorter cost scans more
/// outside, a page for each, than a load spares (decision 0053).
const DEFAULT_LARGE_RATIO: f64 = 1.0 / 128.0;
/// What Parallax takes for the bytes of a key that an index keeps.
const PREFIX_BYTES: u32 = 12;
/// Most of the lowest levels that can have the values of medium pairs (PAPERS P3).
const IN_PLACE_LEVELS_MAX: u32 = 2;

/// Where the values of a keyspace are put when they leave memory.
///
/// With p = `prefix_bytes / (bytes of key and value)`, a pair of key and value is *large* if p is below
/// `large_ratio`, else *medium* if p is below `small_ratio`, else *small*. Values of large pairs go to value
/// segments, and the tree merges references to them. Those of medium pairs go to value segments, too, but
/// come back to their keys where these reach the bottom of the tree, or the level above it if
/// [`Placement::with_in_place_levels`] says so. Those of small pairs stay with their keys.
///
/// Commits that are not synced write the values of large pairs once, in the order in which they come. So a
/// scan over keys that came in another order reads a page for each such value that it looks at. Where
/// [`Placement::with_moving_thresholds`] says so, that is measured: once scans have paid more for it than
/// merges were spared, the values come back to their keys, and pairs count as medium at most from then on;
/// once merges have paid more, values of large pairs go outside again. Values of more than 4 KiB on average
/// stay outside. Thresholds that move put no values outside in keyspaces of a few MiB, and in flushes of some
/// hundred KiB: there is little to spare, and many small segments would cost more.
///
/// With [`Placement::with_logged_medium`] commits write the values of medium pairs once, in place of those of
/// large ones. Their way back to their keys reads a page for each then.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Placement {
    large_ratio: f64,
    small_ratio: f64,
    prefix_bytes: u32,
    in_place_levels: u32,
    sizes_of_pairs: bool,
    logs_medium: bool,
    moves: bool,
}

/// How large a pair of key and value is, as a [`Placement`] sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairClass {
    /// The value stays with its key.
    Small,
    /// The value lies outside until its key reaches the lowest levels of the tree.
    Medium,
    /// The value lies outside.
    Large,
}

// Ratios are numbers.
impl Eq for Placement {}

impl Default for Placement {
    fn default() -> Self {
        Self::large()
    }
}

impl Placement {
    /// Every value with its key.
    pub fn inline() -> Self {
        Self {
            large_ratio: 0.0,
            small_ratio: 0.0,
            prefix_bytes: PREFIX_BYTES,
            in_place_levels: 1,
            sizes_of_pairs: false,
            logs_medium: false,
            moves: false,
        }
    }

    /// By the thresholds of Parallax: pairs of more than 60 bytes are medium, those of more than 600 large.
    pub fn hybrid() -> Self {
        Self { large_ratio: LARGE_RATIO, small_ratio: SMALL_RATIO, ..Self::inline() }
    }

    /// Values of pairs of more than 1,536 bytes, as long as they are better off outside: the threshold moves
    /// by itself. The default.
    pub fn large() -> Self {
        Self { large_ratio: DEFAULT_LARGE_RATIO, ..Self::inline() }.with_moving_thresholds(true)
    }

    /// As [`Placement::hybrid`], but with thresholds that move by themselves: values of large pairs are with
    /// their keys where scans would pay more for them than merges do.
    pub fn automatic() -> Self {
        Self::hybrid().with_moving_thresholds(true)
    }

    /// All values but the shortest in value segments.
    pub fn separate() -> Self {
        Self { large_ratio: 1.0, ..Self::inline() }
    }

    /// With another ratio below which pairs are large.
    ///
    /// Errors: `Invalid` unless it is between 0 and 1.
    pub fn with_large_ratio(self, large_ratio: f64) -> Result<Self> {
        if !(0.0..=1.0).contains(&large_ratio) {
            return Err(Error::invalid("the ratio of a placement is a number between 0 and 1"));
        }
        Ok(Self { large_ratio, ..self })
    }

    /// With another ratio below which pairs that are not large are medium.
    ///
    /// Errors: `Invalid` unless it is between 0 and 1.
    pub fn with_small_ratio(self, small_ratio: f64) -> Result<Self> {
        if !(0.0..=1.0).contains(&small_ratio) {
            return Err(Error::invalid("the ratio of a placement is a number between 0 and 1"));
        }
        Ok(Self { small_ratio, ..self })
    }

    /// With another number of key bytes that an index is taken to keep.
    ///
    /// Errors: `Invalid` for none.
    pub fn with_prefix_bytes(self, prefix_bytes: u32) -> Result<Self> {
        if prefix_bytes == 0 {
            return Err(Error::invalid("a placement needs a prefix of at least a byte"));
        }
        Ok(Self { prefix_bytes, ..self })
    }

    /// With another number of levels, from the bottom of the tree upwards, that have the values of medium
    /// pairs with their keys: 1, the bottom alone, or 2. With 2 more is written and less lies outside; where
    /// scans matter that may be worth it (Parallax, fig. 5.4). In trees of nodes the second level is that of
    /// the nodes whose children are leaves.
    ///
    /// Errors: `Invalid` for other numbers.
    pub fn with_in_place_levels(self, in_place_levels: u32) -> Result<Self> {
        if !(1..=IN_PLACE_LEVELS_MAX).contains(&in_place_levels) {
            return Err(Error::invalid(
                "a placement has the values of medium pairs in place in 1 or 2 levels",
            ));
        }
        Ok(Self { in_place_levels, ..self })
    }

    /// Whether the levels of a leveled tree are sized by pairs whose values lie outside for a while, or, as
    /// is the default, by what is merged, which is references in their place (Parallax §3, its two sizes).
    /// By pairs there are fewer and smaller levels above the bottom: less lies outside, and loads may write
    /// more. Other trees have no such sizes.
    #[must_use]
    pub fn with_sizes_of_pairs(self, sizes_of_pairs: bool) -> Self {
        Self { sizes_of_pairs, ..self }
    }

    /// Whether commits that are not synced write the values of medium pairs once, in the order in which they
    /// come, rather than those of large pairs: these are written by flushes then, in the order of their keys.
    /// So segments whose values come back are not sorted (Parallax, fig. 5.4): less is written, and merges at
    /// the bottom of the tree read a page for each value that is not cached. Off by default.
    #[must_use]
    pub fn with_logged_medium(self, logs_medium: bool) -> Self {
        Self { logs_medium, ..self }
    }

    /// Whether the keyspace itself finds out if values of large pairs are better off with their keys, by what
    /// scans and merges pay for them.
    #[must_use]
    pub fn with_moving_thresholds(self, moves: bool) -> Self {
        Self { moves, ..self }
    }

    /// The same with no pair large: where the thresholds have moved to for scans.
    #[must_use]
    pub fn without_large(self) -> Self {
        Self { large_ratio: 0.0, ..self }
    }

    /// Whether the thresholds move by themselves.
    pub fn moves(&self) -> bool {
        self.moves
    }

    /// The ratio below which a pair is large.
    pub fn large_ratio(&self) -> f64 {
        self.large_ratio
    }

    /// The ratio below which a pair that is not large is medium.
    pub fn small_ratio(&self) -> f64 {
        self.small_ratio
    }

    /// The number of key bytes that an index is taken to keep.
    pub fn prefix_bytes(&self) -> u32 {
        self.prefix_bytes
    }

    /// The number of levels, from the bottom upwards, that have the values of medium pairs with their keys.
    pub fn in_place_levels(&self) -> u32 {
        self.in_place_levels
    }

    /// Whether levels are sized by pairs, with values that lie outside for a while.
    pub fn sizes_of_pairs(&self) -> bool {
        self.sizes_of_pairs
    }

    /// Whether commits write the values of medium pairs once, rather than those of large ones.
    pub fn logs_medium(&self) -> bool {
        self.logs_medium
    }

    /// Whether commits may write values once, into value logs.
    pub fn uses_value_logs(&self) -> bool {
        (if self.logs_medium { self.small_ratio } else { self.large_ratio }) > 0.0
    }

    /// Whether the value of a pair of so many bytes is one of these.
    #[inline]
    pub fn goes_to_value_log(&self, key_bytes: usize, value_bytes: usize) -> bool {
        let logged = if self.logs_medium { PairClass::Medium } else { PairClass::Large };
        self.class_of(key_bytes, value_bytes) == logged
    }

    /// Whether every value stays with its key.
    pub fn is_inline(&self) -> bool {
        self.large_ratio == 0.0 && self.small_ratio == 0.0
    }

    /// What a pair of so many bytes is.
    #[inline]
    pub fn class_of(&self, key_bytes: usize, value_bytes: usize) -> PairClass {
        let pair_bytes = (u64_of(key_bytes) + u64_of(value_bytes)) as f64;
        let prefix_bytes = f64::from(self.prefix_bytes);
        if value_bytes < VALUE_BYTES_MIN {
            PairClass::Small
        } else if prefix_bytes < self.large_ratio * pair_bytes {
            PairClass::Large
        } else if prefix_bytes < self.small_ratio * pair_bytes {
            PairClass::Medium
        } else {
            PairClass::Small
        }
    }
}

/// Placements that have names.
fn presets() -> [(&'static str, Placement); 5] {
    [
        ("inline", Placement::inline()),
        ("large", Placement::large()),
        ("hybrid", Placement::hybrid()),
        ("automatic", Placement::automatic()),
        ("separate", Placement::separate()),
    ]
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match presets().iter().find(|(_, preset)| preset == self) {
            Some((name, _)) => f.write_str(name),
            None => {
                let Self { large_ratio, small_ratio, prefix_bytes, in_place_levels, .. } = self;
                write!(f, "large below {large_ratio}, small from {small_ratio}, prefix of {prefix_bytes}")?;
                if *in_place_levels > 1 {
                    write!(f, ", {in_place_levels} levels in place")?;
                }
                if self.sizes_of_pairs {
                    f.write_str(", levels sized by pairs")?;
                }
                if self.logs_medium {
                    f.write_str(", medium values logged")?;
                }
                if self.moves { f.write_str(", moving") } else { Ok(()) }
            }
        }
    }
}

impl FromStr for Placement {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        presets().iter().find(|(preset, _)| *preset == name).map(|(_, preset)| *preset).ok_or_else(|| {
            let names = presets().map(|(name, _)| name).join(", ");
            Error::invalid(format!("there is no placement called {name:?}; there are: {names}"))
        })
    }
}

#[cfg(test)]
mod tests;
