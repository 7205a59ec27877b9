//! The concurrent ordered write buffer.
