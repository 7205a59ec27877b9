//! Trees by name, with their settings.

use std::{fmt, str::FromStr};

use testudo_base::{Error, Result, num::u64_of};
use testudo_values::Placement;

pub mod families;
mod preset;
mod treeline_options;

use self::preset::find_by_name;
pub use self::{
    preset::TreePreset,
    treeline_options::{Forecast, Stage, TreelineOptions},
};

/// The kinds of trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TreeKind {
    /// The TurtleTree: balanced between reads and writes, write cost set by memory.
    Turtle,
    /// The STBε-tree of SplinterDB: writes fewer bytes, but reads probe more sources; the tree compacts
    /// while the keyspace is idle.
    Splinter,
    /// The leveled LSM-tree: levels of sorted runs, each several times as large as the one above it. Scans
    /// merge few sources, and keys that arrive in order are written once.
    Leveled,
    /// The LSbM-tree: a leveled tree that keeps merged runs readable as long as queries find them in the
    /// cache.
    Lsbm,
    /// TreeLine: pages updated in place, below levels that absorb writes arriving faster than that. Adjacent
    /// changes share page writes, and a key is on one page.
    Treeline,
}

impl TreeKind {
    /// Whether trees of this kind have nodes with pivots, instead of levels.
    const fn has_nodes(self) -> bool {
        matches!(self, Self::Turtle | Self::Splinter)
    }
}

impl fmt::Display for TreeKind {
    /// Writes the name that [`Tree::from_str`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Turtle => "turtle",
            Self::Splinter => "splinter",
            Self::Leveled => "leveled",
            Self::Lsbm => "lsbm",
            Self::Treeline => "treeline",
        })
    }
}

/// A setting that some kinds of trees do not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    MaxPivots,
    GrowthFactor,
    Level1Flushes,
    RetainedPercent,
    Treeline,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MaxPivots => "max_pivots",
            Self::GrowthFactor => "growth_factor",
            Self::Level1Flushes => "level1_flushes",
            Self::RetainedPercent => "retained_percent",
            Self::Treeline => "pages to update",
        })
    }
}

/// The tree that a keyspace stores its data in: a [`TreeKind`] with its settings.
///
/// Constructors have the defaults, and builders change them:
/// `Tree::leveled().with_run_bytes(1 << 20).with_growth_factor(10)`.
///
/// Settings are checked when a keyspace is created with the tree, or moved to it: `Invalid` for one that is
/// outside its limits or that the kind does not have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Tree {
    pub(crate) kind: TreeKind,
    /// Bytes of a full leaf in trees with nodes.
    pub(crate) run_bytes: u64,
    /// 0 in trees without nodes.
    pub(crate) max_pivots: usize,
    /// 0 in trees without levels.
    pub(crate) growth_factor: u32,
    /// 0 in trees without levels.
    pub(crate) level1_flushes: u32,
    /// 0 in trees that retain no runs.
    pub(crate) retained_percent: u32,
    /// The default in trees that update no pages.
    pub(crate) pages: TreelineOptions,
    /// The last setting that the kind does not have.
    pub(crate) unknown: Option<Setting>,
}

impl Tree {
    /// The TurtleTree with its default settings.
    pub const fn turtle() -> Self {
        families::turtle()
    }

    /// The STBε-tree with its default settings.
    pub const fn splinter() -> Self {
        families::splinter()
    }

    /// The leveled LSM-tree with its default settings.
    pub const fn leveled() -> Self {
        families::leveled()
    }

    /// The LSbM-tree with its default settings.
    pub const fn lsbm() -> Self {
        families::lsbm()
    }

    /// TreeLine's pages with their default settings.
    pub const fn treeline() -> Self {
        families::treeline()
    }

    /// Parallax: [`Tree::leveled`] with values placed by length: [`Placement::hybrid`] with moving
    /// thresholds.
    pub fn parallax() -> TreePreset {
        TreePreset::placed(Self::leveled(), Placement::hybrid().with_moving_thresholds(true))
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

    /// The kind of tree.
    pub const fn kind(&self) -> TreeKind {
        self.kind
    }

    /// The settings by name; those in bytes are called `…_bytes`.
    pub fn settings(&self) -> Vec<(&'static str, u64)> {
        if self.kind.has_nodes() {
            return vec![("leaf_bytes", self.run_bytes), ("max_pivots", u64_of(self.max_pivots))];
        }
        let mut settings = vec![
            ("run_bytes", self.run_bytes),
            ("growth_factor", u64::from(self.growth_factor)),
            ("level1_flushes", u64::from(self.level1_flushes)),
        ];
        if self.kind == TreeKind::Lsbm {
            settings.push(("retained_percent", u64::from(self.retained_percent)));
        }
        let default = TreelineOptions::new();
        if self.pages != default {
            settings.push(("direct_flushes", u64::from(self.pages.flushes_directly())));
        }
        let forecast_differs = self.pages.forecast() != default.forecast();
        if forecast_differs || self.pages.fill_percent() != default.fill_percent() {
            settings.push(("fill_percent", u64::from(self.pages.fill_percent())));
        }
        if forecast_differs {
            settings.push(("forecasts", u64::from(self.pages.forecasts_inserts())));
        }
        settings
    }

    /// Bytes of a full run, the unit of merging; for a turtle or splinter tree, of a leaf.
    pub const fn run_bytes(&self) -> u64 {
        self.run_bytes
    }

    /// Sets [`Tree::run_bytes`]: 4 KiB to 64 MiB, for a turtle or splinter tree to 1 GiB.
    #[must_use]
    pub const fn with_run_bytes(mut self, bytes: u64) -> Self {
        self.run_bytes = bytes;
        self
    }

    /// Sets the maximum children of a node of a turtle or splinter tree: 4 to 1,024.
    #[must_use]
    pub const fn with_max_pivots(mut self, max_pivots: usize) -> Self {
        if !self.kind.has_nodes() {
            return self.with_unknown(Setting::MaxPivots);
        }
        self.max_pivots = max_pivots;
        self
    }

    /// Sets the maximum size of a level, as a multiple of the one above it: 2 to 64. Only in leveled, lsbm
    /// and treeline trees.
    #[must_use]
    pub const fn with_growth_factor(mut self, growth_factor: u32) -> Self {
        if self.kind.has_nodes() {
            return self.with_unknown(Setting::GrowthFactor);
        }
        self.growth_factor = growth_factor;
        self
    }

    /// Sets the number of flushes that the first level accepts before it is emptied. Only in leveled, lsbm
    /// and treeline trees.
    #[must_use]
    pub const fn with_level1_flushes(mut self, level1_flushes: u32) -> Self {
        if self.kind.has_nodes() {
            return self.with_unknown(Setting::Level1Flushes);
        }
        self.level1_flushes = level1_flushes;
        self
    }

    /// Sets the maximum that an lsbm tree retains, in hundredths of the keyspace's bytes: 1 to 100.
    #[must_use]
    pub const fn with_retained_percent(mut self, retained_percent: u32) -> Self {
        if !matches!(self.kind, TreeKind::Lsbm) {
            return self.with_unknown(Setting::RetainedPercent);
        }
        self.retained_percent = retained_percent;
        self
    }

    /// The settings of a treeline tree's pages; `None` for other trees.
    pub const fn treeline_options(&self) -> Option<TreelineOptions> {
        if matches!(self.kind, TreeKind::Treeline) { Some(self.pages) } else { None }
    }

    /// Sets [`Tree::treeline_options`]. Only in treeline trees. `Keyspace::set_tree` can change them later.
    /// Existing pages keep their fill until their run is rewritten.
    #[must_use]
    pub const fn with_treeline(mut self, options: TreelineOptions) -> Self {
        if !matches!(self.kind, TreeKind::Treeline) {
            return self.with_unknown(Setting::Treeline);
        }
        self.pages = options;
        self
    }

    const fn with_unknown(mut self, setting: Setting) -> Self {
        self.unknown = Some(setting);
        self
    }
}

impl Default for Tree {
    fn default() -> Self {
        Self::turtle()
    }
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct(&self.kind.to_string());
        for (name, value) in self.settings() {
            shown.field(name, &value);
        }
        self.unknown.iter().for_each(|setting| _ = shown.field("unknown", setting));
        shown.finish()
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl FromStr for Tree {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        find_by_name(&Self::presets(), name)
    }
}
