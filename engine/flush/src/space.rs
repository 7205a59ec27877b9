//! Space of the device: the space held on a nearly full one, reclamation, and release to the file system.
//!
//! **Invariants**
//! - Space is taken, held and released under the flush lock.

pub mod give_back;
pub mod hold_space;
pub mod reclaim;
