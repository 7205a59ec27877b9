//! Benefit of medium values as a separate class (Parallax fig. 5.3): the hybrid placement against one that
//! treats them as small, so that their values stay in the tree, and one that treats them as large, so that
//! their values never come back.
//!
//! **Invariants**
//! - Only the thresholds differ. They are the two of the hybrid placement, from T_ML = 0.02 for one way and
//!   T_SM = 0.2 for the other, as in the thesis.
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
        way("medium as small", Placement::by_value_bytes(None, hybrid.large_from())?),
        way("medium as large", Placement::by_value_bytes(None, hybrid.medium_from())?),
    ])
}

pub(crate) fn run(experiment: &mut Experiment<'_>) -> Result<Findings> {
    compare(experiment, "parallax-classes", &ways()?, &MIXES)
}
