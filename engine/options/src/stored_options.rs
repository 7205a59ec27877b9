//! The options of a keyspace as the catalogue stores them: those that users chose, and state that the store
//! added since.
//!
//! **Invariants**
//! - Users never see this type; [`StoredOptions::chosen`] is what `Keyspace::options` returns.

use std::ops::Deref;

use testudo_base::Result;
use testudo_values::{LargeValues, Placement};

use crate::{
    keyspace_options::{self, KeyspaceOptions},
    passage::Passage,
    tree::{Tree, TreePreset, families},
};

/// Chosen options, the present place of large values, and whether the keyspace moves between trees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredOptions {
    chosen: KeyspaceOptions,
    large_values: LargeValues,
    value_excess: u64,
    passage: Passage,
}

/// Reads the chosen options.
impl Deref for StoredOptions {
    type Target = KeyspaceOptions;

    fn deref(&self) -> &KeyspaceOptions {
        &self.chosen
    }
}

impl From<KeyspaceOptions> for StoredOptions {
    fn from(chosen: KeyspaceOptions) -> Self {
        Self { chosen, ..Self::default() }
    }
}

impl StoredOptions {
    /// The options that users chose.
    pub fn chosen(&self) -> KeyspaceOptions {
        self.chosen
    }

    /// The tree that users chose.
    pub fn tree(&self) -> Tree {
        self.chosen.get_tree()
    }

    /// The placement that users chose.
    pub fn placement(&self) -> Placement {
        self.chosen.get_placement()
    }

    /// These options with another tree, and its placement if it has one.
    #[must_use]
    pub fn with_tree(self, tree: impl Into<TreePreset>) -> Self {
        Self { chosen: self.chosen.tree(tree), ..self }
    }

    /// The placement with its present thresholds.
    pub fn placement_in_force(&self) -> Placement {
        match self.large_values {
            LargeValues::Separated => self.placement(),
            LargeValues::WithKeys => self.placement().without_large(),
        }
    }

    /// The present place of large values.
    pub fn large_values(&self) -> LargeValues {
        self.large_values
    }

    /// These options with another place for large values; the cost difference starts from zero.
    #[must_use]
    pub fn with_large_values(self, large_values: LargeValues) -> Self {
        Self { large_values, value_excess: 0, ..self }
    }

    /// Persisted cost difference: cost of the present place of large values minus cost of the other one, in
    /// bytes (decision 0053).
    pub fn value_excess(&self) -> u64 {
        self.value_excess
    }

    /// These options with another cost difference.
    #[must_use]
    pub fn with_value_excess(self, value_excess: u64) -> Self {
        Self { value_excess, ..self }
    }

    /// These options with another placement. If it differs, large values are outside again.
    #[must_use]
    pub fn with_placement(self, placement: Placement) -> Self {
        if placement == self.placement() {
            return self;
        }
        Self { chosen: self.chosen.placement(placement), ..self.with_large_values(LargeValues::Separated) }
    }

    /// The move between trees.
    pub fn passage(&self) -> Passage {
        self.passage
    }

    /// The source of a move in progress.
    pub fn moving_from(&self) -> Option<Tree> {
        match self.passage {
            Passage::From(tree) => Some(tree.into()),
            Passage::Never | Passage::Ended => None,
        }
    }

    /// These options with another state of the move.
    #[must_use]
    pub fn with_passage(self, passage: Passage) -> Self {
        Self { passage, ..self }
    }

    /// Checks that all settings are within their limits.
    ///
    /// Errors: `Invalid`.
    pub fn validate(&self) -> Result<()> {
        self.moving_from().map_or(Ok(()), families::validate)?;
        keyspace_options::validate(&self.chosen)
    }
}
