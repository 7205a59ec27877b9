//! Reading a range: a cursor over everything that may hold its keys, and what scans cost.

pub(crate) mod node_parts;
pub(crate) mod scan_charges;
