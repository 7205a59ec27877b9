//! Trees by name, with their settings.

use std::{fmt, str::FromStr};

use testudo_base::{Error, Result, num::u64_of};
use testudo_values::Placement;

pub mod families;
mod preset;

pub use self::preset::TreePreset;
use self::preset::find_by_name;

/// The tree that a keyspace stores its data in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tree {
    /// The TurtleTree: balanced between reads and writes, write cost set by memory.
    Turtle {
        /// Bytes of a full leaf and of a buffered run.
        leaf_bytes: u64,
        /// Maximum children of a node.
        max_pivots: usize,
    },
    /// The STBε-tree of SplinterDB: writes fewer bytes, but reads probe more sources; the tree compacts
    /// while the keyspace is idle.
    Splinter {
        /// Bytes of a full leaf and of a buffered run.
        leaf_bytes: u64,
        /// Maximum children of a node.
        max_pivots: usize,
    },
    /// The leveled LSM-tree: levels of sorted runs, each several times as large as the one above it. Scans
    /// merge few sources, and keys that arrive in order are written once.
    Leveled {
        /// Bytes of a full run.
        run_bytes: u64,
        /// Maximum size of a level, as a multiple of the one above it.
        growth_factor: u32,
        /// Flushes that the first level accepts before it is emptied.
        level1_flushes: u32,
    },
    /// The LSbM-tree: a leveled tree that keeps merged runs readable as long as queries find them in the
    /// cache.
    Lsbm {
        /// Bytes of a full run.
        run_bytes: u64,
        /// Maximum size of a level, as a multiple of the one above it.
        growth_factor: u32,
        /// Flushes that the first level accepts before it is emptied.
        level1_flushes: u32,
        /// Maximum retained, in hundredths of the keyspace's bytes; 1 to 100.
        retained_percent: u32,
    },
    /// TreeLine: pages updated in place, below levels that absorb writes arriving faster than that. Adjacent
    /// changes share page writes, and a key is on one page.
    Treeline {
        /// Bytes of a full run, whose pages are updated.
        run_bytes: u64,
        /// Maximum size of a level, as a multiple of the one above it.
        growth_factor: u32,
        /// Flushes that the first level accepts before it is emptied.
        level1_flushes: u32,
    },
}

impl Tree {
    /// The TurtleTree with its default settings.
    pub fn turtle() -> Self {
        families::turtle()
    }

    /// The STBε-tree with its default settings.
    pub fn splinter() -> Self {
        families::splinter()
    }

    /// The leveled LSM-tree with its default settings.
    pub fn leveled() -> Self {
        families::leveled()
    }

    /// The LSbM-tree with its default settings.
    pub fn lsbm() -> Self {
        families::lsbm()
    }

    /// TreeLine's pages with their default settings.
    pub fn treeline() -> Self {
        families::treeline()
    }

    /// Parallax: [`Tree::leveled`] with values placed by size, by thresholds that adjust themselves
    /// ([`Placement::automatic`]).
    pub fn parallax() -> TreePreset {
        TreePreset::placed(Self::leveled(), Placement::automatic())
    }

    /// Every tree with its default settings, by name; [`TreePreset::all`] has `parallax` as well.
    pub fn presets() -> Vec<(&'static str, Self)> {
        vec![
            ("turtle", Self::turtle()),
            ("splinter", Self::splinter()),
            ("leveled", Self::leveled()),
            ("lsbm", Self::lsbm()),
            ("treeline", Self::treeline()),
        ]
    }

    /// The settings by name; those in bytes are called `…_bytes`.
    pub fn settings(&self) -> Vec<(&'static str, u64)> {
        match *self {
            Self::Turtle { leaf_bytes, max_pivots } | Self::Splinter { leaf_bytes, max_pivots } => {
                vec![("leaf_bytes", leaf_bytes), ("max_pivots", u64_of(max_pivots))]
            }
            Self::Lsbm { run_bytes, growth_factor, level1_flushes, retained_percent } => vec![
                ("run_bytes", run_bytes),
                ("growth_factor", u64::from(growth_factor)),
                ("level1_flushes", u64::from(level1_flushes)),
                ("retained_percent", u64::from(retained_percent)),
            ],
            Self::Leveled { run_bytes, growth_factor, level1_flushes }
            | Self::Treeline { run_bytes, growth_factor, level1_flushes } => vec![
                ("run_bytes", run_bytes),
                ("growth_factor", u64::from(growth_factor)),
                ("level1_flushes", u64::from(level1_flushes)),
            ],
        }
    }

    /// Bytes of a full run, the unit of merging; for a turtle or splinter tree, of a leaf.
    pub fn run_bytes(&self) -> u64 {
        match *self {
            Self::Turtle { leaf_bytes, .. } | Self::Splinter { leaf_bytes, .. } => leaf_bytes,
            Self::Leveled { run_bytes, .. }
            | Self::Lsbm { run_bytes, .. }
            | Self::Treeline { run_bytes, .. } => run_bytes,
        }
    }

    /// The same tree with other [`Tree::run_bytes`].
    #[must_use]
    pub fn with_run_bytes(mut self, bytes: u64) -> Self {
        match &mut self {
            Self::Turtle { leaf_bytes, .. } | Self::Splinter { leaf_bytes, .. } => *leaf_bytes = bytes,
            Self::Leveled { run_bytes, .. }
            | Self::Lsbm { run_bytes, .. }
            | Self::Treeline { run_bytes, .. } => *run_bytes = bytes,
        }
        self
    }
}

impl Default for Tree {
    fn default() -> Self {
        Self::turtle()
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Turtle { .. } => f.write_str("turtle"),
            Self::Splinter { .. } => f.write_str("splinter"),
            Self::Leveled { .. } => f.write_str("leveled"),
            Self::Lsbm { .. } => f.write_str("lsbm"),
            Self::Treeline { .. } => f.write_str("treeline"),
        }
    }
}

impl FromStr for Tree {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        find_by_name(&Self::presets(), name)
    }
}
