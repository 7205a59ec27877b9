//! What an opening or a salvage finds in the log, and what the rest of the store must have said of it.

pub(crate) mod drain;
pub(crate) mod evidence;
pub(crate) mod replay;
pub(crate) mod rewrite;
pub(crate) mod survey;
pub(crate) mod unheaded;
