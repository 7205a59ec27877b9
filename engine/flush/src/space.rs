//! TODO

pub mod give_back;
pub mod hold_space;
pub mod reclaim;
