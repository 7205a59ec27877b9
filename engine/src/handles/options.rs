//! Settings: how durable a write is, and how a keyspace stores its data.

use std::{fmt, str::FromStr};

use testudo_base::{
    Error, Result,
    num::{u16_of, u32_of, u64_of, usize_of},
};
use testudo_values::{LargeValues, Placement};

use crate::{TreePreset, handles::tree_preset::find_by_name, open::tree_families};

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// In the operating system: it survives the end of the process, however that ends, and is synced within a
    /// second. A crash of the machine can lose it. So can the end of the process if the device is full just
    /// then and the commit is longer than a log buffer, a 256th of the memory budget.
    #[default]
    Buffered,
    /// On disk.
    Sync,
}

/// The tree that a keyspace stores its data in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tree {
    /// The TurtleTree: balanced between reads and writes, write cost set by memory.
    Turtle {
        /// Bytes of a full leaf and of a buffered run.
        leaf_bytes: u64,
        /// Most children of a node.
        max_pivots: usize,
    },
    /// The STBε-tree of SplinterDB: fewer bytes are written, more sources are asked by reads; that is made
    /// up for while the keyspace is idle.
    Splinter {
        /// Bytes of a full leaf and of a buffered run.
        leaf_bytes: u64,
        /// Most children of a node.
        max_pivots: usize,
    },
    /// The leveled LSM-tree: levels of sorted runs, each several times as large as the one above it. Scans
    /// meet few sources, and keys that arrive in order are written once.
    Leveled {
        /// Bytes of a full run.
        run_bytes: u64,
        /// How many times as large as the one above it a level may be.
        growth_factor: u32,
        /// Flushes that the first level takes before it is emptied.
        level1_flushes: u32,
    },
    /// The LSbM-tree: a leveled tree in which what merges have replaced stays readable for as long as queries
    /// find it in memory.
    Lsbm {
        /// Bytes of a full run.
        run_bytes: u64,
        /// How many times as large as the one above it a level may be.
        growth_factor: u32,
        /// Flushes that the first level takes before it is emptied.
        level1_flushes: u32,
        /// Most that may be retained, in hundredths of the keyspace's bytes; 1 to 100.
        retained_percent: u32,
    },
    /// TreeLine: pages that are updated in place, under levels that take what comes faster than that. What
    /// changes near each other costs the pages that it is on, and a key lies on one page.
    Treeline {
        /// Bytes of a full run, of which pages are updated.
        run_bytes: u64,
        /// How many times as large as the one above it a level may be.
        growth_factor: u32,
        /// Flushes that the first level takes before it is emptied.
        level1_flushes: u32,
    },
}

impl Tree {
    /// The TurtleTree with its default settings.
    pub fn turtle() -> Self {
        tree_families::turtle()
    }

    /// The STBε-tree with its default settings.
    pub fn splinter() -> Self {
        tree_families::splinter()
    }

    /// The leveled LSM-tree with its default settings.
    pub fn leveled() -> Self {
        tree_families::leveled()
    }

    /// The LSbM-tree with its default settings.
    pub fn lsbm() -> Self {
        tree_families::lsbm()
    }

    /// TreeLine's pages with their default settings.
    pub fn treeline() -> Self {
        tree_families::treeline()
    }

    /// Parallax: [`Tree::leveled`], and values put by their sizes with thresholds that move by themselves
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

    /// Bytes of a full run, the piece in which data is merged; of a turtle or splinter tree, of a leaf.
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

/// Longest name of a merge operator.
const OPERATOR_NAME_BYTES_MAX: usize = 32;

/// The name of a merge operator.
#[derive(Clone, Copy, PartialEq, Eq)]
struct OperatorName {
    bytes: [u8; OPERATOR_NAME_BYTES_MAX],
    /// Greater than [`OPERATOR_NAME_BYTES_MAX`] for a name that is too long, of which `bytes` has the start.
    length: u8,
}

impl OperatorName {
    fn new(name: &str) -> Self {
        let mut bytes = [0; OPERATOR_NAME_BYTES_MAX];
        let kept = name.len().min(OPERATOR_NAME_BYTES_MAX);
        bytes[..kept].copy_from_slice(&name.as_bytes()[..kept]);
        Self { bytes, length: u8::try_from(name.len()).unwrap_or(u8::MAX) }
    }

    /// The name; empty for one that is not valid.
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

/// Whether a keyspace has moved from one tree to another of another family, or of the same so that its values
/// come back to their keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Passage {
    #[default]
    Never,
    /// It is on its way out of this tree.
    From(LeftTree),
    /// It has arrived.
    Ended,
}

impl Passage {
    /// Out of this tree, whose settings are within their limits.
    pub(crate) fn from_tree(tree: Tree) -> Self {
        let sizes = |bytes: u64, pivots: usize| (u32_of(usize_of(bytes)), u16_of(pivots));
        Self::From(match tree {
            Tree::Turtle { leaf_bytes, max_pivots } => {
                let (leaf_bytes, max_pivots) = sizes(leaf_bytes, max_pivots);
                LeftTree::Turtle { leaf_bytes, max_pivots }
            }
            Tree::Splinter { leaf_bytes, max_pivots } => {
                let (leaf_bytes, max_pivots) = sizes(leaf_bytes, max_pivots);
                LeftTree::Splinter { leaf_bytes, max_pivots }
            }
            // On its way out a tree keeps nothing but what counts.
            Tree::Leveled { run_bytes, growth_factor, level1_flushes }
            | Tree::Lsbm { run_bytes, growth_factor, level1_flushes, .. }
            | Tree::Treeline { run_bytes, growth_factor, level1_flushes } => LeftTree::Leveled {
                run_bytes: u32_of(usize_of(run_bytes)),
                growth_factor: growth_factor.to_le_bytes()[0],
                level1_flushes: level1_flushes.to_le_bytes()[0],
            },
        })
    }
}

/// A [`Tree`] with settings within their limits, in a few bytes: there may be thousands of keyspaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeftTree {
    Turtle { leaf_bytes: u32, max_pivots: u16 },
    Splinter { leaf_bytes: u32, max_pivots: u16 },
    Leveled { run_bytes: u32, growth_factor: u8, level1_flushes: u8 },
}

impl From<LeftTree> for Tree {
    fn from(left: LeftTree) -> Self {
        match left {
            LeftTree::Turtle { leaf_bytes, max_pivots } => {
                Self::Turtle { leaf_bytes: leaf_bytes.into(), max_pivots: max_pivots.into() }
            }
            LeftTree::Splinter { leaf_bytes, max_pivots } => {
                Self::Splinter { leaf_bytes: leaf_bytes.into(), max_pivots: max_pivots.into() }
            }
            LeftTree::Leveled { run_bytes, growth_factor, level1_flushes } => Self::Leveled {
                run_bytes: run_bytes.into(),
                growth_factor: growth_factor.into(),
                level1_flushes: level1_flushes.into(),
            },
        }
    }
}

/// Settings of a keyspace. The merge operator is fixed when it is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyspaceOptions {
    tree: Tree,
    merge_operator: Option<OperatorName>,
    placement: Placement,
    large_values: LargeValues,
    /// What that had cost more than the other way when it was last written down.
    value_excess: u64,
    passage: Passage,
}

/// Settings for a keyspace, or a closure that makes them: what [`Db::keyspace`](crate::Db::keyspace) takes.
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

    /// Stores the keyspace in this tree; [`Tree::parallax`] also says where values are put. Default:
    /// [`Tree::turtle`].
    #[must_use]
    pub fn tree(self, tree: impl Into<TreePreset>) -> Self {
        let preset = tree.into();
        Self { tree: preset.tree(), placement: preset.placement().unwrap_or(self.placement), ..self }
    }

    /// Lets [`Keyspace::merge`](crate::Keyspace::merge) change values by the operator of this name: one of
    /// the built-in ones, which [`MergeOperators`](crate::MergeOperators) lists with the bytes that they
    /// take, or one of [`DbBuilder::merge_operator`](crate::DbBuilder::merge_operator). The operator checks
    /// what is written from then on, operands and whole values. Default: none.
    #[must_use]
    pub fn merge_operator(mut self, name: &str) -> Self {
        self.merge_operator = Some(OperatorName::new(name));
        self
    }

    /// Puts values where `placement` says: see [`Placement`]. Default: [`Placement::large`].
    #[must_use]
    pub fn placement(mut self, placement: Placement) -> Self {
        self.placement = placement;
        self
    }

    /// Where values are put.
    pub fn chosen_placement(&self) -> Placement {
        self.placement
    }

    /// The name of the merge operator.
    pub fn merge_operator_name(&self) -> Option<&str> {
        self.merge_operator.as_ref().map(OperatorName::as_str)
    }

    /// The tree.
    pub fn chosen_tree(&self) -> Tree {
        self.tree
    }

    /// Where the thresholds of the placement are at present.
    pub(crate) fn placement_in_force(&self) -> Placement {
        match self.large_values {
            LargeValues::Outside => self.placement,
            LargeValues::WithKeys => self.placement.without_large(),
        }
    }

    /// Where values of large pairs are.
    pub(crate) fn large_values(&self) -> LargeValues {
        self.large_values
    }

    /// The same for a keyspace that has them there from now on.
    #[must_use]
    pub(crate) fn with_large_values(self, large_values: LargeValues) -> Self {
        Self { large_values, value_excess: 0, ..self }
    }

    /// What it had cost to have them there more than the other way would have, when it was last written down.
    pub(crate) fn value_excess(&self) -> u64 {
        self.value_excess
    }

    /// The same with that as it is now.
    #[must_use]
    pub(crate) fn with_value_excess(self, value_excess: u64) -> Self {
        Self { value_excess, ..self }
    }

    /// The same for a keyspace whose values are put elsewhere from now on, if `placement` is another one.
    #[must_use]
    pub(crate) fn with_placement(self, placement: Placement) -> Self {
        let is_present = placement == self.placement;
        if is_present { self } else { self.placement(placement).with_large_values(LargeValues::Outside) }
    }

    /// The same as users have chosen it: without what has become of the keyspace since.
    #[must_use]
    pub(crate) fn as_chosen(self) -> Self {
        Self { passage: Passage::Never, ..self.with_large_values(LargeValues::Outside) }
    }

    /// Whether the keyspace has moved.
    pub(crate) fn passage(&self) -> Passage {
        self.passage
    }

    /// The tree that the keyspace leaves, if it is moving.
    pub(crate) fn moving_from(&self) -> Option<Tree> {
        match self.passage {
            Passage::From(tree) => Some(tree.into()),
            Passage::Never | Passage::Ended => None,
        }
    }

    /// The same for a keyspace that has moved so.
    #[must_use]
    pub(crate) fn with_passage(self, passage: Passage) -> Self {
        Self { passage, ..self }
    }

    /// Checks that the settings make sense.
    pub(crate) fn validate(&self) -> Result<()> {
        if self.merge_operator_name() == Some("") {
            let message = format!("a merge operator needs a name of 1 to {OPERATOR_NAME_BYTES_MAX} bytes");
            return Err(Error::invalid(message));
        }
        self.moving_from().map_or(Ok(()), tree_families::validate)?;
        tree_families::validate(self.tree)
    }
}
