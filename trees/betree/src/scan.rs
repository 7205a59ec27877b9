//! Range reads: a cursor over all sources of a range, and the cost of scans.

pub(crate) mod node_parts;
pub(crate) mod scan_charges;
