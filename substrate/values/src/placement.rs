//! Placement of values: with their keys, or outside the runs of their tree (PAPERS P1).
//!
//! Outside, a merge moves a reference in place of the value. The saving is the length of the value, since
//! runs store whole keys. For large values it is worth the garbage collection of their segments. For medium
//! values it is not: they are stored outside only until they reach the bottom of the tree.
//!
//! Parallax classifies a pair by p = prefix bytes / (key and value bytes), because its index keeps a prefix
//! of each key. [`Placement::by_ratios`] converts such ratios to lengths of values.
//!
//! Scans read large values more cheaply next to their keys. With moving thresholds (decision 0053), a
//! keyspace stores them outside while that saves merges more than it costs scans.
//!
//! **Invariants**
//! - Thresholds are at least [`VALUE_BYTES_MIN`], and the medium one is at most the large one.

use std::{fmt, str::FromStr};

use testudo_base::{Error, Result, num::u64_of};

/// Minimum length of a value stored outside: a reference takes as much.
const VALUE_BYTES_MIN: u64 = 32;
/// No value has this length.
const NONE: u64 = u64::MAX;
/// Default threshold for large values. Scans of shorter values outside cost more, at one page per value, than
/// loads save (decision 0053).
const DEFAULT_LARGE_FROM: u64 = 1_536;
/// Thresholds of [`Placement::hybrid`]: the lengths of Parallax's T_SM = 0.2 and T_ML = 0.02, see
/// [`Placement::by_ratios`], with its prefix of 12 bytes.
const HYBRID_MEDIUM_FROM: u64 = 48;
const HYBRID_LARGE_FROM: u64 = 588;
/// Maximum number of lowest levels that hold medium values (PAPERS P3).
const IN_PLACE_LEVELS_MAX: u32 = 2;

/// Placement of a keyspace's values when they leave memory, by their length.
///
/// A value is *large* from [`Placement::large_from`] bytes, else *medium* from [`Placement::medium_from`]
/// bytes, else *small*. Values below 32 bytes are always small. Large values go to value segments, and the
/// tree merges references to them. Medium values go to value segments, too, but return to their keys at the
/// bottom of the tree, or at the level above it, see [`Placement::with_in_place_levels`]. Small values stay
/// with their keys. The length of the key does not matter: runs store whole keys, next to a value or to the
/// reference to it.
///
/// The default moves its threshold, and values are large from 1,536 bytes.
///
/// Unsynced commits write large values once, in commit order. A scan over keys written in another order
/// therefore reads a page for each such value. With [`Placement::with_moving_thresholds`], that cost is
/// measured. Once scans have paid more than merges have saved, the values return to their keys, and values
/// are at most medium from then on. Once merges have paid more, large values go outside again. Values of more
/// than 4 KiB on average stay outside. Moving thresholds store no values outside in keyspaces of a few MiB or
/// in flushes of a few hundred KiB: the savings are small, and many small segments would cost more.
///
/// As text, a placement is a name of [`Placement::presets`], or has thresholds in bytes, as in
/// `large=4096,medium=64,moving`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// [`NONE`] if no value is medium.
    medium_from: u64,
    /// [`NONE`] if no value is large.
    large_from: u64,
    in_place_levels: u32,
    sizes_of_pairs: bool,
    logs_medium: bool,
    moves: bool,
}

/// Size class of a value under a [`Placement`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueClass {
    /// The value stays with its key.
    Small,
    /// The value is outside until its key reaches the lowest levels of the tree.
    Medium,
    /// The value is outside permanently.
    Large,
}

impl Default for Placement {
    /// Stores values from 1,536 bytes on outside while that pays off.
    fn default() -> Self {
        Self { large_from: DEFAULT_LARGE_FROM, moves: true, ..Self::inline() }
    }
}

impl Placement {
    /// Keeps every value with its key.
    pub const fn inline() -> Self {
        Self {
            medium_from: NONE,
            large_from: NONE,
            in_place_levels: 1,
            sizes_of_pairs: false,
            logs_medium: false,
            moves: false,
        }
    }

    /// Places values by their length in bytes. With `None` there are no medium, or no large values.
    /// Thresholds below 32 act like 32.
    ///
    /// Errors: `Invalid` if the threshold for medium values is above that for large ones.
    pub fn by_value_bytes(medium_from: Option<u64>, large_from: Option<u64>) -> Result<Self> {
        let from = |bytes: Option<u64>| bytes.map_or(NONE, |bytes| bytes.max(VALUE_BYTES_MIN));
        if let (Some(medium), Some(large)) = (medium_from, large_from)
            && from(Some(medium)) > from(Some(large))
        {
            let message =
                format!("medium values, from {medium} bytes, must be shorter than large ones, from {large}");
            return Err(Error::invalid(message));
        }
        Ok(Self { medium_from: from(medium_from), large_from: from(large_from), ..Self::inline() })
    }

    /// Places values by the ratios of Parallax (thesis, §3), whose p is `prefix_bytes` / (key and value
    /// bytes): the part of a pair that its index keeps. Pairs are large below `large_ratio`, else medium
    /// below `medium_ratio`. The thesis has 12 bytes, 0.02 and 0.2.
    ///
    /// Here runs store whole keys, so that p does not describe the saving for long keys. A ratio therefore
    /// becomes the length of the value that it separates where keys are as long as the prefix:
    /// `prefix_bytes / ratio - prefix_bytes`, rounded. With a ratio of 0 there are no such values.
    ///
    /// Errors: `Invalid` for no prefix, a ratio outside 0 to 1, or a medium ratio, not 0, below the large
    /// one.
    pub fn by_ratios(prefix_bytes: u32, medium_ratio: f64, large_ratio: f64) -> Result<Self> {
        if prefix_bytes == 0 {
            return Err(Error::invalid("a placement needs a prefix of at least one byte"));
        }
        let from = |ratio: f64| {
            if !(0.0..=1.0).contains(&ratio) {
                return Err(Error::invalid("the ratio of a placement must be between 0 and 1"));
            }
            Ok((ratio > 0.0).then(|| value_bytes_of(prefix_bytes, ratio)))
        };
        Self::by_value_bytes(from(medium_ratio)?, from(large_ratio)?)
    }

    /// Uses the thresholds of Parallax: values from 48 bytes on are medium, from 588 bytes on large.
    pub const fn hybrid() -> Self {
        Self { medium_from: HYBRID_MEDIUM_FROM, large_from: HYBRID_LARGE_FROM, ..Self::inline() }
    }

    /// Stores all values of 32 bytes and more in value segments.
    pub const fn separate() -> Self {
        Self { large_from: VALUE_BYTES_MIN, ..Self::inline() }
    }

    /// Named placements. `large` is the default; `automatic` is `hybrid` with moving thresholds.
    pub fn presets() -> [(&'static str, Self); 5] {
        [
            ("inline", Self::inline()),
            ("large", Self::default()),
            ("hybrid", Self::hybrid()),
            ("automatic", Self::hybrid().with_moving_thresholds(true)),
            ("separate", Self::separate()),
        ]
    }

    /// Sets the number of levels, counted from the bottom of the tree, that hold medium values with their
    /// keys: 1 (the bottom only) or 2. With 2, more is written and less is stored outside, which may pay off
    /// for scans (Parallax, fig. 5.4). In trees of nodes the second level is that of the nodes whose children
    /// are leaves.
    ///
    /// Errors: `Invalid` for other numbers.
    pub fn with_in_place_levels(self, in_place_levels: u32) -> Result<Self> {
        if !(1..=IN_PLACE_LEVELS_MAX).contains(&in_place_levels) {
            return Err(Error::invalid("a placement keeps medium values in place in 1 or 2 levels"));
        }
        Ok(Self { in_place_levels, ..self })
    }

    /// **Experiment**, without a measured gain; it may be removed. Sets whether the levels of a leveled tree
    /// are sized by whole pairs, including values outside, or, by default, by the merged bytes, which include
    /// only their references (Parallax §3, its two sizes). Sizing by pairs gives fewer and smaller levels
    /// above the bottom: less is stored outside, and loads may write more. Other trees ignore this.
    #[must_use]
    pub const fn with_sizes_of_pairs(self, sizes_of_pairs: bool) -> Self {
        Self { sizes_of_pairs, ..self }
    }

    /// **Experiment**, without a measured gain; it may be removed. Sets whether unsynced commits write medium
    /// values once, in commit order, instead of large ones, which flushes then write in key order. Segments
    /// whose values return are then unsorted (Parallax, fig. 5.4): less is written, and merges at the bottom
    /// of the tree read a page for each value that is not cached. Off by default.
    #[must_use]
    pub const fn with_logged_medium(self, logs_medium: bool) -> Self {
        Self { logs_medium, ..self }
    }

    /// Sets whether the keyspace decides by the measured costs of scans and merges if large values are stored
    /// with their keys.
    #[must_use]
    pub const fn with_moving_thresholds(self, moves: bool) -> Self {
        Self { moves, ..self }
    }

    /// Returns the same placement with no value large, as thresholds move for scans.
    #[doc(hidden)]
    #[must_use]
    pub const fn without_large(self) -> Self {
        Self { large_from: NONE, ..self }
    }

    /// Whether the thresholds move automatically.
    pub const fn moves(&self) -> bool {
        self.moves
    }

    /// Length from which values are large; `None` if none are.
    pub fn large_from(&self) -> Option<u64> {
        Some(self.large_from).filter(|bytes| *bytes != NONE)
    }

    /// Length from which values that are not large are medium; `None` if none are.
    pub fn medium_from(&self) -> Option<u64> {
        Some(self.medium_from).filter(|bytes| *bytes != NONE)
    }

    /// Number of levels, counted from the bottom, that hold medium values with their keys.
    pub const fn in_place_levels(&self) -> u32 {
        self.in_place_levels
    }

    /// Whether levels are sized by whole pairs, including values that are outside temporarily.
    pub const fn sizes_of_pairs(&self) -> bool {
        self.sizes_of_pairs
    }

    /// Whether commits write medium values once, instead of large ones.
    pub const fn logs_medium(&self) -> bool {
        self.logs_medium
    }

    /// Whether commits may write values to value logs.
    #[doc(hidden)]
    pub const fn uses_value_logs(&self) -> bool {
        (if self.logs_medium { self.medium_from } else { self.large_from }) != NONE
    }

    /// Whether commits write a value of this length to a value log.
    #[doc(hidden)]
    #[inline]
    pub fn goes_to_value_log(&self, value_bytes: usize) -> bool {
        let logged = if self.logs_medium { ValueClass::Medium } else { ValueClass::Large };
        self.class_of(value_bytes) == logged
    }

    /// Whether every value stays with its key.
    pub const fn is_inline(&self) -> bool {
        self.large_from == NONE && self.medium_from == NONE
    }

    /// Returns the class of a value of this length.
    #[doc(hidden)]
    #[inline]
    pub const fn class_of(&self, value_bytes: usize) -> ValueClass {
        let value_bytes = u64_of(value_bytes);
        if value_bytes >= self.large_from {
            ValueClass::Large
        } else if value_bytes >= self.medium_from {
            ValueClass::Medium
        } else {
            ValueClass::Small
        }
    }
}

/// Length of the values that a ratio separates, see [`Placement::by_ratios`].
#[expect(clippy::cast_possible_truncation, reason = "a greater length is that of no value")]
fn value_bytes_of(prefix_bytes: u32, ratio: f64) -> u64 {
    let prefix_bytes = f64::from(prefix_bytes);
    (prefix_bytes / ratio - prefix_bytes).round() as u64
}

impl fmt::Display for Placement {
    /// Writes the text that [`Placement::from_str`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = Self::presets().iter().find(|(_, preset)| preset == self) {
            return f.write_str(name);
        }
        let mut terms = Vec::new();
        terms.extend(self.large_from().map(|bytes| format!("large={bytes}")));
        terms.extend(self.medium_from().map(|bytes| format!("medium={bytes}")));
        if self.in_place_levels > 1 {
            terms.push(format!("in-place-levels={}", self.in_place_levels));
        }
        for (is_set, term) in [
            (self.sizes_of_pairs, "sizes-of-pairs"),
            (self.logs_medium, "logged-medium"),
            (self.moves, "moving"),
        ] {
            terms.extend(is_set.then(|| term.to_owned()));
        }
        f.write_str(&terms.join(","))
    }
}

impl FromStr for Placement {
    type Err = Error;

    /// Reads a name of [`Placement::presets`], or terms with commas between them: `large=BYTES`,
    /// `medium=BYTES`, `in-place-levels=2`, `moving`.
    fn from_str(text: &str) -> Result<Self> {
        if let Some((_, preset)) = Self::presets().iter().find(|(name, _)| *name == text) {
            return Ok(*preset);
        }
        let unknown = || {
            let names = Self::presets().map(|(name, _)| name).join(", ");
            Error::invalid(format!(
                "unknown placement {text:?}; known placements: {names}, or thresholds in bytes of a value: \
                 large=4096,medium=64,moving"
            ))
        };
        let number = |digits: &str| digits.parse::<u64>().map_err(|_| unknown());
        let (mut medium_from, mut large_from, mut others) = (None, None, Self::inline());
        for term in text.split(',') {
            others = match term.split_once('=') {
                Some(("large", bytes)) => {
                    large_from = Some(number(bytes)?);
                    others
                }
                Some(("medium", bytes)) => {
                    medium_from = Some(number(bytes)?);
                    others
                }
                Some(("in-place-levels", levels)) => {
                    others.with_in_place_levels(levels.parse().map_err(|_| unknown())?)?
                }
                None if term == "moving" => others.with_moving_thresholds(true),
                None if term == "sizes-of-pairs" => others.with_sizes_of_pairs(true),
                None if term == "logged-medium" => others.with_logged_medium(true),
                _ => return Err(unknown()),
            };
        }
        let Self { medium_from, large_from, .. } = Self::by_value_bytes(medium_from, large_from)?;
        Ok(Self { medium_from, large_from, ..others })
    }
}

#[cfg(test)]
mod tests;
