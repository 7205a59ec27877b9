//! Reads of possibly damaged runs, for verification, salvage and dumps.

pub(crate) mod check;
pub(crate) mod found_pages;
pub(crate) mod inspect;
pub(crate) mod lenient_cursor;
pub(crate) mod lenient_filter;
