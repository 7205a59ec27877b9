//! The leveled LSM-tree: levels of sorted sequences of runs, that fill and empty at one pace.
//!
//! Level 0 is the memtable, which the engine has. A flush becomes a sequence of level 1. When level 1 is
//! full it is handed over: new flushes fill it anew, while what it had goes down, range by range, in step
//! with them (LSbM §2: C and C′; bLSM's gear scheduler). The levels below do the same with what comes
//! down. The lowest level, the bottom, has nearly everything.
//!
//! What comes to the bottom is merged with its runs, or, where it is little, put into single pages of them
//! (TreeLine; decision 0049).
//!
//! `updates → moves → plan → write → install → TreeEdit`
//!
//! **Invariants**
//! - A key's entries are newer the higher they lie, and so are the runs that have them, by their own word.
//! - Within a sequence runs are disjoint and in key order.
//! - A run is newer than every run below it among whose keys it has any.
//! - Tombstones end at the bottom, where runs state the keys that they say everything of.

mod levels;
mod options;
mod policy;
mod scan;
mod tree;
mod update;

pub use levels::layout::read_layout;
pub use levels::levels_format::ROOT_TAG;
pub use options::{Freezing, LsmOptions};
pub use policy::pair_sizes::PairSizes;
pub use policy::simulation::{SimulatedCosts, SimulatedLevels, SimulatedLoad};
pub use tree::LsmTree;
