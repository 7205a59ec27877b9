//! Moves of a keyspace from one tree to another, as its stored options record them.

use testudo_base::num::{u16_of, u32_of, usize_of};

use crate::tree::{Tree, TreeKind, families};

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
        let run_bytes = u32_of(usize_of(tree.run_bytes));
        Self::From(LeftTree(match tree.kind {
            TreeKind::Turtle => PackedTree::Turtle { run_bytes, max_pivots: u16_of(tree.max_pivots) },
            TreeKind::Splinter => PackedTree::Splinter { run_bytes, max_pivots: u16_of(tree.max_pivots) },
            // The source of a move neither retains runs nor updates pages.
            TreeKind::Leveled | TreeKind::Lsbm | TreeKind::Treeline => PackedTree::Leveled {
                run_bytes,
                growth_factor: tree.growth_factor.to_le_bytes()[0],
                level1_flushes: tree.level1_flushes.to_le_bytes()[0],
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
    Turtle { run_bytes: u32, max_pivots: u16 },
    Splinter { run_bytes: u32, max_pivots: u16 },
    Leveled { run_bytes: u32, growth_factor: u8, level1_flushes: u8 },
}

impl From<LeftTree> for Tree {
    fn from(left: LeftTree) -> Self {
        match left.0 {
            PackedTree::Turtle { run_bytes, max_pivots } => {
                Self::turtle().with_run_bytes(run_bytes.into()).with_max_pivots(max_pivots.into())
            }
            PackedTree::Splinter { run_bytes, max_pivots } => {
                Self::splinter().with_run_bytes(run_bytes.into()).with_max_pivots(max_pivots.into())
            }
            PackedTree::Leveled { run_bytes, growth_factor, level1_flushes } => Self::leveled()
                .with_run_bytes(run_bytes.into())
                .with_growth_factor(growth_factor.into())
                .with_level1_flushes(level1_flushes.into()),
        }
    }
}
