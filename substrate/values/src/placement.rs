//! Placement of values: with their keys, or outside the runs of their tree (PAPERS P1).
//!
//! Parallax classifies a pair by p = prefix bytes / (key and value bytes): the part of the pair that an index
//! keeps. The smaller p, the less data merges move if the value is stored elsewhere. For large pairs this is
//! worth the garbage collection of their segments. For medium pairs it is not: their values are stored
//! outside only until they reach the bottom of the tree.
//!
//! Scans read values of large pairs more cheaply next to their keys. With moving thresholds (decision 0053),
//! a keyspace stores them outside while that saves merges more than it costs scans.
//!
//! **Invariants**
//! - Ratios are between 0 and 1.

use std::{fmt, str::FromStr};

use testudo_base::{Error, Result, num::u64_of};

/// Minimum length of a value stored outside: a reference takes as much.
const VALUE_BYTES_MIN: usize = 32;
/// Parallax's threshold for large pairs (T_ML).
const LARGE_RATIO: f64 = 0.02;
/// Parallax's threshold for medium pairs (T_SM).
const SMALL_RATIO: f64 = 0.2;
/// Default threshold for large pairs: from 1,536 bytes on. Scans of shorter values outside cost more, at one
/// page per value, than loads save (decision 0053).
const DEFAULT_LARGE_RATIO: f64 = 1.0 / 128.0;
/// Parallax's estimate of the key bytes that an index keeps.
const PREFIX_BYTES: u32 = 12;
/// Maximum number of lowest levels that hold the values of medium pairs (PAPERS P3).
const IN_PLACE_LEVELS_MAX: u32 = 2;

/// Placement of a keyspace's values when they leave memory.
///
/// With p = `prefix_bytes / (bytes of key and value)`, a pair of key and value is *large* if p is below
/// `large_ratio`, else *medium* if p is below `small_ratio`, else *small*. Values of large pairs go to value
/// segments, and the tree merges references to them. Values of medium pairs go to value segments, too, but
/// return to their keys at the bottom of the tree, or at the level above it, see
/// [`Placement::with_in_place_levels`]. Values of small pairs stay with their keys.
///
/// Unsynced commits write the values of large pairs once, in commit order. A scan over keys written in
/// another order therefore reads a page for each such value. With [`Placement::with_moving_thresholds`], that
/// cost is measured. Once scans have paid more than merges have saved, the values return to their keys, and
/// pairs are at most medium from then on. Once merges have paid more, values of large pairs go outside again.
/// Values of more than 4 KiB on average stay outside. Moving thresholds store no values outside in keyspaces
/// of a few MiB or in flushes of a few hundred KiB: the savings are small, and many small segments would cost
/// more.
///
/// With [`Placement::with_logged_medium`], commits write the values of medium pairs once, instead of those of
/// large ones. Returning them to their keys then reads a page per value.
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

/// Size class of a pair of key and value under a [`Placement`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairClass {
    /// The value stays with its key.
    Small,
    /// The value is outside until its key reaches the lowest levels of the tree.
    Medium,
    /// The value is outside permanently.
    Large,
}

// Ratios are never NaN.
impl Eq for Placement {}

impl Default for Placement {
    fn default() -> Self {
        Self::large()
    }
}

impl Placement {
    /// Keeps every value with its key.
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

    /// Uses the thresholds of Parallax: pairs of more than 60 bytes are medium, those of more than 600 large.
    pub fn hybrid() -> Self {
        Self { large_ratio: LARGE_RATIO, small_ratio: SMALL_RATIO, ..Self::inline() }
    }

    /// Stores values of pairs of more than 1,536 bytes outside while that pays off: the threshold moves
    /// automatically. The default.
    pub fn large() -> Self {
        Self { large_ratio: DEFAULT_LARGE_RATIO, ..Self::inline() }.with_moving_thresholds(true)
    }

    /// Like [`Placement::hybrid`], but with moving thresholds: values of large pairs are with their keys
    /// where scans would otherwise pay more than merges save.
    pub fn automatic() -> Self {
        Self::hybrid().with_moving_thresholds(true)
    }

    /// Stores all but the shortest values in value segments.
    pub fn separate() -> Self {
        Self { large_ratio: 1.0, ..Self::inline() }
    }

    /// Sets the ratio below which pairs are large.
    ///
    /// Errors: `Invalid` unless the ratio is between 0 and 1.
    pub fn with_large_ratio(self, large_ratio: f64) -> Result<Self> {
        if !(0.0..=1.0).contains(&large_ratio) {
            return Err(Error::invalid("the ratio of a placement must be between 0 and 1"));
        }
        Ok(Self { large_ratio, ..self })
    }

    /// Sets the ratio below which pairs that are not large are medium.
    ///
    /// Errors: `Invalid` unless the ratio is between 0 and 1.
    pub fn with_small_ratio(self, small_ratio: f64) -> Result<Self> {
        if !(0.0..=1.0).contains(&small_ratio) {
            return Err(Error::invalid("the ratio of a placement must be between 0 and 1"));
        }
        Ok(Self { small_ratio, ..self })
    }

    /// Sets the assumed number of key bytes that an index keeps.
    ///
    /// Errors: `Invalid` for 0.
    pub fn with_prefix_bytes(self, prefix_bytes: u32) -> Result<Self> {
        if prefix_bytes == 0 {
            return Err(Error::invalid("a placement needs a prefix of at least one byte"));
        }
        Ok(Self { prefix_bytes, ..self })
    }

    /// Sets the number of levels, counted from the bottom of the tree, that hold the values of medium pairs
    /// with their keys: 1 (the bottom only) or 2. With 2, more is written and less is stored outside, which
    /// may pay off for scans (Parallax, fig. 5.4). In trees of nodes the second level is that of the nodes
    /// whose children are leaves.
    ///
    /// Errors: `Invalid` for other numbers.
    pub fn with_in_place_levels(self, in_place_levels: u32) -> Result<Self> {
        if !(1..=IN_PLACE_LEVELS_MAX).contains(&in_place_levels) {
            return Err(Error::invalid("a placement keeps values of medium pairs in place in 1 or 2 levels"));
        }
        Ok(Self { in_place_levels, ..self })
    }

    /// Sets whether the levels of a leveled tree are sized by whole pairs, including values outside, or, by
    /// default, by the merged bytes, which include only their references (Parallax §3, its two sizes).
    /// Sizing by pairs gives fewer and smaller levels above the bottom: less is stored outside, and loads may
    /// write more. Other trees ignore this.
    #[must_use]
    pub fn with_sizes_of_pairs(self, sizes_of_pairs: bool) -> Self {
        Self { sizes_of_pairs, ..self }
    }

    /// Sets whether unsynced commits write the values of medium pairs once, in commit order, instead of those
    /// of large pairs, which flushes then write in key order. Segments whose values return are then unsorted
    /// (Parallax, fig. 5.4): less is written, and merges at the bottom of the tree read a page for each value
    /// that is not cached. Off by default.
    #[must_use]
    pub fn with_logged_medium(self, logs_medium: bool) -> Self {
        Self { logs_medium, ..self }
    }

    /// Sets whether the keyspace decides by the measured costs of scans and merges if values of large pairs
    /// are stored with their keys.
    #[must_use]
    pub fn with_moving_thresholds(self, moves: bool) -> Self {
        Self { moves, ..self }
    }

    /// Returns the same placement with no pair large, as thresholds move for scans.
    #[must_use]
    pub fn without_large(self) -> Self {
        Self { large_ratio: 0.0, ..self }
    }

    /// Whether the thresholds move automatically.
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

    /// Assumed number of key bytes that an index keeps.
    pub fn prefix_bytes(&self) -> u32 {
        self.prefix_bytes
    }

    /// Number of levels, counted from the bottom, that hold the values of medium pairs with their keys.
    pub fn in_place_levels(&self) -> u32 {
        self.in_place_levels
    }

    /// Whether levels are sized by whole pairs, including values that are outside temporarily.
    pub fn sizes_of_pairs(&self) -> bool {
        self.sizes_of_pairs
    }

    /// Whether commits write the values of medium pairs once, instead of those of large ones.
    pub fn logs_medium(&self) -> bool {
        self.logs_medium
    }

    /// Whether commits may write values to value logs.
    pub fn uses_value_logs(&self) -> bool {
        (if self.logs_medium { self.small_ratio } else { self.large_ratio }) > 0.0
    }

    /// Whether commits write the value of a pair of this size to a value log.
    #[inline]
    pub fn goes_to_value_log(&self, key_bytes: usize, value_bytes: usize) -> bool {
        let logged = if self.logs_medium { PairClass::Medium } else { PairClass::Large };
        self.class_of(key_bytes, value_bytes) == logged
    }

    /// Whether every value stays with its key.
    pub fn is_inline(&self) -> bool {
        self.large_ratio == 0.0 && self.small_ratio == 0.0
    }

    /// Returns the class of a pair of this size.
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

/// Named placements.
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
            Error::invalid(format!("unknown placement {name:?}; known placements: {names}"))
        })
    }
}

#[cfg(test)]
mod tests;
