//! Settings of trees in the terms of their families.
//!
//! **Invariants**
//! - A family is a crate of `trees/`: its settings, its objects in the manifest, the runs that these refer
//!   to.

use testudo_base::{Error, KeyspaceId, Result};
use testudo_betree::{BeTreeOptions, Policy};
use testudo_lsm::LsmOptions;

use super::Tree;

/// Maximum that an LSbM-tree retains, in hundredths of its bytes (LSbM §6.5).
const RETAINED_PERCENT: u32 = 10;

/// A tree in the terms of its family.
#[derive(Clone, Copy, Debug)]
pub enum Settings {
    /// A Bε-tree.
    BeTree(BeTreeOptions),
    /// An LSM-tree.
    Lsm(LsmOptions),
}

impl From<Tree> for Settings {
    fn from(tree: Tree) -> Self {
        let of_betree = |policy, leaf_bytes, max_pivots| {
            Self::BeTree(BeTreeOptions { leaf_bytes, max_pivots, ..BeTreeOptions::new(policy) })
        };
        match tree {
            Tree::Turtle { leaf_bytes, max_pivots } => of_betree(Policy::Turtle, leaf_bytes, max_pivots),
            Tree::Splinter { leaf_bytes, max_pivots } => of_betree(Policy::Splinter, leaf_bytes, max_pivots),
            Tree::Leveled { run_bytes, growth_factor, level1_flushes } => {
                Self::Lsm(LsmOptions { run_bytes, growth_factor, level1_flushes, ..LsmOptions::new() })
            }
            Tree::Lsbm { run_bytes, growth_factor, level1_flushes, retained_percent } => {
                let sizes = LsmOptions { run_bytes, growth_factor, level1_flushes, ..LsmOptions::new() };
                Self::Lsm(LsmOptions { retained_percent, ..sizes })
            }
            Tree::Treeline { run_bytes, growth_factor, level1_flushes } => {
                let sizes = LsmOptions { run_bytes, growth_factor, level1_flushes, ..LsmOptions::new() };
                Self::Lsm(LsmOptions { updates_pages: true, ..sizes })
            }
        }
    }
}

impl From<BeTreeOptions> for Tree {
    fn from(options: BeTreeOptions) -> Self {
        let BeTreeOptions { policy, leaf_bytes, max_pivots, .. } = options;
        match policy {
            Policy::Turtle => Self::Turtle { leaf_bytes, max_pivots },
            Policy::Splinter => Self::Splinter { leaf_bytes, max_pivots },
        }
    }
}

impl From<LsmOptions> for Tree {
    fn from(options: LsmOptions) -> Self {
        let LsmOptions { run_bytes, growth_factor, level1_flushes, .. } = options;
        let LsmOptions { retained_percent, updates_pages, .. } = options;
        match retained_percent {
            0 if updates_pages => Self::Treeline { run_bytes, growth_factor, level1_flushes },
            0 => Self::Leveled { run_bytes, growth_factor, level1_flushes },
            _ => Self::Lsbm { run_bytes, growth_factor, level1_flushes, retained_percent },
        }
    }
}

/// The TurtleTree with its default settings.
pub fn turtle() -> Tree {
    Tree::from(BeTreeOptions::new(Policy::Turtle))
}

/// The STBε-tree with its default settings.
pub fn splinter() -> Tree {
    Tree::from(BeTreeOptions::new(Policy::Splinter))
}

/// The leveled LSM-tree with its default settings.
pub fn leveled() -> Tree {
    Tree::from(LsmOptions::new())
}

/// The LSbM-tree with its default settings.
pub fn lsbm() -> Tree {
    Tree::from(LsmOptions { retained_percent: RETAINED_PERCENT, ..LsmOptions::new() })
}

/// TreeLine's pages with their default settings.
pub fn treeline() -> Tree {
    Tree::from(LsmOptions { updates_pages: true, ..LsmOptions::new() })
}

/// Checks that the settings of a tree are within their limits.
///
/// Errors: `Invalid`.
pub fn validate(tree: Tree) -> Result<()> {
    match Settings::from(tree) {
        Settings::BeTree(BeTreeOptions { leaf_bytes, max_pivots, .. }) => {
            if !(4096..=1 << 30).contains(&leaf_bytes) || !(4..=1024).contains(&max_pivots) {
                return Err(Error::invalid(format!(
                    "a {tree} tree needs leaves of 4 KiB to 1 GiB and 4 to 1,024 pivots"
                )));
            }
            Ok(())
        }
        Settings::Lsm(LsmOptions { retained_percent: 0, .. }) if matches!(tree, Tree::Lsbm { .. }) => {
            Err(Error::invalid("an lsbm tree needs a retained_percent of 1 to 100"))
        }
        Settings::Lsm(settings) => {
            settings.validate().map_err(|why| Error::invalid(format!("settings of a {tree} tree: {why}")))
        }
    }
}

/// The tree of a keyspace in `present` that was set to `wanted` of the same family. Sizes do not change: new
/// ones would rewrite most of the tree. `None` for another family, which cannot read these objects.
pub fn within_family(present: Tree, wanted: Tree) -> Option<Tree> {
    match (Settings::from(present), Settings::from(wanted)) {
        (Settings::BeTree(of_present), Settings::BeTree(of_wanted)) => {
            Some(Tree::from(BeTreeOptions { policy: of_wanted.policy, ..of_present }))
        }
        (Settings::Lsm(of_present), Settings::Lsm(LsmOptions { retained_percent, updates_pages, .. })) => {
            Some(Tree::from(LsmOptions { retained_percent, updates_pages, ..of_present }))
        }
        (Settings::BeTree(_), Settings::Lsm(_)) | (Settings::Lsm(_), Settings::BeTree(_)) => None,
    }
}

/// Whether two trees are of the same family.
pub fn is_of_family(tree: Tree, other: Tree) -> bool {
    within_family(tree, other).is_some()
}

/// The settings of a keyspace's tree, staggered: equal keyspaces would otherwise all merge in the same round.
pub fn settings_for(tree: Tree, id: KeyspaceId) -> Settings {
    let stagger = u64::from(id.0);
    match Settings::from(tree) {
        Settings::BeTree(settings) => Settings::BeTree(BeTreeOptions { stagger, ..settings }),
        Settings::Lsm(settings) => Settings::Lsm(LsmOptions { stagger, ..settings }),
    }
}

#[cfg(test)]
mod tests;
