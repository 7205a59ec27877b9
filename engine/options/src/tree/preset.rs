//! Presets of a keyspace: a tree, and the placement of values if it is part of the design.

use std::{fmt, str::FromStr};

use testudo_base::{Error, Result};
use testudo_values::Placement;

use super::{Forecast, Stage, Tree, TreelineOptions};

/// A [`Tree`], with a placement of values if that is part of the design: the argument of
/// `KeyspaceOptions::tree` and `Keyspace::set_tree`. A tree alone does not change the placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreePreset {
    tree: Tree,
    placement: Option<Placement>,
}

impl TreePreset {
    pub(super) fn placed(tree: Tree, placement: Placement) -> Self {
        Self { tree, placement: Some(placement) }
    }

    /// Every preset, by name: those of [`Tree::presets`], `treeline-direct`, which stages only sparse flushes
    /// ([`Stage::Sparse`]), `treeline-no-forecast` ([`Forecast::Off`]), and `parallax`.
    pub fn all() -> Vec<(&'static str, Self)> {
        let trees = Tree::presets().into_iter().map(|(name, tree)| (name, Self::from(tree)));
        let treeline = |pages: TreelineOptions| Self::from(Tree::treeline().with_treeline(pages));
        let direct = treeline(TreelineOptions::new().with_stage(Stage::Sparse));
        let unforecast = treeline(TreelineOptions::new().with_forecast(Forecast::Off));
        let more = [("treeline-direct", direct), ("treeline-no-forecast", unforecast)];
        trees.chain(more).chain([("parallax", Tree::parallax())]).collect()
    }

    /// The tree.
    pub fn tree(&self) -> Tree {
        self.tree
    }

    /// The placement of values, if it is part of the preset.
    pub fn placement(&self) -> Option<Placement> {
        self.placement
    }

    /// The same preset with other [`Tree::run_bytes`].
    #[must_use]
    pub fn with_run_bytes(self, bytes: u64) -> Self {
        Self { tree: self.tree.with_run_bytes(bytes), ..self }
    }
}

impl From<Tree> for TreePreset {
    fn from(tree: Tree) -> Self {
        Self { tree, placement: None }
    }
}

impl fmt::Display for TreePreset {
    /// Writes the name of the preset, or of its tree.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::all().iter().find(|(_, preset)| preset == self) {
            Some((name, _)) => f.write_str(name),
            None => self.tree.fmt(f),
        }
    }
}

impl FromStr for TreePreset {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        find_by_name(&Self::all(), name)
    }
}

/// Finds the entry of `known` with this name.
///
/// Errors: `Invalid`, with the known names.
pub(super) fn find_by_name<T: Copy>(known: &[(&str, T)], name: &str) -> Result<T> {
    known.iter().find(|(preset, _)| *preset == name).map(|(_, preset)| *preset).ok_or_else(|| {
        let names: Vec<_> = known.iter().map(|(preset, _)| *preset).collect();
        Error::invalid(format!("there is no tree called {name:?}; known trees: {}", names.join(", ")))
    })
}
