//! The leveled LSM-tree: levels of sorted sequences of runs, which fill and empty at the same pace.
//!
//! Level 0 is the engine's memtable. A flush becomes a sequence of level 1. When level 1 is full it is handed
//! over: new flushes fill it again, while its old contents are moved down, range by range, in step with them
//! (LSbM §2: C and C′; bLSM's gear scheduler). The levels below do the same with incoming data. The lowest
//! level, the bottom, has nearly everything.
//!
//! Data moved into the bottom is merged with its runs, or, if it is little, written into single pages of them
//! (TreeLine; decision 0049). Rewritten runs have free space for the inserts that are expected to come into
//! their pages (decision 0070).
//!
//! `updates → moves → plan → write → install → TreeEdit`
//!
//! **Invariants**
//! - Upper levels have the newer entries of a key, and the newer runs by their own seqnos.
//! - Within a sequence runs are disjoint and in key order.
//! - A run is newer than every run below it that has keys in common with its range.
//! - Tombstones are dropped at the bottom, where runs record the ranges they cover.

mod forecast;
mod levels;
mod options;
mod policy;
mod read_charges;
mod scan;
mod tree;
mod update;

pub use forecast::{EpochSize, Epochs, InsertShares};
pub use levels::layout::read_layout;
pub use levels::levels_format::ROOT_TAG;
pub use options::LsmOptions;
pub use policy::pair_sizes::PairSizes;
pub use policy::simulation::{SimulatedCosts, SimulatedLevels, SimulatedLoad};
pub use tree::LsmTree;
