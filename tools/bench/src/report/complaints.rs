//! Wrong answers of the store: all are counted, and the first few are described on standard error.

use std::sync::atomic::{AtomicU64, Ordering};

const DESCRIBED_MAX: u64 = 5;

/// An error with the reason if an answer is wrong.
pub(crate) type Verdict = Result<(), String>;

/// Counts wrong answers.
#[derive(Debug, Default)]
pub(crate) struct Complaints(AtomicU64);

impl Complaints {
    pub(crate) fn add(&self, reason: &str) {
        let earlier = self.0.fetch_add(1, Ordering::Relaxed);
        if earlier < DESCRIBED_MAX {
            eprintln!("wrong answer: {reason}");
        } else if earlier == DESCRIBED_MAX {
            eprintln!("wrong answer: further ones are counted only");
        }
    }

    /// Counts the answer if it is wrong.
    #[inline]
    pub(crate) fn note(&self, verdict: Verdict) {
        if let Err(reason) = verdict {
            self.add(&reason);
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
