//! TODO

pub mod background_work;
pub mod drop_totals;
pub mod executor;
pub mod idle;
pub mod stages;
