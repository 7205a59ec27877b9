//! The tree of nodes in memory: what a node holds, how the next trunk is put together, its bytes, its checks.
//!
//! Nodes are immutable; a change makes new ones from the changed leaf to the root.

pub(crate) mod assemble;
pub(crate) mod concatenate;
pub(crate) mod invariants;
pub(crate) mod layout;
pub(crate) mod load;
pub(crate) mod node;
pub(crate) mod node_format;
pub(crate) mod references;
