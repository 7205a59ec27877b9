//! One thing that is wrong, and where.

use std::fmt;

/// What a rule found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Path from the root of the checkout.
    pub file: String,
    /// Line, counted from 1.
    pub line: usize,
    /// What is wrong and, where it is not plain, what to do.
    pub message: String,
}

impl Finding {
    pub(crate) fn new(file: &str, line: usize, message: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}
