//! First level at which medium values are in place, with their keys (Parallax fig. 5.4): the
//! bottom (N-1 in the thesis), the level above it (N-2), all levels, or none.
//!
//! Another way to keep fewer values outside is to size levels by pairs (the thesis' two sizes).
//!
//! Segments are either sorted, as flushes write them, or unsorted, as commits do.
//!
//! The thesis' `NoMerge` never reclaims garbage values; here segments that never come back are rewritten like
//! large ones.
//!
//! **Invariants**
//! - Only the placement differs.
//! - Compared stores run right after each other. Rates are from single runs; the metric is bytes.

use testudo::{Placement, Result};

use super::{
    Findings,
    experiment::Experiment,
    placements::{Way, compare},
};
use crate::args::Mix;

const MIXES: [(&str, Mix); 2] = [("M", Mix::M), ("MD", Mix::Md)];

fn ways() -> Result<[Way; 7]> {
    let hybrid = Placement::hybrid();
    let next = hybrid.with_in_place_levels(2)?;
    let way = |name, placement| Way { name, tree: "leveled", placement };
    Ok([
        way("from the bottom", hybrid),
        way("from the level above", next),
        way("from the bottom, unsorted", hybrid.with_logged_medium(true)),
        way("from the level above, unsorted", next.with_logged_medium(true)),
        way("from the bottom, levels sized by pairs", hybrid.with_sizes_of_pairs(true)),
        way("everywhere", Placement::by_value_bytes(None, hybrid.large_from())?),
        way("nowhere", Placement::by_value_bytes(None, hybrid.medium_from())?),
    ])
}

pub(crate) fn run(experiment: &mut Experiment<'_>) -> Result<Findings> {
    compare(experiment, "parallax-levels", &ways()?, &MIXES)
}
