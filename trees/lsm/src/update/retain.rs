//! Additions of a move to the compaction buffer of its destination (LSbM §4.1, algorithm 1), and the limit
//! on all buffers.
//!
//! Incoming data is put into the buffer as sections, cut at the fences of the replaced runs. So cold sections
//! are dropped one by one, although a move is much larger (LSbM §4.3: the unit of trimming is smaller than
//! that of compaction). Beyond the paper, the replaced runs are retained as well: here queries mostly use the
//! sequence that is rewritten, not the incoming data. They are the bases of the buffer; ranges where the
//! sequence had nothing are recorded, too.
//!
//! A sequence with mostly repeated incoming keys is *frozen*: nothing more is put into its buffer, and
//! sections replaced by moves are dropped (LSbM §4.1).
//!
//! **Invariants**
//! - All incoming data is put into the buffer, or a barrier in its place; only then is the buffer trimmed.

use std::{collections::BTreeSet, sync::Arc};

use testudo_base::{Result, RunId, planted};
use testudo_sequence::{Bounds, BufferLayer, BufferSection, CompactionBuffer, Fence, stacked};

use crate::{
    LsmOptions,
    levels::{
        Levels,
        component::{Component, LevelRun},
        repeats::Repeats,
    },
    update::{
        destination::{Destination, Place},
        plan::Cell,
    },
};

/// New layers of a buffer after a move.
struct Arrival {
    /// Newest first.
    layers: Vec<BufferLayer>,
    range: Bounds,
}

/// Returns the lesser of two upper bounds; `None` is unbounded.
fn least<'a>(one: Option<&'a Fence>, other: Option<&'a Fence>) -> Option<&'a Fence> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Returns the sections of a run before `border`, cut at `fences`. `next`: the fence of the following run.
fn sections_of(
    level_run: &LevelRun,
    next: Option<&Fence>,
    border: Option<&Fence>,
    fences: &[Fence],
) -> BufferLayer {
    let end = least(next, border);
    let first = fences.partition_point(|fence| *fence <= level_run.fenced.low);
    let inside = fences[first..].iter().take_while(|fence| end.is_none_or(|end| *fence < end));
    let mut sections = BufferLayer::new();
    let mut low = level_run.fenced.low.clone();
    for high in inside.map(Some).chain([end]) {
        let run = Some(Arc::clone(level_run.run()));
        sections.push(BufferSection { low, high: high.cloned(), run, is_base: false, from_memory: None });
        low = high.cloned().unwrap_or_default();
    }
    debug_assert!(
        sections.is_sorted_by(|a, b| a.high.as_ref() == Some(&b.low)),
        "the sections of a run leave no gap and do not overlap"
    );
    sections
}

/// Returns the same for a replaced run, as bases: with the incoming data they are complete.
fn bases_of(level_run: &LevelRun, next: Option<&Fence>, border: Option<&Fence>) -> BufferLayer {
    let mut sections = sections_of(level_run, next, border, &[]);
    sections.iter_mut().for_each(|section| section.is_base = true);
    sections
}

/// Returns an empty base from `low` up to the first run of `own`, where it had nothing.
fn nothing_before(own: &Component, low: &Fence, border: Option<&Fence>) -> Option<BufferSection> {
    let high = least(own.get(0).map(|first| &first.fenced.low), border).cloned();
    let is_any = high.as_ref().is_none_or(|high| low < high);
    is_any.then(|| BufferSection { low: low.clone(), high, run: None, is_base: true, from_memory: None })
}

/// Returns the sections of a sequence before `border`.
fn sections_before(component: &Component, border: Option<&Fence>, fences: &[Fence]) -> BufferLayer {
    let within = component.within(&Bounds { low: None, high: border.cloned() });
    let mut sections = BufferLayer::new();
    for at in within {
        let Some(level_run) = component.get(at) else { continue };
        let next = component.get(at + 1).map(|next| &next.fenced.low);
        sections.extend(sections_of(level_run, next, border, fences));
    }
    sections
}

/// Returns the incoming sections, newest first, cut at `fences`.
fn incoming(levels: &Levels, destination: &Destination, fences: &[Fence]) -> Vec<BufferLayer> {
    let emptied = destination.emptied.and_then(|level| levels.levels.get(level));
    let emptying = emptied.map(|level| &level.emptying[..]).unwrap_or_default();
    let border = destination.border.as_ref();
    let layers = emptying.iter().map(|component| sections_before(component, border, fences));
    layers.filter(|layer| !layer.is_empty()).collect()
}

/// Returns the lower bound of the first section.
fn first_of(layers: &[BufferLayer]) -> Option<Fence> {
    layers.iter().filter_map(|layer| layer.first()).map(|section| &section.low).min().cloned()
}

impl Arrival {
    /// Returns a barrier in place of the incoming data of `destination`, whose sequence is frozen.
    fn barred(levels: &Levels, destination: &Destination) -> Self {
        let low = first_of(&incoming(levels, destination, &[]));
        let high = destination.border.clone();
        let range = Bounds { low: low.as_ref().and_then(Fence::as_low), high: high.clone() };
        let low = low.filter(|_| !planted!("frozen-without-barrier"));
        let layers = low.into_iter().map(|low| vec![BufferSection::barrier(low, high.clone())]).collect();
        Self { layers, range }
    }

    /// Returns the incoming sections of `destination`, above the runs that it replaces.
    fn of(levels: &Levels, destination: &Destination, retained_percent: u32) -> Self {
        let Destination { range, border, cells, .. } = destination;
        let own = levels.component_at(destination.place);
        let border = border.as_ref();
        let fences: Vec<Fence> =
            own.range(range.clone()).map(|level_run| level_run.fenced.low.clone()).collect();
        let mut layers = incoming(levels, destination, &fences);
        let first = first_of(&layers);
        let staying: BTreeSet<RunId> = cells
            .iter()
            .filter_map(|cell| match cell {
                Cell::Stays(level_run) => Some(level_run.run().reference().id),
                Cell::Merge(_) | Cell::Pages(..) => None,
            })
            .collect();
        let arrived: u64 = layers.iter().flatten().map(BufferSection::stored_bytes).sum();
        let used = levels.retained_only_bytes() + arrived;
        let mut room = levels.retained_bytes_max(retained_percent).saturating_sub(used);
        let mut replaced = BufferLayer::new();
        replaced.extend(first.and_then(|low| nothing_before(&own, &low, border)));
        for at in range.clone() {
            let Some(level_run) = own.get(at) else { continue };
            if staying.contains(&level_run.run().reference().id) {
                continue;
            }
            let next = own.get(at + 1).map(|next| &next.fenced.low);
            // A base that is not in memory may be left out: older layers still agree with the sequence.
            let stored_bytes = level_run.run().reference().stored_bytes();
            if stored_bytes <= room {
                let before = replaced.len();
                replaced
                    .extend(bases_of(level_run, next, border).into_iter().filter(BufferSection::is_resident));
                room -= if replaced.len() > before { stored_bytes } else { 0 };
            }
        }
        layers.push(replaced);
        layers.retain(|layer| !layer.is_empty());
        let low = first_of(&layers).and_then(|low| low.as_low());
        Self { range: Bounds { low, high: border.cloned() }, layers }
    }
}

impl Levels {
    /// Like [`Levels::install`]; also keeps the merged runs in the compaction buffer.
    pub(crate) fn install_retaining(
        &mut self,
        destination: Destination,
        runs: Vec<LevelRun>,
        options: &LsmOptions,
    ) -> Result<()> {
        let place = destination.place;
        if matches!(place, Place::Parts { .. }) {
            return self.install(destination, runs);
        }
        let is_frozen = self.note_inflow(&destination);
        let Arrival { layers, range } = if is_frozen {
            Arrival::barred(self, &destination)
        } else {
            Arrival::of(self, &destination, options.retained_percent)
        };
        let before = self.component_at(place).buffer().cloned();
        self.install(destination, runs)?;
        let below = before.as_ref().map(|buffer| &buffer.layers[..]).unwrap_or_default();
        let layers = stacked(below, layers, &range);
        let buffer = CompactionBuffer::of_layers(layers, &mut self.next_object);
        if let Some(component) = self.component_at_mut(place) {
            component.set_buffer(buffer);
        }
        Ok(())
    }

    /// Measures the fraction of repeated keys of a move; returns whether its destination is frozen.
    fn note_inflow(&mut self, destination: &Destination) -> bool {
        let own = self.component_at(destination.place);
        let own_ids: BTreeSet<RunId> =
            own.range(destination.range.clone()).map(|level_run| level_run.run().reference().id).collect();
        let mut inflow = destination.counts.keys;
        for cell in &destination.cells {
            if let Cell::Stays(level_run) = cell
                && !own_ids.contains(&level_run.run().reference().id)
            {
                inflow.entries += level_run.run().reference().entries;
            }
        }
        let retained = own.buffer().map(|buffer| buffer.retained()).unwrap_or_default();
        let repeats = match destination.place {
            Place::Level(level) => self.levels.get_mut(level).map(|level| &mut level.repeats),
            Place::Bottom => Some(&mut self.bottom_repeats),
            Place::Parts { .. } => None,
        };
        let Some(repeats) = repeats else { return false };
        if destination.emptied.is_some() {
            *repeats = repeats.after(inflow, retained);
        }
        repeats.is_frozen()
    }

    fn component_at_mut(&mut self, place: Place) -> Option<&mut Component> {
        match place {
            Place::Parts { .. } => None,
            Place::Level(level) => self.levels.get_mut(level)?.filling.first_mut(),
            Place::Bottom => Some(&mut self.bottom),
        }
    }

    /// Drops all buffers and their measurements.
    pub(crate) fn forget_retained(&mut self) {
        self.levels.iter_mut().for_each(|level| level.repeats = Repeats::default());
        self.bottom_repeats = Repeats::default();
        self.components_mut().for_each(|component| component.set_buffer(None));
    }

    /// Whether compaction buffers have runs that are known to be damaged.
    pub(crate) fn has_damaged_retained(&self) -> bool {
        self.components().filter_map(Component::buffer).any(|buffer| buffer.has_damage())
    }

    /// Limit on the bytes of buffers.
    fn retained_bytes_max(&self, retained_percent: u32) -> u64 {
        let stored =
            self.live_runs().map(|level_run| level_run.run().reference().stored_bytes()).sum::<u64>();
        stored / 100 * u64::from(retained_percent)
    }

    /// Drops cold sections, and the oldest ones beyond the limit.
    pub(crate) fn trim_retained(&mut self, retained_percent: u32) {
        debug_assert!(retained_percent <= 100, "a part of the tree");
        if retained_percent == 0 {
            return self.forget_retained();
        }
        let mut next_object = self.next_object;
        for component in self.components_mut() {
            let trimmed = component.buffer().and_then(|buffer| buffer.trimmed(&mut next_object));
            component.set_buffer(trimmed);
        }
        while self.retained_only_bytes() > self.retained_bytes_max(retained_percent) {
            let largest = self
                .components_mut()
                .max_by_key(|component| component.buffer().map_or(0, |buffer| buffer.stored_bytes()));
            let Some(component) = largest else { break };
            let rest = component.buffer().and_then(|buffer| buffer.without_oldest(&mut next_object));
            component.set_buffer(rest);
        }
        self.next_object = next_object;
    }

    /// Bytes on the device of runs that are only in buffers.
    pub(crate) fn retained_only_bytes(&self) -> u64 {
        let mut retained = self.retained_runs();
        if !retained.is_empty() {
            let live: BTreeSet<RunId> =
                self.live_runs().map(|level_run| level_run.run().reference().id).collect();
            retained.retain(|id, _| !live.contains(id));
        }
        retained.values().map(|run| run.reference().stored_bytes()).sum()
    }
}
