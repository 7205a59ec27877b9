//! The sources of the levels for the keys of one run of the bottom, the part that a scan reads at a time.
//!
//! If a compaction buffer has everything of a sequence for a part, and in memory, its sections are read
//! instead of the sequence (`scan/buffered_sections.rs`).
//!
//! **Invariants**
//! - Parts are consecutive, from fence to fence of the bottom, with one more part before its first run.

pub(crate) mod buffered_scan;
pub(crate) mod buffered_sections;

use std::sync::Arc;

use testudo_base::num::u64_of;
use testudo_sequence::{
    Bounds, Entrance, Fence, FencedRun, PartRange, PartSources, ScanParts, SequenceCursor,
};

use crate::{
    levels::{Levels, component::Component},
    read_charges::ReadCharges,
    scan::buffered_sections::BufferedSections,
    update::gather,
};

/// The runs of the bottom, each with the data above it.
#[derive(Debug)]
pub(crate) struct LevelParts {
    levels: Arc<Levels>,
    charges: Arc<ReadCharges>,
    /// Compaction buffers that may be read instead of sequences.
    buffered: Option<Arc<BufferedSections>>,
}

impl LevelParts {
    pub(crate) fn new(levels: &Arc<Levels>, charges: &Arc<ReadCharges>) -> Self {
        Self { levels: Arc::clone(levels), charges: Arc::clone(charges), buffered: None }
    }

    /// Like [`LevelParts::new`], reading compaction buffers instead of sequences where possible.
    pub(crate) fn with_buffers(
        levels: &Arc<Levels>,
        charges: &Arc<ReadCharges>,
        buffered: &Arc<BufferedSections>,
    ) -> Self {
        Self { buffered: Some(Arc::clone(buffered)), ..Self::new(levels, charges) }
    }

    /// Opens the sections of a compaction buffer instead of its sequence, if they suffice; returns whether
    /// they do.
    fn open_sections(
        &self,
        component: &Component,
        part: &Bounds,
        entrance: Entrance<'_>,
        (cursors, waiting_bytes): (&mut Vec<SequenceCursor>, &mut Vec<u64>),
    ) -> bool {
        let sections = self.buffered.as_ref().and_then(|buffered| buffered.choose(component, part, entrance));
        let Some(sections) = sections else { return false };
        for (run, bounds) in sections {
            cursors.push(SequenceCursor::section(&run, &bounds));
            waiting_bytes.push(self.part_bytes(component, 1));
        }
        true
    }

    /// Approximate bytes of a sequence for one part.
    fn part_bytes(&self, component: &Component, runs: u64) -> u64 {
        let parts = u64_of(self.levels.bottom.len()).max(1);
        let run_bytes = component.bytes() / u64_of(component.len()).max(1);
        (component.bytes() / parts).max(1).min(run_bytes.max(1) * runs)
    }
}

impl ScanParts for LevelParts {
    fn enter(&mut self, entrance: Entrance<'_>, goes_on: bool) -> PartSources {
        let Self { levels, charges, buffered } = &*self;
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
        let mut above = 0;
        if let Some(buffered) = buffered {
            buffered.enter_part(goes_on);
        }
        for component in levels.upper() {
            let within = component.range(component.within(&bounds));
            let runs: Vec<FencedRun> = within.map(|level_run| level_run.fenced.clone()).collect();
            if runs.is_empty() {
                continue;
            }
            above += 1;
            if !self.open_sections(component, &bounds, entrance, (&mut cursors, &mut waiting_bytes)) {
                waiting_bytes.push(self.part_bytes(component, u64_of(runs.len())));
                cursors.push(SequenceCursor::new(runs, range.low.clone(), range.high.clone()));
            }
        }
        if !goes_on {
            charges.charge(above);
        }
        if leaf.is_some_and(|leaf| gather::is_due(leaf, true)) {
            charges.note();
        }
        if let Some(leaf) = leaf
            && !self.open_sections(&levels.bottom, &bounds, entrance, (&mut cursors, &mut waiting_bytes))
        {
            cursors.push(SequenceCursor::leaf(&leaf.fenced));
            waiting_bytes.push(leaf.bytes);
        }
        debug_assert_eq!(cursors.len(), waiting_bytes.len(), "each source has its estimate");
        PartSources { range, cursors, waiting_bytes }
    }

    fn leaf_at(&self, border: &[u8]) -> Option<FencedRun> {
        self.levels.bottom.find(border).cloned()
    }
}
