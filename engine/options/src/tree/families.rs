//! Settings of trees in the terms of their families.
//!
//! **Invariants**
//! - A family is a crate of `trees/`: its settings, its objects in the manifest, the runs that these refer
//!   to.

use testudo_base::{Error, KeyspaceId, Result};
use testudo_betree::{BeTreeOptions, Policy};
use testudo_lsm::LsmOptions;

use super::{Forecast, Stage, Tree, TreeKind, TreelineOptions};

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
        let Tree { run_bytes, max_pivots, growth_factor, level1_flushes, .. } = tree;
        let Tree { retained_percent, pages, .. } = tree;
        let of_nodes = |policy| {
            let defaults = BeTreeOptions::new(policy);
            Self::BeTree(BeTreeOptions { leaf_bytes: run_bytes, max_pivots, ..defaults })
        };
        let of_levels = LsmOptions { run_bytes, growth_factor, level1_flushes, ..LsmOptions::new() };
        match tree.kind {
            TreeKind::Turtle => of_nodes(Policy::Turtle),
            TreeKind::Splinter => of_nodes(Policy::Splinter),
            TreeKind::Leveled => Self::Lsm(of_levels),
            TreeKind::Lsbm => Self::Lsm(LsmOptions { retained_percent, ..of_levels }),
            TreeKind::Treeline => Self::Lsm(LsmOptions {
                updates_pages: true,
                flushes_directly: pages.flushes_directly(),
                page_fill_percent: pages.fill_percent(),
                forecasts_inserts: pages.forecasts_inserts(),
                ..of_levels
            }),
        }
    }
}

const fn of_nodes(options: &BeTreeOptions) -> Tree {
    Tree {
        kind: match options.policy {
            Policy::Turtle => TreeKind::Turtle,
            Policy::Splinter => TreeKind::Splinter,
        },
        run_bytes: options.leaf_bytes,
        max_pivots: options.max_pivots,
        growth_factor: 0,
        level1_flushes: 0,
        retained_percent: 0,
        pages: TreelineOptions::new(),
        unknown: None,
    }
}

const fn of_levels(options: &LsmOptions) -> Tree {
    Tree {
        kind: match options.retained_percent {
            0 if options.updates_pages => TreeKind::Treeline,
            0 => TreeKind::Leveled,
            _ => TreeKind::Lsbm,
        },
        run_bytes: options.run_bytes,
        max_pivots: 0,
        growth_factor: options.growth_factor,
        level1_flushes: options.level1_flushes,
        retained_percent: options.retained_percent,
        pages: TreelineOptions::new()
            .with_fill_percent(options.page_fill_percent)
            .with_stage(if options.flushes_directly { Stage::Sparse } else { Stage::All })
            .with_forecast(if options.forecasts_inserts { Forecast::Inserts } else { Forecast::Off }),
        unknown: None,
    }
}

/// The TurtleTree with its default settings.
pub const fn turtle() -> Tree {
    of_nodes(&BeTreeOptions::new(Policy::Turtle))
}

/// The STBε-tree with its default settings.
pub const fn splinter() -> Tree {
    of_nodes(&BeTreeOptions::new(Policy::Splinter))
}

/// The leveled LSM-tree with its default settings.
pub const fn leveled() -> Tree {
    of_levels(&LsmOptions::new())
}

/// The LSbM-tree with its default settings.
pub const fn lsbm() -> Tree {
    of_levels(&LsmOptions { retained_percent: RETAINED_PERCENT, ..LsmOptions::new() })
}

/// TreeLine's pages with their default settings.
pub const fn treeline() -> Tree {
    of_levels(&LsmOptions { updates_pages: true, ..LsmOptions::new() })
}

/// Checks that the settings of a tree are within their limits.
///
/// Errors: `Invalid`.
pub fn validate(tree: Tree) -> Result<()> {
    if let Some(setting) = tree.unknown {
        return Err(Error::invalid(format!("a {tree} tree has no {setting}")));
    }
    match Settings::from(tree) {
        Settings::BeTree(BeTreeOptions { leaf_bytes, max_pivots, .. }) => {
            if !(4096..=1 << 30).contains(&leaf_bytes) || !(4..=1024).contains(&max_pivots) {
                return Err(Error::invalid(format!(
                    "a {tree} tree needs leaves of 4 KiB to 1 GiB and 4 to 1,024 pivots"
                )));
            }
            Ok(())
        }
        Settings::Lsm(LsmOptions { retained_percent: 0, .. }) if tree.kind == TreeKind::Lsbm => {
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
            Some(of_nodes(&BeTreeOptions { policy: of_wanted.policy, ..of_present }))
        }
        (Settings::Lsm(of_present), Settings::Lsm(wanted)) => {
            let LsmOptions { run_bytes, growth_factor, level1_flushes, .. } = of_present;
            Some(of_levels(&LsmOptions { run_bytes, growth_factor, level1_flushes, ..wanted }))
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
