//! State of commits: their order, payload format and back-pressure.
//!
//! **Invariants**
//! - Stripes are locked before the commit lock, and seqnos are assigned under the commit lock.

pub mod backpressure;
pub mod batch_format;
pub mod behind;
pub mod buffered_keyspaces;
pub mod commit_order;
pub mod delays;
