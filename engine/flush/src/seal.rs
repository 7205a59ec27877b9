//! TODO

pub mod begin_value_log;
pub mod seal_buffers;
pub mod sealing;
