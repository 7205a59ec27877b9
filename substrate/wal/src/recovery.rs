//! Recovery: reading the log for an opening or a salvage, and comparing it with the rest of the store.

pub(crate) mod drain;
pub(crate) mod evidence;
pub(crate) mod replay;
pub(crate) mod rewrite;
pub(crate) mod survey;
pub(crate) mod unheaded;
