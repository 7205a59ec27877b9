//! A write, from the call to the log and the memtable, and what may hold it up.

pub(crate) mod admission;
pub(crate) mod backpressure;
pub(crate) mod batch_format;
pub(crate) mod chosen_buffers;
pub(crate) mod commit;
mod logged_values;
pub(crate) mod long_merges;
pub(crate) mod read_modify_write;
pub(crate) mod space_guard;
pub(crate) mod update_scope;
pub(crate) mod write_pieces;
