//! Range reads: a cursor over all sources of a range.

pub(crate) mod node_parts;
