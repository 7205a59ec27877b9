//! The files of the log: listing, reading, writing, and their byte formats.

pub(crate) mod reader;
pub(crate) mod store;
pub(crate) mod tail_format;
pub(crate) mod wal_format;
pub(crate) mod writer;
