//! The write-ahead log: record framing, segments, group commit, replay.
