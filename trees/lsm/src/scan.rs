//! What the levels hold for the keys of one run of the bottom: the part that a scan goes through at a time.
//!
//! **Invariants**
//! - Parts follow each other from fence to fence of the bottom; before its first run is one part more.

pub(crate) mod scan_charges;

use std::sync::Arc;

use testudo_base::num::u64_of;
use testudo_sequence::{
    Bounds, Entrance, Fence, FencedRun, PartRange, PartSources, ScanParts, SequenceCursor,
};

use crate::{
    levels::{Levels, component::Component},
    scan::scan_charges::ScanCharges,
};

/// The runs of the bottom, each with what lies above it.
#[derive(Debug)]
pub(crate) struct LevelParts {
    levels: Arc<Levels>,
    charges: Arc<ScanCharges>,
}

impl LevelParts {
    pub(crate) fn new(levels: &Arc<Levels>, charges: &Arc<ScanCharges>) -> Self {
        Self { levels: Arc::clone(levels), charges: Arc::clone(charges) }
    }

    /// About how many bytes a sequence has for one part.
    fn part_bytes(&self, component: &Component, runs: u64) -> u64 {
        let parts = u64_of(self.levels.bottom.len()).max(1);
        let run_bytes = component.bytes() / u64_of(component.len()).max(1);
        (component.bytes() / parts).max(1).min(run_bytes.max(1) * runs)
    }
}

impl ScanParts for LevelParts {
    fn enter(&self, entrance: Entrance<'_>, goes_on: bool) -> PartSources {
        let Self { levels, charges } = self;
        let behind = match entrance {
            Entrance::At(key) => levels.bottom.runs_up_to(key),
            Entrance::Before(key) => levels.bottom.runs_below(key),
            Entrance::Last => levels.bottom.len(),
        };
        let leaf = behind.checked_sub(1).and_then(|at| levels.bottom.get(at));
        let low = leaf.and_then(|leaf| leaf.fenced.low.as_low());
        let high = levels.bottom.get(behind).map(|next| next.fenced.low.clone());
        let keys = |fence: &Option<Fence>| fence.as_ref().map(|fence| Arc::<[u8]>::from(fence.to_vec()));
        let range = PartRange { low: keys(&low), high: keys(&high) };
        let bounds = Bounds { low, high };
        let (mut cursors, mut waiting_bytes) = (Vec::with_capacity(16), Vec::with_capacity(16));
        for component in levels.upper() {
            let within = component.range(component.within(&bounds));
            let runs: Vec<FencedRun> = within.map(|held| held.fenced.clone()).collect();
            if !runs.is_empty() {
                waiting_bytes.push(self.part_bytes(component, u64_of(runs.len())));
                cursors.push(SequenceCursor::new(runs, range.low.clone(), range.high.clone()));
            }
        }
        if !goes_on {
            charges.charge(cursors.len());
        }
        if let Some(leaf) = leaf {
            cursors.push(SequenceCursor::leaf(&leaf.fenced));
            waiting_bytes.push(leaf.bytes);
        }
        PartSources { range, cursors, waiting_bytes }
    }

    fn leaf_at(&self, border: &[u8]) -> Option<FencedRun> {
        self.levels.bottom.find(border).cloned()
    }
}
