//! Settings of a treeline tree beyond those of its levels.

use testudo_lsm::LsmOptions;

/// The flushes of a treeline tree that are staged in its levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// All: entries reach pages by later moves, many of them together.
    #[default]
    All,
    /// Those of scattered keys. Dense flushes, of several records for each page, are written straight into
    /// pages if that writes fewer bytes than the levels (TreeLine §4.1). Overwriting stretches of 32 records
    /// writes half to two thirds of the bytes and leaves less garbage, at a lower rate. Two of every 16 pages
    /// are left unused, so that scans find replaced pages near each other. Records of 950 bytes and more
    /// update pages only with this stage: their pages are full, and take up to a third more space.
    Sparse,
}

/// Forecasts of a treeline tree, for which rewritten pages have free space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Forecast {
    /// Nothing: all pages have the same fill.
    Off,
    /// Inserts of new keys, from those that came into pages recently (TreeLine §4.6). Rewritten runs leave
    /// free space where more are expected, at most 15 % of all of it.
    #[default]
    Inserts,
}

/// How a treeline tree fills and updates its pages: the argument of
/// [`Tree::with_treeline`](super::Tree::with_treeline).
///
/// ```
/// # use testudo_options::{Forecast, Stage, Tree, TreelineOptions};
/// let options = TreelineOptions::new().with_stage(Stage::Sparse).with_forecast(Forecast::Off);
/// let tree = Tree::treeline().with_treeline(options);
/// assert_eq!(tree.treeline_options(), Some(options));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreelineOptions {
    fill_percent: u32,
    stage: Stage,
    forecast: Forecast,
}

impl TreelineOptions {
    /// The default settings.
    pub const fn new() -> Self {
        Self {
            fill_percent: LsmOptions::new().page_fill_percent,
            stage: Stage::All,
            forecast: Forecast::Inserts,
        }
    }

    /// Fill of newly written pages without forecast inserts, in percent.
    pub const fn fill_percent(&self) -> u32 {
        self.fill_percent
    }

    /// Sets [`TreelineOptions::fill_percent`]: 50 to 100, default 94. The rest of a page is for records that
    /// are added or grow: less fill means fewer overflow pages, and more space. Pages are filled completely
    /// where free space would keep out a record that fits.
    #[must_use]
    pub const fn with_fill_percent(mut self, percent: u32) -> Self {
        self.fill_percent = percent;
        self
    }

    /// The flushes that are staged in the levels.
    pub const fn stage(&self) -> Stage {
        self.stage
    }

    /// Sets [`TreelineOptions::stage`]. Default [`Stage::All`].
    #[must_use]
    pub const fn with_stage(mut self, stage: Stage) -> Self {
        self.stage = stage;
        self
    }

    /// The forecasts.
    pub const fn forecast(&self) -> Forecast {
        self.forecast
    }

    /// Sets [`TreelineOptions::forecast`]. Default [`Forecast::Inserts`].
    #[must_use]
    pub const fn with_forecast(mut self, forecast: Forecast) -> Self {
        self.forecast = forecast;
        self
    }

    pub(crate) const fn forecasts_inserts(&self) -> bool {
        matches!(self.forecast, Forecast::Inserts)
    }

    pub(crate) const fn flushes_directly(&self) -> bool {
        matches!(self.stage, Stage::Sparse)
    }
}

impl Default for TreelineOptions {
    fn default() -> Self {
        Self::new()
    }
}
