//! The compaction buffer of a sequence: runs that were merged into it, or replaced by a merge, and that
//! queries can still use from memory (LSbM §4: B of C).
//!
//! A merge writes cached data to new pages, which must be read again. So the merged runs are retained through
//! a second reference to their extents. Queries keep using their cached pages until those are no longer hot.
//! The buffer itself writes no data and reads none.
//!
//! It is a list of layers, newest first, each with sections of disjoint runs. A lookup searches the sections
//! that cover the key from newest to oldest. The first one that has the key answers, but only with a value or
//! a tombstone: operands were folded by the merge, and references may point to values that have moved. A
//! dropped section leaves a *barrier* if older ones are below it. The search **stops** there, because the
//! newest entry may have been in the dropped section.
//!
//! Range queries need complete data. A *base* is a section that, with everything above it, has everything
//! that the sequence has of its keys: the contents of the sequence when the newer data arrived, possibly
//! nothing. If every key of a range reaches a base before a barrier, the sections can be read instead of the
//! sequence ([`CompactionBuffer::all_within`]).
//!
//! **Correctness.** The *law*: among the sections that cover a key, down to the first barrier, the first one
//! with an entry of the key has the entry of the sequence, if that is a value or a tombstone. A merge into
//! the sequence preserves it. All incoming data is put above the existing layers, newest first, as sections
//! or barriers. For keys without an incoming entry, the sequence is unchanged. Updates from a write buffer
//! are in no run. A section with the hashes of their keys takes their place; the search stops there for those
//! keys and continues for others. The runs that the merge replaces hold the state before it; they go between
//! the incoming data and the older layers. Dropping the oldest layers, or replacing a section with a barrier,
//! only makes the list less complete. The same holds for bases. The replaced runs were all of the range, and
//! everything newer is above them, as sections or barriers. Nothing below a base is ever needed.
//!
//! **Invariants**
//! - The law, and its counterpart for bases. Any other change of a sequence drops its buffer.
//! - Before the buffer, the sequence is checked: it must cover the key, and its filter must pass it.
//! - No page of a filter or of an index is read for a buffer: where one is not in memory, the sequence itself
//!   answers.
//! - A run that was found damaged is not used again, and the next edit drops it.
//! - A buffer is immutable; a changed one has a new object id.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use testudo_base::{
    Error, ErrorKind, Kind, ObjectId, PAGE_BYTES, Result, RunId, checksum::hash_key, num::u64_of, planted,
};
use testudo_run::{Access, Lookup, Run};
use testudo_storage::{DataFile, PageAddress};

use crate::{Bounds, Fence, RunSlice, layer_cursor};

/// Minimum percentage of a section's data pages in the page cache for it to be in use (LSbM §6.1).
const RESIDENT_PERCENT: u64 = 80;
/// Maximum number of layers; more would make queries slow.
const LAYERS_MAX: usize = 24;

/// A section of a run for a range of keys, or a placeholder for one.
#[derive(Clone, Debug)]
pub struct BufferSection {
    /// Least key of the range.
    pub low: Fence,
    /// Exclusive upper bound of the range.
    pub high: Option<Fence>,
    /// `None` for a barrier or, if `is_base`, for a range where the sequence had nothing.
    pub run: Option<Arc<Run>>,
    /// With everything above it, has everything that the sequence has of its keys.
    pub is_base: bool,
    /// For a placeholder of updates from memory: short hashes of their keys, ascending.
    pub from_memory: Option<Arc<[u32]>>,
}

/// Truncated key hash, as stored for keys that came from memory.
pub fn short_hash(hash: u64) -> u32 {
    let [a, b, c, d, ..] = hash.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// Disjoint sections in key order.
pub type BufferLayer = Vec<BufferSection>;

/// A compaction buffer.
#[derive(Debug)]
pub struct CompactionBuffer {
    /// Id of its object.
    pub id: ObjectId,
    /// Newest first; none is empty.
    pub layers: Vec<BufferLayer>,
}

impl BufferSection {
    /// Returns a placeholder for data that was dropped, or not retained.
    pub fn barrier(low: Fence, high: Option<Fence>) -> Self {
        Self { low, high, run: None, is_base: false, from_memory: None }
    }

    /// Returns a placeholder for updates from memory of keys with these hashes.
    pub fn from_memory(low: Fence, high: Option<Fence>, hashes: Arc<[u32]>) -> Self {
        debug_assert!(hashes.is_sorted_by(|a, b| a < b), "hashes ascend: they are searched by halves");
        Self { from_memory: Some(hashes), ..Self::barrier(low, high) }
    }

    /// Whether its data is unknown for some or all keys.
    fn is_stop(&self) -> bool {
        self.run.is_none() && !self.is_base
    }

    fn is_barrier(&self) -> bool {
        self.is_stop() && self.from_memory.is_none()
    }

    /// Whether a search for a key with this hash ends at a placeholder.
    fn stops(&self, hash: u64) -> bool {
        let is_in = |hashes: &[u32]| hashes.binary_search(&short_hash(hash)).is_ok();
        self.from_memory.as_deref().is_none_or(is_in) && !planted!("keys-from-memory-passed")
    }

    fn bounds(&self) -> Bounds {
        Bounds { low: self.low.as_low(), high: self.high.clone() }
    }

    fn covers(&self, key: &[u8]) -> bool {
        self.low.is_at_most(key) && self.high.as_ref().is_none_or(|high| !high.is_at_most(key))
    }

    fn meets(&self, bounds: &Bounds) -> bool {
        !self.bounds().intersection(bounds).is_empty()
    }

    /// Whether it contains all keys of `other`.
    fn surrounds(&self, other: &Self) -> bool {
        let ends_behind = match (&self.high, &other.high) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(high), Some(end)) => end <= high,
        };
        self.low <= other.low && ends_behind
    }

    /// Whether `next` directly continues it, with the same run.
    fn goes_on_in(&self, next: &Self) -> bool {
        let id = |section: &Self| section.run.as_ref().map(|run| run.reference().id);
        let is_same = id(self) == id(next) && self.is_base == next.is_base;
        is_same
            && self.high.as_ref() == Some(&next.low)
            && self.from_memory.is_none()
            && next.from_memory.is_none()
    }

    /// Approximate bytes of its run inside its range.
    pub fn stored_bytes(&self) -> u64 {
        let Some(run) = &self.run else { return 0 };
        let (low, high) = (self.low.to_vec(), self.high.as_ref().map(Fence::to_vec));
        run.resident_pages(Some(&low), high.as_deref()).map_or(0, |(_, pages)| pages * PAGE_BYTES)
    }

    fn is_damaged(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.is_known_damaged())
    }

    /// Whether enough of it is in memory.
    pub fn is_resident(&self) -> bool {
        let Some(run) = &self.run else { return true };
        let (low, high) = (self.low.to_vec(), self.high.as_ref().map(Fence::to_vec));
        // If this cannot be determined without reading, it is not in memory.
        let (resident, pages) = run.resident_pages(Some(&low), high.as_deref()).unwrap_or((0, 1));
        debug_assert!(resident <= pages, "resident pages are pages of the piece");
        resident * 100 >= pages * RESIDENT_PERCENT
    }
}

impl BufferSection {
    /// Whether queries pass its filter on the way to a run of `older`, or scans need it together with a base
    /// there.
    fn is_on_the_way_to(&self, older: &[BufferLayer]) -> bool {
        let bounds = self.bounds();
        let below = |is_wanted: fn(&BufferSection) -> bool| {
            older.iter().any(|layer| meeting(layer, &bounds).any(is_wanted))
        };
        let has_filter = |run: &Arc<Run>| run.has_filter_in_memory().unwrap_or(false);
        below(|section| section.run.is_some() && section.is_base)
            || (below(|section| section.run.is_some()) && self.run.as_ref().is_some_and(has_filter))
    }
}

/// Approximate bytes in a compaction buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retained {
    /// Bytes of merged (incoming) runs.
    pub came: u64,
    /// Bytes of bases: the data that they were merged into.
    pub bases: u64,
}

/// A part of a run, read instead of the sequence.
#[derive(Debug)]
pub struct ScanSection<'a> {
    /// The run.
    pub run: &'a Arc<Run>,
    /// Keys to read from it.
    pub bounds: Bounds,
    /// With newer sections, has everything of these keys.
    pub is_base: bool,
}

/// Returns the entry of `key` in a run, if no page of its filter or index must be read for it. If the run is
/// damaged, the sequence itself answers, and the run is not used again.
fn answer_of(run: &Run, is_base: bool, key: &[u8], hash: u64, access: Access<'_>) -> Option<Lookup> {
    if run.is_known_damaged() {
        return None;
    }
    run.get_present(key, hash, access, is_base).unwrap_or_else(|error| {
        note_damage(run, &error);
        None
    })
}

/// Records that reading a page of the run failed with `error`.
pub fn note_damage(run: &Run, error: &Error) {
    if matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Io) {
        run.note_damage();
    }
}

/// Reads pages into the cache. Those of runs in `retained` may fail: such a run is not used again, and
/// callers that still need the page read it themselves.
///
/// Errors: `Io` and `Corruption` of the other pages.
#[cold]
pub fn load_sparing_damaged(
    data: &DataFile,
    pages: &[PageAddress],
    retained: BTreeMap<RunId, &Arc<Run>>,
) -> Result<()> {
    let mut generations = BTreeMap::new();
    for (id, run) in retained {
        let replaced = run.reference().replaced.iter().flat_map(|replaced| replaced.writings());
        for generation in replaced.map(|writing| writing.generation).chain([id]) {
            generations.insert(generation, run);
        }
    }
    let (spare, needed): (Vec<PageAddress>, Vec<PageAddress>) =
        pages.iter().copied().partition(|page| generations.contains_key(&page.generation));
    for page in spare {
        if let Err(error) = data.load_pages(&[page]) {
            note_damage(generations[&page.generation], &error);
        }
    }
    data.load_pages(&needed)
}

/// Returns the section of a layer that covers `key`.
fn find_in<'a>(layer: &'a [BufferSection], key: &[u8]) -> Option<&'a BufferSection> {
    let behind = layer.partition_point(|section| section.low.is_at_most(key));
    layer.get(behind.checked_sub(1)?).filter(|section| section.covers(key))
}

/// Returns the sections of a layer that overlap `bounds`.
fn meeting<'a, 'b>(
    layer: &'a [BufferSection],
    bounds: &'b Bounds,
) -> impl Iterator<Item = &'a BufferSection> + use<'a, 'b> {
    let from = layer.partition_point(|section| match (&section.high, &bounds.low) {
        (Some(high), Some(low)) => high <= low,
        _ => false,
    });
    layer[from..].iter().take_while(|section| section.meets(bounds))
}

/// Joins adjacent sections of the same run.
fn joined(layer: BufferLayer) -> BufferLayer {
    let mut sections: BufferLayer = Vec::with_capacity(layer.len());
    for section in layer {
        match sections.last_mut() {
            Some(last) if last.goes_on_in(&section) => last.high = section.high,
            _ => sections.push(section),
        }
    }
    sections
}

/// Whether the sections of a layer are disjoint and in key order.
fn are_disjoint(layer: &[BufferSection]) -> bool {
    layer.is_sorted_by(|a, b| a.high.as_ref().is_some_and(|high| *high <= b.low))
}

/// Puts the layers of `new` above those of `old`, both newest first. All sections of `new` are inside
/// `range`; each goes into the lowest possible layer.
pub fn stacked(old: &[BufferLayer], new: Vec<BufferLayer>, range: &Bounds) -> Vec<BufferLayer> {
    let is_inside = |section: &BufferSection| section.bounds().intersection(range) == section.bounds();
    debug_assert!(new.iter().flatten().all(is_inside), "all new sections are inside the range");
    let mut layers = old.to_vec();
    let is_free = |layer: &&BufferLayer| meeting(layer, range).next().is_none();
    let mut free = layers.iter().take_while(is_free).count();
    if free < new.len() {
        layers.splice(0..0, vec![BufferLayer::new(); new.len() - free]);
        free = new.len();
    }
    let first = free - new.len();
    for (layer, sections) in layers[first..].iter_mut().zip(new) {
        let Some(low) = sections.first().map(|section| &section.low) else { continue };
        let at = layer.partition_point(|section| section.low < *low);
        layer.splice(at..at, sections);
        debug_assert!(are_disjoint(layer), "sections of a layer are disjoint and in key order");
    }
    layers
}

/// Removes sections that can never answer: those completely below one barrier or base, empty bases with no
/// run above or below, and barriers with nothing below them.
///
/// A placeholder is removed only if no run is below. Such a run may extend beyond the section that covered
/// the deletions of its entries, and the search must end before it.
fn tidied(layers: Vec<BufferLayer>) -> Vec<BufferLayer> {
    let is_hidden = |above: &[BufferLayer], section: &BufferSection| {
        let hides = |section: &&BufferSection| section.is_barrier() || section.is_base;
        above.iter().any(|layer| {
            let end = find_in(layer, &section.low.bytes()).filter(hides);
            end.is_some_and(|end| end.surrounds(section))
        })
    };
    let mut tidied: Vec<BufferLayer> = Vec::with_capacity(layers.len());
    for layer in layers {
        let mut layer = joined(layer);
        layer.retain(|section| !is_hidden(&tidied, section));
        tidied.push(layer);
    }
    for at in (0..tidied.len()).rev() {
        let (rest, below) = tidied.split_at_mut(at + 1);
        let Some((layer, above)) = rest.split_last_mut() else { continue };
        layer.retain(|section| {
            let bounds = section.bounds();
            let any = |layers: &[BufferLayer], is_such: fn(&BufferSection) -> bool| {
                layers.iter().any(|layer| meeting(layer, &bounds).any(is_such))
            };
            let has_run = |other: &BufferSection| other.run.is_some();
            match (&section.run, section.is_base) {
                (Some(_), _) => true,
                (None, true) => any(above, has_run) || any(below, has_run),
                // A base below is complete only with the data missing here.
                (None, false) => any(below, |other| !other.is_stop()),
            }
        });
    }
    tidied.retain(|layer| !layer.is_empty());
    debug_assert!(tidied.iter().all(|layer| are_disjoint(layer)), "removing pieces keeps layers in order");
    tidied
}

impl CompactionBuffer {
    /// Creates the buffer of these layers; `None` if they have no run.
    pub fn of_layers(layers: Vec<BufferLayer>, next_object: &mut u64) -> Option<Arc<Self>> {
        let layers = tidied(layers);
        if layers.iter().flatten().all(|section| section.run.is_none()) {
            return None;
        }
        let id = ObjectId(*next_object);
        *next_object += 1;
        Some(Arc::new(Self { id, layers }))
    }

    /// Returns the sequence's entry of `key`, if the buffer has it. REQUIRES: the sequence covers the key.
    pub fn get(&self, key: &[u8], hash: u64, access: Access<'_>) -> Option<Lookup> {
        let ask = |run: &Run, is_base| Ok::<_, Infallible>(answer_of(run, is_base, key, hash, access));
        match self.search(key, hash, ask) {
            Ok(found) => found,
            Err(never) => match never {},
        }
    }

    /// Searches with `ask`, which gets a run and whether it is a base; `None` ends the search.
    fn search<E>(
        &self,
        key: &[u8],
        hash: u64,
        ask: impl Fn(&Run, bool) -> std::result::Result<Option<Lookup>, E>,
    ) -> std::result::Result<Option<Lookup>, E> {
        for section in self.layers.iter().filter_map(|layer| find_in(layer, key)) {
            let Some(run) = &section.run else {
                if planted!("barrier-skipped") || !section.stops(hash) {
                    continue;
                }
                return Ok(None);
            };
            let Some(found) = ask(run, section.is_base)? else { return Ok(None) };
            match found {
                // With everything above it a base is complete. Older sections may extend beyond it, without
                // the deletions of their entries.
                Lookup::Absent if section.is_base && !planted!("search-passes-base") => return Ok(None),
                Lookup::Absent => {}
                Lookup::Waiting | Lookup::Found(Kind::Value | Kind::Tombstone, ..) => return Ok(Some(found)),
                Lookup::Found(Kind::Operands, ..) if planted!("operands-out-of-buffer") => {
                    return Ok(Some(found));
                }
                Lookup::Found(..) => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Reads all sections; fails unless each value and tombstone that a search may find in them equals the
    /// result of `own`, the lookup in the sequence. If that finds nothing, a tombstone is correct; if it is
    /// `None`, the buffer is never used for the key.
    ///
    /// Errors: `Corruption` if the law does not hold, and those of reading.
    pub fn check_law(&self, own: impl Fn(&[u8], u64) -> Result<Option<Lookup>>) -> Result<()> {
        for section in self.layers.iter().flatten() {
            let Some(slice) =
                section.run.as_ref().and_then(|run| RunSlice::whole_run(run).clipped(&section.bounds()))
            else {
                continue;
            };
            let mut cursor = layer_cursor(vec![slice]);
            cursor.seek_first()?;
            while let Some(entry) = cursor.entry() {
                let hash = hash_key(entry.key);
                let ask = |run: &Run, _| run.get(entry.key, hash, Access::Blocking).map(Some);
                let is_right = match (self.search(entry.key, hash, ask)?, own(entry.key, hash)?) {
                    (Some(Lookup::Found(kind, value, _)), Some(Lookup::Found(own_kind, own_value, _))) => {
                        // A value that has moved since is the same.
                        let is_elsewhere =
                            !matches!(own_kind, Kind::Value | Kind::Tombstone | Kind::Operands);
                        is_elsewhere || (kind, value) == (own_kind, own_value)
                    }
                    (Some(Lookup::Found(kind, ..)), Some(_)) => kind == Kind::Tombstone,
                    _ => true,
                };
                if !is_right {
                    let message = "a compaction buffer disagrees with its sequence";
                    return Err(Error::new(ErrorKind::Corruption, message));
                }
                cursor.next()?;
            }
        }
        Ok(())
    }

    /// Returns runs that together have everything of the sequence inside `bounds`, newest first, each with
    /// its range of keys; `None` if completeness is unknown. REQUIRES: the sequence covers the bounds.
    pub fn all_within(&self, bounds: &Bounds) -> Option<Vec<ScanSection<'_>>> {
        let (mut found, mut open) = (Vec::new(), vec![bounds.clone()]);
        for layer in &self.layers {
            let mut rest = Vec::new();
            for range in open {
                rest.extend(Self::below_bases(layer, range, &mut found)?);
            }
            open = rest;
            if open.is_empty() {
                return Some(found);
            }
        }
        planted!("base-not-complete").then_some(found).filter(|found| !found.is_empty())
    }

    /// Returns the parts of `range` in which a layer has no base. `None` if there is a barrier.
    fn below_bases<'a>(
        layer: &'a [BufferSection],
        range: Bounds,
        found: &mut Vec<ScanSection<'a>>,
    ) -> Option<Vec<Bounds>> {
        let mut open = Vec::new();
        let mut rest = Some(range.clone());
        for section in meeting(layer, &range) {
            if section.is_damaged() || (section.is_stop() && !planted!("scan-passes-barrier")) {
                return None;
            }
            let inside = section.bounds().intersection(&range);
            if section.is_base {
                let Bounds { low, high } = rest.take()?;
                let before = Bounds { low, high: inside.low.clone() };
                open.extend(Some(before).filter(|before| before.high.is_some() && !before.is_empty()));
                rest = inside.high.clone().map(|low| Bounds { low: Some(low), high });
            }
            found.extend(section.run.as_ref().map(|run| ScanSection {
                run,
                bounds: inside,
                is_base: section.is_base,
            }));
        }
        open.extend(rest.filter(|rest| !rest.is_empty()));
        Some(open)
    }

    /// Returns its runs, each once.
    pub fn runs(&self) -> BTreeMap<RunId, &Arc<Run>> {
        let runs = self.layers.iter().flatten().filter_map(|section| section.run.as_ref());
        runs.map(|run| (run.reference().id, run)).collect()
    }

    /// Total bytes of its runs.
    pub fn stored_bytes(&self) -> u64 {
        self.runs().values().map(|run| run.reference().stored_bytes()).sum()
    }

    /// Approximate bytes of its sections.
    pub fn retained(&self) -> Retained {
        let mut retained = Retained::default();
        for section in self.layers.iter().flatten() {
            *(if section.is_base { &mut retained.bases } else { &mut retained.came }) +=
                section.stored_bytes();
        }
        retained
    }

    /// Number of sections, barriers included.
    pub fn sections(&self) -> u64 {
        self.layers.iter().map(|layer| u64_of(layer.len())).sum()
    }

    /// Whether some of its runs are known to be damaged.
    pub fn has_damage(&self) -> bool {
        self.layers.iter().flatten().any(BufferSection::is_damaged)
    }

    /// Drops damaged sections and sections not in use: those not in memory, unless queries pass them on the
    /// way to older ones in memory. That is through filters in memory, or to a base, which is useless to
    /// scans without them. Far fewer pages are read of them than of the sequence.
    pub fn trimmed(self: &Arc<Self>, next_object: &mut u64) -> Option<Arc<Self>> {
        let mut older: Vec<BufferLayer> = Vec::with_capacity(self.layers.len());
        let mut is_same = self.layers.len() <= LAYERS_MAX;
        for layer in self.layers.iter().take(LAYERS_MAX).rev() {
            let mut trimmed = layer.clone();
            for section in &mut trimmed {
                let is_used = || section.is_resident() || section.is_on_the_way_to(&older);
                if section.run.is_some() && (section.is_damaged() || !is_used()) {
                    *section = BufferSection::barrier(section.low.clone(), section.high.clone());
                    is_same = false;
                }
            }
            older.push(trimmed);
        }
        if is_same {
            return Some(Arc::clone(self));
        }
        debug_assert!(older.len() <= LAYERS_MAX, "more layers would make queries slow");
        older.reverse();
        Self::of_layers(older, next_object)
    }

    /// Drops the second half of its oldest layer.
    pub fn without_oldest(&self, next_object: &mut u64) -> Option<Arc<Self>> {
        let mut layers = self.layers.clone();
        if let Some(oldest) = layers.last_mut() {
            oldest.truncate(oldest.len() / 2);
        }
        Self::of_layers(layers, next_object)
    }

    /// Returns what remains after the sequence has dropped all keys before `border`.
    pub fn from(self: &Arc<Self>, border: &Fence, next_object: &mut u64) -> Option<Arc<Self>> {
        let is_behind = |section: &BufferSection| section.high.as_ref().is_none_or(|high| border < high);
        if self.layers.iter().flatten().all(is_behind) {
            return Some(Arc::clone(self));
        }
        let rest = |layer: &BufferLayer| layer.iter().filter(|section| is_behind(section)).cloned().collect();
        Self::of_layers(self.layers.iter().map(rest).collect(), next_object)
    }
}

#[cfg(test)]
mod tests;
