//! On-disk format of a run: blocks, index structures, footer, and references to runs.
//!
//! Only this folder encodes and decodes it.

pub(crate) mod block;
pub(crate) mod builder;
pub(crate) mod find_block;
pub(crate) mod footer;
pub(crate) mod key_ends;
pub(crate) mod long_separators;
pub(crate) mod map_page;
pub(crate) mod map_ref;
pub(crate) mod replaced_pages;
pub(crate) mod run_ref;
pub(crate) mod slot_group;
pub(crate) mod writing;
