//! TODO

pub mod names_beside;
pub mod pieces;
pub mod pieces_format;
pub mod tail_values_format;
pub mod value_logs;
