//! How much of its short form a test runs: about a tenth under the README's test command, or all of it.
//!
//! **Invariants**
//! - A part is of the same fixed seeds and cases, from the first on or in turn. A test requires of it the
//!   same part of what it requires of the whole, and never nothing.
//! - Nothing but [`VARIABLE`] decides; no test asks how fast the machine is.

use std::env;

/// The weekly job and the runner of planted bugs set it to [`SHORT`], for whole short forms.
pub const VARIABLE: &str = "TESTUDO_TESTS";
/// Its only value.
pub const SHORT: &str = "short";

/// What a tenth is.
const PARTS: u64 = 10;

/// How much of its short form a test runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// What the README's test command runs.
    Tenth,
    /// What the weekly job runs.
    Whole,
}

impl Share {
    /// What the environment asks for: a tenth, unless it says [`SHORT`].
    ///
    /// # Panics
    /// If the variable has another value, because less would run than was asked for.
    pub fn from_environment() -> Self {
        match env::var(VARIABLE) {
            Err(env::VarError::NotPresent) => Self::Tenth,
            Ok(value) if value == SHORT => Self::Whole,
            other => panic!("{VARIABLE} is {other:?}; it can be {SHORT:?} only"),
        }
    }

    /// Its part of an amount, and at least one.
    pub fn of(self, whole: u64) -> u64 {
        match self {
            Self::Tenth => whole.div_ceil(PARTS),
            Self::Whole => whole,
        }
    }

    /// One in how many is tried, where the whole form tries one in `every`.
    pub fn one_in(self, every: u64) -> u64 {
        match self {
            Self::Tenth => every * PARTS,
            Self::Whole => every,
        }
    }

    /// All of these, or one in `every` of them from number `first` on.
    pub fn some_of<T>(
        self,
        all: impl IntoIterator<Item = T>,
        every: usize,
        first: usize,
    ) -> impl Iterator<Item = T> {
        let (first, every) = if self == Self::Whole { (0, 1) } else { (first % every, every) };
        all.into_iter().skip(first).step_by(every)
    }
}

/// [`Share::of`], as the environment asks for.
pub fn part_of(whole: u64) -> u64 {
    Share::from_environment().of(whole)
}

/// [`Share::some_of`], as the environment asks for.
pub fn some_of<T>(all: impl IntoIterator<Item = T>, every: usize, first: usize) -> impl Iterator<Item = T> {
    Share::from_environment().some_of(all, every, first)
}

#[cfg(test)]
mod tests;
