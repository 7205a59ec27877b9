//! The bytes of a run: blocks, the tables that find them, the footer, and what a reference to a run says.
//!
//! Nothing outside this folder knows them.

pub(crate) mod block;
pub(crate) mod builder;
pub(crate) mod find_block;
pub(crate) mod footer;
pub(crate) mod key_ends;
pub(crate) mod long_separators;
pub(crate) mod replaced_pages;
pub(crate) mod run_ref;
