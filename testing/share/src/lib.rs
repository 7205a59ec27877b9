//! Share of its short form that a test runs: a tenth under the README's test command, or all of it.
//!
//! **Invariants**
//! - A part uses the same fixed seeds and cases as the whole: the first of them, or every n-th. A test
//!   requires the same part of the whole's coverage, and never nothing.
//! - Only [`VARIABLE`] decides; no test depends on the speed of the machine.

use std::env;

/// Environment variable that the weekly job and the runner of planted bugs set to [`SHORT`], for whole short
/// forms.
pub const VARIABLE: &str = "TESTUDO_TESTS";
/// Its only valid value.
pub const SHORT: &str = "short";

/// Divisor of a tenth.
const PARTS: u64 = 10;

/// Share of its short form that a test runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// The share of the README's test command.
    Tenth,
    /// The share of the weekly job.
    Whole,
}

impl Share {
    /// Returns the share selected by the environment: a tenth, unless the variable is [`SHORT`].
    ///
    /// # Panics
    /// If the variable has another value, because less would run than requested.
    pub fn from_environment() -> Self {
        match env::var(VARIABLE) {
            Err(env::VarError::NotPresent) => Self::Tenth,
            Ok(value) if value == SHORT => Self::Whole,
            other => panic!("{VARIABLE} is {other:?}; it can be {SHORT:?} only"),
        }
    }

    /// Returns its part of an amount, at least one.
    pub fn of(self, whole: u64) -> u64 {
        match self {
            Self::Tenth => whole.div_ceil(PARTS),
            Self::Whole => whole,
        }
    }

    /// Returns the sampling interval, where the whole form tries one case in `every`.
    pub fn one_in(self, every: u64) -> u64 {
        match self {
            Self::Tenth => every * PARTS,
            Self::Whole => every,
        }
    }

    /// Returns all of these, or one in `every` of them starting with number `first`.
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

/// [`Share::of`] for the share selected by the environment.
pub fn part_of(whole: u64) -> u64 {
    Share::from_environment().of(whole)
}

/// [`Share::some_of`] for the share selected by the environment.
pub fn some_of<T>(all: impl IntoIterator<Item = T>, every: usize, first: usize) -> impl Iterator<Item = T> {
    Share::from_environment().some_of(all, every, first)
}

#[cfg(test)]
mod tests;
