//! Reading a range: a cursor over everything that may hold its keys, and what scans cost.

pub(crate) mod read_forecast;
pub(crate) mod scan_charges;
pub(crate) mod tree_cursor;
