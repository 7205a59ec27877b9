//! Bε-trees whose nodes refer to runs: one trunk, and the TurtleTree and the STBε-tree as policies over it.
//!
//! The trunk is a tree of immutable nodes in memory; each has pivots, children, and a buffer of *tiers*,
//! sorted sequences of run references that are newer the earlier they stand. Leaves are runs too. An update
//! is planned on the trunk alone ([`plan`](self)): incoming updates are flushed through nodes as lazy flows,
//! nothing is read or written; what is left where the flows end is then written, each destination by one
//! streaming merge of everything that flows into it, and nothing else ever is (TurtleKV, §3 and §4.2: what
//! dies before the checkpoint is never serialised). Finally the changed nodes are assembled bottom-up, split,
//! joined and put into one edit.
//!
//! `plan → write → assemble → TreeEdit`
//!
//! **Invariants**
//! - A key's entries are newer the higher they lie, and within a node the earlier their tier stands.
//! - Within a tier runs are disjoint and in key order.
//! - A flush moves bounds, it never rewrites a run.
//! - All leaves have the same depth; a node's keys lie inside the range that its parent's pivot gives it.

mod jobs;
mod policy;
mod scan;
mod tombstones;
mod tree;
mod trunk;
mod update;

pub use policy::simulation::{SimulatedCosts, SimulatedLoad, SimulatedTree};
pub use policy::{BeTreeOptions, Policy};
pub use tree::BeTree;
pub use trunk::layout::read_layout;
