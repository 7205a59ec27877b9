//! Page-partitioned quotient filter, built in bulk: one hash, one page, one probe.
//!
//! A filter over `n` keys is [`partition_count`]`(n)` partitions, laid out one after the other, each exactly
//! [`PARTITION_BYTES`] long, so that a partition and its page header fill one page. Only the sole partition
//! of a small filter is shorter: its bytes are proportional to its keys. A probe picks its partition with
//! [`partition_of`], fetches that one page and asks [`may_contain`].
//!
//! Each partition is a rank-and-select quotient filter (Pandey, Bender, Johnson, Patro: *A General-Purpose
//! Counting Filter*, SIGMOD 2017, §4), without wrap-around; its bytes are described in `partition.rs`. At
//! the default precision a filter takes about 11.5 bits per key and errs on about 0.4 % of absent keys.
//!
//! **Invariants**
//! - Never a false negative: a hash that was given to [`build`] is answered with "maybe", always.
//! - Building never fails. A partition that too many hashes fall into (possible only with hashes that are
//!   not evenly spread) answers "maybe" to everything.
//! - Bytes that are damaged, truncated or hostile are answered with "maybe"; they neither panic nor loop.

mod build;
mod partition;
mod select;

pub use build::{build, bytes, partition_count, partition_of};
pub use partition::{check, may_contain};

/// Bytes of a partition: a page of 4096 bytes less the 40 bytes of its header.
pub const PARTITION_BYTES: usize = 4056;

/// How many bits of each key's hash a filter remembers beside its place, and so how often it errs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Precision {
    /// Eight bits: about 0.4 % false positives, about 11.5 bits per key.
    #[default]
    Bits8,
    /// Sixteen bits: about 0.0015 % false positives, about 21 bits per key.
    Bits16,
}
