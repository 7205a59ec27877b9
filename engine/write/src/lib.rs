//! Commits: from the call to the log and the memtable, with everything that may delay them.
//!
//! **Invariants**
//! - A commit gets its seqno, its place in the log and its memtables in one critical section.

#![expect(missing_docs, reason = "fields of internal state, documented by their names")]

pub mod admission;
pub mod commit;
pub mod known_long_values;
pub mod logged_values;
pub mod long_merges;
pub mod long_values;
pub mod read_modify_write;
