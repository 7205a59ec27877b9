//! What becomes of a key: what the runs say of it, what the log says, or one on top of the other.
//!
//! **Invariants**
//! - The log's operation on a key wins over the runs if it is newer than what they say, or if nothing of the
//!   log is lost after it: then it is the truth. Operands on top of it, or of what the runs say, go with it.
//! - No operand counts twice.
//! - Where the value of the newest write is missing, nothing older is given back as current.

use testudo_base::{Kind, Seqno, operands_format::begin_stack};

use crate::salvage::{log::Logged, report::LostRange, sweep::Answer};

/// How far the log is to be believed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogReach {
    /// What the keyspace's tree has of it.
    pub(crate) flushed: Seqno,
    /// Nothing is lost of it after this.
    pub(crate) whole_after: Seqno,
}

/// What is written for a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) kind: Kind,
    pub(crate) value: Vec<u8>,
    /// There may have been a newer version, which is lost.
    pub(crate) is_older: bool,
    /// Nobody knows how old it is.
    pub(crate) is_uncertain: bool,
}

/// Decides by what the runs say, `answer`, and the operations of the log, oldest first, of which
/// all but the first are operands. No verdict if the key has no value; and what is lost with it.
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
            // What the runs hold already must not be counted twice.
            let newer = operations.into_iter().filter(|operation| operation.seqno > known);
            (verdict(stacked(entry, newer), gap.is_some(), is_uncertain), lost)
        }
    }
}

/// The entry that operations make on top of an older one.
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
