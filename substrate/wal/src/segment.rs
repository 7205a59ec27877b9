//! The files of the log: which there are, how they are written and read, and their bytes.

pub(crate) mod reader;
pub(crate) mod store;
pub(crate) mod tail_format;
pub(crate) mod wal_format;
pub(crate) mod writer;
