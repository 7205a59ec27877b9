//! Bε-trees whose nodes refer to runs: one trunk, and the TurtleTree and the STBε-tree as policies over it.
//!
//! The trunk is a tree of immutable nodes in memory. Each has pivots, children, and a buffer of *tiers*,
//! sorted sequences of run references, newest first. Leaves are runs too. An update is planned on the trunk
//! alone ([`plan`](self)): incoming updates are flushed through nodes as lazy streams, without any I/O. The
//! remaining data at the ends of the streams is then written, each destination by one streaming merge of all
//! its inputs; nothing else is ever written (TurtleKV, §3 and §4.2: entries dropped before the checkpoint
//! are never serialized). Finally the changed nodes are assembled bottom-up, split, joined and put into one
//! edit.
//!
//! **Invariants**
//! - Entries of a key are newer the higher they are in the tree, and within a node by the order of tiers.
//! - Within a tier runs are disjoint and in key order.
//! - A flush moves bounds, it never rewrites a run.
//! - All leaves have the same depth; a node's keys are inside the range of its pivot in the parent.

mod jobs;
mod policy;
mod read_charges;
mod scan;
mod tombstones;
mod tree;
mod trunk;
mod update;

pub use policy::{BeTreeOptions, DueWork, NodeLoad, NodeWork, Policy};
pub use tree::BeTree;
pub use trunk::layout::read_layout;
pub use update::plan::MERGES_AT_ONCE;
