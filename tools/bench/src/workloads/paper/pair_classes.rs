//! Benefit of medium pairs as a separate class (Parallax fig. 5.3): the hybrid placement against one that
//! treats them as small, so that their values stay in the tree, and one that treats them as large, so that
//! their values never come back.
//!
//! **Invariants**
//! - Only the ratios differ. They are the two of the hybrid placement: T_SM = T_ML = 0.02 for one, 0.2 for
//!   the other, as in the thesis.
//! - Compared stores run right after each other. Rates are from single runs; the metric is bytes.

use testudo::{Placement, Result};

use super::{
    Findings,
    experiment::Experiment,
    placements::{Way, compare},
};
use crate::args::Mix;

const MIXES: [(&str, Mix); 4] = [("M", Mix::M), ("SD", Mix::Sd), ("MD", Mix::Md), ("LD", Mix::Ld)];

fn ways() -> Result<[Way; 3]> {
    let hybrid = Placement::hybrid();
    let way = |name, placement| Way { name, tree: "leveled", placement };
    Ok([
        way("hybrid", hybrid),
        way("medium as small", hybrid.with_small_ratio(hybrid.large_ratio())?),
        way("medium as large", hybrid.with_large_ratio(hybrid.small_ratio())?),
    ])
}

pub(crate) fn run(experiment: &mut Experiment<'_>) -> Result<Findings> {
    compare(experiment, "parallax-classes", &ways()?, &MIXES)
}
