//! Bε-trees whose nodes refer to runs: one trunk, and the TurtleTree and the STBε-tree as policies over it.
//!
//! The trunk is a tree of immutable nodes in memory; each has pivots, children, and a buffer of *tiers*, sorted sequences
//! of run references that are newer the earlier they stand. Leaves are runs too. An update is planned on the trunk
//! alone ([`plan`](self)): incoming updates are flushed through nodes as lazy flows, nothing is read or written;
//! what is left where the flows end is then written, each destination by one streaming merge of everything that
//! flows into it, and nothing else ever is (TurtleKV, §3 and §4.2: what dies before the checkpoint is never
//! serialised). Finally the changed nodes are assembled bottom-up, split, joined and put into one edit.
//!
//! `plan → write → assemble → TreeEdit`
//!
//! **Invariants**
//! - A key's entries are newer the higher they lie, and within a node the earlier their tier stands.
//! - Within a tier runs are disjoint and in key order.
//! - A flush moves bounds, it never rewrites a run.
//! - All leaves have the same depth; a node's keys lie inside the range that its parent's pivot gives it.

mod assemble;
mod chain;
mod cut;
mod fence;
mod flow;
mod invariants;
mod layout;
mod node;
mod node_format;
mod overwrites;
mod plan;
mod policy;
mod references;
mod scan_charges;
mod simulation;
mod stack;
mod strand;
mod tree;
mod tree_cursor;
mod undisturbed;
mod write;

pub use layout::{RunUse, read_layout};
pub use policy::{BeTreeOptions, Policy};
pub use simulation::{SimulatedCosts, SimulatedLoad, SimulatedTree};
pub use tree::BeTree;
