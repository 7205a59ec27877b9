//! Settings of a keyspace, as users choose them.

use std::fmt;

use testudo_base::{Error, Result};
use testudo_values::Placement;

use crate::tree::{Tree, TreePreset, families};

/// Maximum length of the name of a merge operator.
const OPERATOR_NAME_BYTES_MAX: usize = 32;

/// The name of a merge operator.
#[derive(Clone, Copy, PartialEq, Eq)]
struct OperatorName {
    bytes: [u8; OPERATOR_NAME_BYTES_MAX],
    /// Greater than [`OPERATOR_NAME_BYTES_MAX`] for a name that is too long, whose start is in `bytes`.
    length: u8,
}

impl OperatorName {
    fn new(name: &str) -> Self {
        let mut bytes = [0; OPERATOR_NAME_BYTES_MAX];
        let kept = name.len().min(OPERATOR_NAME_BYTES_MAX);
        bytes[..kept].copy_from_slice(&name.as_bytes()[..kept]);
        Self { bytes, length: u8::try_from(name.len()).unwrap_or(u8::MAX) }
    }

    /// The name; empty for an invalid one.
    fn as_str(&self) -> &str {
        self.bytes
            .get(..usize::from(self.length))
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
            .unwrap_or_default()
    }
}

impl fmt::Debug for OperatorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

/// Settings of a keyspace. The merge operator is fixed when it is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyspaceOptions {
    tree: Tree,
    merge_operator: Option<OperatorName>,
    placement: Placement,
}

/// Settings for a keyspace, or a closure that returns them; the argument of `Db::keyspace`.
pub trait IntoKeyspaceOptions {
    /// The settings.
    fn into_options(self) -> KeyspaceOptions;
}

impl IntoKeyspaceOptions for KeyspaceOptions {
    fn into_options(self) -> KeyspaceOptions {
        self
    }
}

impl<F: FnOnce() -> KeyspaceOptions> IntoKeyspaceOptions for F {
    fn into_options(self) -> KeyspaceOptions {
        self()
    }
}

impl KeyspaceOptions {
    /// Short for `KeyspaceOptions::default().tree(Tree::parallax())`.
    pub fn parallax() -> Self {
        Self::default().tree(Tree::parallax())
    }

    /// Stores the keyspace in this tree; [`Tree::parallax`] also sets the placement of values. Default:
    /// [`Tree::turtle`].
    #[must_use]
    pub fn tree(self, tree: impl Into<TreePreset>) -> Self {
        let preset = tree.into();
        Self { tree: preset.tree(), placement: preset.placement().unwrap_or(self.placement), ..self }
    }

    /// Lets `Keyspace::merge` change values with the operator of this name: a built-in one, listed with its
    /// encoding in [`MergeOperators`](testudo_base::merge_operator::MergeOperators), or one registered with
    /// `DbBuilder::merge_operator`. From then on the operator checks all that is written, operands and whole
    /// values. Default: none.
    #[must_use]
    pub fn merge_operator(mut self, name: &str) -> Self {
        self.merge_operator = Some(OperatorName::new(name));
        self
    }

    /// Places values by their length: see [`Placement`]. Default: [`Placement::default`].
    #[must_use]
    pub fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// The placement of values, which [`KeyspaceOptions::placement`] sets.
    pub fn get_placement(&self) -> Placement {
        self.placement
    }

    /// The name of the merge operator.
    pub fn merge_operator_name(&self) -> Option<&str> {
        self.merge_operator.as_ref().map(OperatorName::as_str)
    }

    /// The tree, which [`KeyspaceOptions::tree`] sets.
    pub fn get_tree(&self) -> Tree {
        self.tree
    }
}

/// Checks that settings are within their limits.
///
/// Errors: `Invalid`.
pub fn validate(options: &KeyspaceOptions) -> Result<()> {
    if options.merge_operator_name() == Some("") {
        let message = format!("a merge operator needs a name of 1 to {OPERATOR_NAME_BYTES_MAX} bytes");
        return Err(Error::invalid(message));
    }
    families::validate(options.tree)
}
