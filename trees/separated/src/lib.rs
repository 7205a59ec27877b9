//! A tree of any family with its large values in separate value segments (decision 0045).
//!
//! [`SeparatedTree`] wraps a tree. When the tree writes runs, the wrapper puts values into segments and
//! writes references instead. For `get` it reads the values of returned references; cursors return the
//! references. The tree merges references like values, and reports dropped ones.
//!
//! **Invariants**
//! - A value is written before the reference to it, in the same edit.
//! - The garbage counts of an edit are exactly the drops of its own work.

mod objects;
mod placing;
mod reclaim;
mod resolve;
mod tree;
mod updates;

pub use objects::{logged_runs, put_value_log, read_layout, release_value_log, split_objects, value_logs};
pub use placing::{Settings, Watched, is_too_small_for_segments};
pub use tree::SeparatedTree;
