//! Page-partitioned quotient filter, built in bulk: one hash, one page, one probe.
//!
//! A filter over `n` keys consists of [`partition_count`]`(n)` consecutive partitions, each exactly
//! [`PARTITION_BYTES`] long, so that a partition and its page header fill one page. Only the sole partition
//! of a small filter is shorter: its size is proportional to its keys. A probe picks its partition with
//! [`partition_of`], reads that page and calls [`may_contain`].
//!
//! Each partition is a rank-and-select quotient filter (Pandey, Bender, Johnson, Patro: *A General-Purpose
//! Counting Filter*, SIGMOD 2017, §4), without wrap-around; `partition.rs` describes its layout. A filter
//! takes about 11.5 bits per key, with a false positive rate of about 0.4 %. Filters with remainders of 16
//! bits, as earlier builds could write, are read as well.
//!
//! **Invariants**
//! - No false negatives: for every hash passed to [`build`] the answer is "maybe".
//! - Building never fails. A partition that gets too many hashes (possible only if hashes are not evenly
//!   distributed) answers "maybe" to everything.
//! - Damaged, truncated or hostile bytes are answered with "maybe"; they cause neither a panic nor a loop.

mod build;
mod partition;
mod select;

pub use build::{build, bytes, partition_count, partition_of};
pub use partition::{check, may_contain};

/// Bytes of a partition: a page of 4096 bytes less the 40 bytes of its header.
pub const PARTITION_BYTES: usize = 4056;
