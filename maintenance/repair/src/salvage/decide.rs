//! Decides the version of a key: that of the runs, that of the log, or one stacked on the other.
//!
//! **Invariants**
//! - A log operation on a key wins over the runs if it is newer than their answer, or if no part of the log
//!   is lost after it: then it is authoritative. Newer operands are stacked on the winner.
//! - No operand is applied twice.
//! - If the value of the newest write is missing, no older version is returned as current.

use testudo_base::{Kind, Seqno, operands_format::begin_stack};

use crate::salvage::{log::Logged, report::LostRange, sweep::Answer};

/// Extent to which the log is complete.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogReach {
    /// Flushed seqno of the keyspace's tree.
    pub(crate) flushed: Seqno,
    /// No later part of the log is lost.
    pub(crate) whole_after: Seqno,
}

/// Version to write for a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) kind: Kind,
    pub(crate) value: Vec<u8>,
    /// There may have been a newer version, which is lost.
    pub(crate) is_older: bool,
    /// Its age is unknown.
    pub(crate) is_uncertain: bool,
}

/// Decides between the `answer` of the runs and the log operations, oldest first, all of which but the first
/// are operands. Returns the version to write, if the key has one, and the loss to report.
pub(crate) fn decide(
    answer: Answer,
    mut operations: Vec<Logged>,
    log: LogReach,
) -> (Option<Verdict>, Option<LostRange>) {
    debug_assert!(operations.iter().skip(1).all(|later| later.kind == Kind::Operands), "see `Logged`");
    debug_assert!(operations.is_sorted_by_key(|operation| operation.seqno), "oldest first");
    let Answer { entry, age, is_uncertain, gap, lost } = answer;
    let known = age.map_or(Seqno(0), |(seqno, _)| seqno).max(log.flushed);
    let missing = operations.first_mut().and_then(|first| first.lost.take());
    let whole = operations.first().filter(|first| first.kind != Kind::Operands).map(|first| first.seqno);
    let verdict = |entry: Option<(Kind, Vec<u8>)>, is_older, is_uncertain| {
        let (kind, value) = entry.filter(|(kind, _)| *kind != Kind::Tombstone)?;
        Some(Verdict { kind, value, is_older, is_uncertain })
    };
    match (whole, missing) {
        (Some(first), Some(lost)) if first > known => (verdict(entry, true, is_uncertain), Some(lost)),
        (Some(first), None) if first > log.whole_after => {
            (verdict(stacked(None, operations), false, false), None)
        }
        (Some(first), None) if first > known => {
            let gap = gap.map_or(Seqno(0), |(seqno, _)| seqno);
            (verdict(stacked(None, operations), first <= gap, is_uncertain), None)
        }
        _ => {
            // Operands already in the runs must not be applied twice.
            let newer = operations.into_iter().filter(|operation| operation.seqno > known);
            (verdict(stacked(entry, newer), gap.is_some(), is_uncertain), lost)
        }
    }
}

/// The entry that results from operations on top of an older one.
fn stacked(
    older: Option<(Kind, Vec<u8>)>,
    operations: impl IntoIterator<Item = Logged>,
) -> Option<(Kind, Vec<u8>)> {
    operations.into_iter().fold(older, |older, Logged { kind, value, .. }| {
        if kind != Kind::Operands {
            return Some((kind, value));
        }
        let (kind, mut stack) = match older {
            Some((kind @ (Kind::Operands | Kind::Unmerged), stack)) => (kind, stack),
            whole => {
                let (kind, value) = whole.unwrap_or((Kind::Tombstone, Vec::new()));
                let mut stack = Vec::new();
                (begin_stack(kind, &value, &mut stack), stack)
            }
        };
        stack.extend_from_slice(&value);
        Some((kind, stack))
    })
}

#[cfg(test)]
mod tests;
