//! Moves of a keyspace from one tree to another, as its stored options record them.

use testudo_base::num::{u16_of, u32_of, usize_of};

use crate::tree::{Tree, families};

/// Whether a keyspace moves, or has moved, to a tree of another family, or to one of its own family so that
/// its values return to their keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Passage {
    /// It never moved.
    #[default]
    Never,
    /// It moves out of this tree.
    From(LeftTree),
    /// The move has ended.
    Ended,
}

impl Passage {
    /// A move out of this tree, whose settings are within their limits.
    pub fn from_tree(tree: Tree) -> Self {
        debug_assert!(families::validate(tree).is_ok(), "only settings within their limits are packed");
        let sizes = |bytes: u64, pivots: usize| (u32_of(usize_of(bytes)), u16_of(pivots));
        Self::From(LeftTree(match tree {
            Tree::Turtle { leaf_bytes, max_pivots } => {
                let (leaf_bytes, max_pivots) = sizes(leaf_bytes, max_pivots);
                PackedTree::Turtle { leaf_bytes, max_pivots }
            }
            Tree::Splinter { leaf_bytes, max_pivots } => {
                let (leaf_bytes, max_pivots) = sizes(leaf_bytes, max_pivots);
                PackedTree::Splinter { leaf_bytes, max_pivots }
            }
            // The source of a move neither retains runs nor updates pages.
            Tree::Leveled { run_bytes, growth_factor, level1_flushes }
            | Tree::Lsbm { run_bytes, growth_factor, level1_flushes, .. }
            | Tree::Treeline { run_bytes, growth_factor, level1_flushes } => PackedTree::Leveled {
                run_bytes: u32_of(usize_of(run_bytes)),
                growth_factor: growth_factor.to_le_bytes()[0],
                level1_flushes: level1_flushes.to_le_bytes()[0],
            },
        }))
    }
}

/// A [`Tree`] with settings within their limits, packed into a few bytes: there may be thousands of
/// keyspaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftTree(PackedTree);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PackedTree {
    Turtle { leaf_bytes: u32, max_pivots: u16 },
    Splinter { leaf_bytes: u32, max_pivots: u16 },
    Leveled { run_bytes: u32, growth_factor: u8, level1_flushes: u8 },
}

impl From<LeftTree> for Tree {
    fn from(left: LeftTree) -> Self {
        match left.0 {
            PackedTree::Turtle { leaf_bytes, max_pivots } => {
                Self::Turtle { leaf_bytes: leaf_bytes.into(), max_pivots: max_pivots.into() }
            }
            PackedTree::Splinter { leaf_bytes, max_pivots } => {
                Self::Splinter { leaf_bytes: leaf_bytes.into(), max_pivots: max_pivots.into() }
            }
            PackedTree::Leveled { run_bytes, growth_factor, level1_flushes } => Self::Leveled {
                run_bytes: run_bytes.into(),
                growth_factor: growth_factor.into(),
                level1_flushes: level1_flushes.into(),
            },
        }
    }
}
