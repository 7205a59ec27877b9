//! The nodes in memory: their contents, assembly of the next trunk, encoding, and checks.
//!
//! Nodes are immutable; a change makes new ones from the changed leaf up to the root.

pub(crate) mod assemble;
pub(crate) mod concatenate;
pub(crate) mod invariants;
pub(crate) mod layout;
pub(crate) mod load;
pub(crate) mod node;
pub(crate) mod node_format;
pub(crate) mod references;
