//! The history of ten public repositories, for `testudo demo`.
//!
//! `fixtures/README.md` says where it comes from and how its lines look.

/// The trace, compressed with zstd; in the format [`TraceFormat::Git`](crate::TraceFormat::Git).
pub const GIT_TRACE: &[u8] = include_bytes!("../fixtures/git_trace.txt.zst");
