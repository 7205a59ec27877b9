//! A tree of any family that keeps large values in value segments beside it (decision 0045).
//!
//! [`SeparatedTree`] stands between the engine and a tree: where the tree writes runs it puts values into
//! segments and references in their place. Of what the tree answers to `get` it reads the values; cursors
//! show references. The tree merges references as it merges values, and reports those that it drops.
//!
//! **Invariants**
//! - A value is written before the reference to it, in one edit with it.
//! - What an edit says of dead values is what the work of that very edit has dropped.

mod objects;
mod placing;
mod reclaim;
mod resolve;
mod tree;
mod updates;

pub use objects::{logged_runs, put_value_log, read_layout, release_value_log, split_objects, value_logs};
pub use placing::{Settings, Watched, is_too_small_for_segments};
pub use tree::SeparatedTree;
