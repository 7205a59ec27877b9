//! The history of ten public repositories, for `testudo demo`.
//!
//! `fixtures/README.md` documents its origin and line format.

/// The trace, zstd-compressed, in the format [`TraceFormat::Git`](crate::TraceFormat::Git).
pub const GIT_TRACE: &[u8] = include_bytes!("../fixtures/git_trace.txt.zst");
