//! State of background work: executors, idle detection, drop totals and timings of stages.
//!
//! **Invariants**
//! - Nothing here starts a flush or a job; the crates above do.

pub mod background_work;
pub mod drop_totals;
pub mod executor;
pub mod idle;
pub mod job_limits;
pub mod jobs_in_progress;
pub mod stages;
