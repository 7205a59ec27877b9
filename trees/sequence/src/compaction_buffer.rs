//! The compaction buffer of a sequence: runs that were merged into it, or that a merge has replaced, and that
//! queries still find in memory (LSbM §4: B of C).
//!
//! A merge writes what queries use to other pages, which have to be read anew. So what was merged stays where
//! it was, by a second reference to its extents: queries are answered out of the pages that they know, until
//! those are not used any more. No data is written for it, and none is read.
//!
//! It is a list of layers, newest first, each with pieces of runs that are disjoint. For a key, the pieces
//! that cover it are asked from the newest on. The first one that has the key answers, but with a value or a
//! tombstone only: operands were folded by the merge, and references may lead to values that were moved
//! since. A piece that was given up leaves a *barrier* if older ones lie below: the search **stops** there,
//! for the newest entry may have been in it.
//!
//! Range queries need to know that nothing is missing. A *base* is a piece that, with what lies above it,
//! says all that the sequence says of its keys: what the sequence had when that came, be it nothing. Where
//! bases are reached for all keys of a range before a barrier is, their pieces can be read instead of the
//! sequence ([`CompactionBuffer::all_within`]).
//!
//! **Why that is right.** The *law* is: of the pieces that cover a key, down to the first barrier, the
//! first one that has an entry of the key has the sequence's own, if that entry is a value or a tombstone.
//! A move keeps it. What comes down lies on top of the layers, newest first, all of it, as a piece or as a
//! barrier; where it has no entry, the sequence still says what it said. What comes out of a write buffer
//! is in no run: its place is taken by a piece that knows which keys came, by their hashes. The search
//! stops there for those, and goes on for others. The runs of the sequence that the move replaces say just
//! that, and lie between what comes down and the older layers. Giving up the oldest layers, or putting a
//! barrier in the place of a piece, only makes the list say less. So it is with bases: what the move
//! replaces is all that there was, and all that came since lies above it, or a barrier does. What lies
//! below a base is never needed.
//!
//! **Invariants**
//! - The law, and that of bases. Whoever changes a sequence in another way than those above gives its
//!   buffer up.
//! - A sequence is asked first whether it covers the key, and whether its filter lets it pass.
//! - No page of a filter or of an index is read for a buffer: where one is not in memory, the sequence itself
//!   answers.
//! - A run that was found damaged is asked no more, and the next edit gives it up.
//! - A buffer does not change; a changed one has a new object id.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use testudo_base::{
    Error, ErrorKind, Kind, ObjectId, PAGE_BYTES, Result, RunId, checksum::hash_key, num::u64_of, planted,
};
use testudo_run::{Access, Lookup, Run};
use testudo_storage::{DataFile, PageAddress};

use crate::{Bounds, Fence, RunSlice, layer_cursor};

/// A piece is in use while so many of a hundred of its data pages are in the page cache (LSbM §6.1).
const RESIDENT_PERCENT: u64 = 80;
/// More layers than these would make queries slow.
const LAYERS_MAX: usize = 24;

/// What a run says of some keys, or the place where one did.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Its least key.
    pub low: Fence,
    /// The least key beyond.
    pub high: Option<Fence>,
    /// `None` is a barrier or, if it is a base, the place where the sequence had nothing.
    pub run: Option<Arc<Run>>,
    /// With what lies above it, it says all that the sequence says of its keys.
    pub is_base: bool,
    /// If it is in the place of what came out of memory: short hashes of those keys, ascending.
    pub from_memory: Option<Arc<[u32]>>,
}

/// As much of a key's hash as is kept of keys that came out of memory.
pub fn short_hash(hash: u64) -> u32 {
    let [a, b, c, d, ..] = hash.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// Pieces that are disjoint and in key order.
pub type KeptLayer = Vec<Kept>;

/// A compaction buffer.
#[derive(Debug)]
pub struct CompactionBuffer {
    /// The object that it is.
    pub id: ObjectId,
    /// Newest first; none is empty.
    pub layers: Vec<KeptLayer>,
}

impl Kept {
    /// What came in its place was given up, or not kept.
    pub fn barrier(low: Fence, high: Option<Fence>) -> Self {
        Self { low, high, run: None, is_base: false, from_memory: None }
    }

    /// In its place keys with these hashes came out of memory.
    pub fn from_memory(low: Fence, high: Option<Fence>, hashes: Arc<[u32]>) -> Self {
        Self { from_memory: Some(hashes), ..Self::barrier(low, high) }
    }

    /// Of some or all keys nobody knows what it says.
    fn is_stop(&self) -> bool {
        self.run.is_none() && !self.is_base
    }

    fn is_barrier(&self) -> bool {
        self.is_stop() && self.from_memory.is_none()
    }

    /// Whether a search for a key with this hash ends at a place without a run.
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

    /// Whether all keys of `other` are inside.
    fn surrounds(&self, other: &Self) -> bool {
        let ends_behind = match (&self.high, &other.high) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(high), Some(end)) => end <= high,
        };
        self.low <= other.low && ends_behind
    }

    /// Whether `next` goes on where it ends, with the same.
    fn goes_on_in(&self, next: &Self) -> bool {
        let id = |kept: &Self| kept.run.as_ref().map(|run| run.reference().id);
        let is_same = id(self) == id(next) && self.is_base == next.is_base;
        is_same
            && self.high.as_ref() == Some(&next.low)
            && self.from_memory.is_none()
            && next.from_memory.is_none()
    }

    /// About how many bytes of its run are its own.
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
        // What cannot be found out without reading is not in memory.
        let (resident, pages) = run.resident_pages(Some(&low), high.as_deref()).unwrap_or((0, 1));
        resident * 100 >= pages * RESIDENT_PERCENT
    }
}

impl Kept {
    /// Whether queries get by its filter to a run of `older`, or scans need it beside a base there.
    fn is_on_the_way_to(&self, older: &[KeptLayer]) -> bool {
        let bounds = self.bounds();
        let below =
            |is_wanted: fn(&Kept) -> bool| older.iter().any(|layer| meeting(layer, &bounds).any(is_wanted));
        let has_filter = |run: &Arc<Run>| run.has_filter_in_memory().unwrap_or(false);
        below(|piece| piece.run.is_some() && piece.is_base)
            || (below(|piece| piece.run.is_some()) && self.run.as_ref().is_some_and(has_filter))
    }
}

/// About how many bytes a compaction buffer has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retained {
    /// Of what came down.
    pub came: u64,
    /// Of bases: what was there when it came.
    pub bases: u64,
}

/// What is read of a run in the place of the sequence.
#[derive(Debug)]
pub struct Share<'a> {
    /// The run.
    pub run: &'a Arc<Run>,
    /// Keys that it is asked for.
    pub bounds: Bounds,
    /// With what is newer it says all of them.
    pub is_base: bool,
}

/// What a run says of `key`, if that is known without a page of its filter or index. Where it is damaged the
/// sequence itself answers, and nobody asks the run again.
fn answer_of(run: &Run, is_base: bool, key: &[u8], hash: u64, access: Access<'_>) -> Option<Lookup> {
    if run.is_known_damaged() {
        return None;
    }
    run.get_present(key, hash, access, is_base).unwrap_or_else(|error| {
        note_damage(run, &error);
        None
    })
}

/// Notes that reading a page of a run has failed like this.
pub fn note_damage(run: &Run, error: &Error) {
    if matches!(error.kind(), ErrorKind::Corruption | ErrorKind::Io) {
        run.note_damage();
    }
}

/// Reads pages into the cache. One of a run of `retained` may fail: that run is asked no more, and whoever
/// needs the page all the same reads it by itself.
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

/// The piece of a layer that covers `key`.
fn find_in<'a>(layer: &'a [Kept], key: &[u8]) -> Option<&'a Kept> {
    let behind = layer.partition_point(|kept| kept.low.is_at_most(key));
    layer.get(behind.checked_sub(1)?).filter(|kept| kept.covers(key))
}

/// The pieces of a layer that meet `bounds`.
fn meeting<'a, 'b>(layer: &'a [Kept], bounds: &'b Bounds) -> impl Iterator<Item = &'a Kept> + use<'a, 'b> {
    let from = layer.partition_point(|kept| match (&kept.high, &bounds.low) {
        (Some(high), Some(low)) => high <= low,
        _ => false,
    });
    layer[from..].iter().take_while(|kept| kept.meets(bounds))
}

/// Puts neighbours together that are one.
fn joined(layer: KeptLayer) -> KeptLayer {
    let mut pieces: KeptLayer = Vec::with_capacity(layer.len());
    for kept in layer {
        match pieces.last_mut() {
            Some(last) if last.goes_on_in(&kept) => last.high = kept.high,
            _ => pieces.push(kept),
        }
    }
    pieces
}

/// The layers of `old` with those of `new` above them, both newest first. All pieces of `new` lie inside
/// `range`; each lands in the lowest layer that it can have.
pub fn stacked(old: &[KeptLayer], new: Vec<KeptLayer>, range: &Bounds) -> Vec<KeptLayer> {
    let mut layers = old.to_vec();
    let is_free = |layer: &&KeptLayer| meeting(layer, range).next().is_none();
    let mut free = layers.iter().take_while(is_free).count();
    if free < new.len() {
        layers.splice(0..0, vec![KeptLayer::new(); new.len() - free]);
        free = new.len();
    }
    let first = free - new.len();
    for (layer, pieces) in layers[first..].iter_mut().zip(new) {
        let Some(low) = pieces.first().map(|kept| &kept.low) else { continue };
        let at = layer.partition_point(|kept| kept.low < *low);
        layer.splice(at..at, pieces);
        debug_assert!(layer.is_sorted_by(|a, b| a.high.as_ref().is_some_and(|high| *high <= b.low)));
    }
    layers
}

/// Without what can never answer: pieces that lie below one barrier or one base altogether, places where
/// there was nothing, if nothing came and nothing lies below, and barriers with nothing below them.
///
/// What has no run goes only where no run lies below: such a run may reach beyond a piece that hid what
/// removed its entries, and the search must end before it.
fn tidied(layers: Vec<KeptLayer>) -> Vec<KeptLayer> {
    let is_hidden = |above: &[KeptLayer], kept: &Kept| {
        let hides = |piece: &&Kept| piece.is_barrier() || piece.is_base;
        above.iter().any(|layer| {
            let end = find_in(layer, &kept.low.bytes()).filter(hides);
            end.is_some_and(|end| end.surrounds(kept))
        })
    };
    let mut kept: Vec<KeptLayer> = Vec::with_capacity(layers.len());
    for layer in layers {
        let mut layer = joined(layer);
        layer.retain(|piece| !is_hidden(&kept, piece));
        kept.push(layer);
    }
    for at in (0..kept.len()).rev() {
        let (rest, below) = kept.split_at_mut(at + 1);
        let Some((layer, above)) = rest.split_last_mut() else { continue };
        layer.retain(|piece| {
            let bounds = piece.bounds();
            let any = |layers: &[KeptLayer], is_such: fn(&Kept) -> bool| {
                layers.iter().any(|layer| meeting(layer, &bounds).any(is_such))
            };
            let has_run = |other: &Kept| other.run.is_some();
            match (&piece.run, piece.is_base) {
                (Some(_), _) => true,
                (None, true) => any(above, has_run) || any(below, has_run),
                // A base below says all only with what is missing here.
                (None, false) => any(below, |other| !other.is_stop()),
            }
        });
    }
    kept.retain(|layer| !layer.is_empty());
    kept
}

impl CompactionBuffer {
    /// The buffer of these layers; `None` if nothing is in them.
    pub fn of_layers(layers: Vec<KeptLayer>, next_object: &mut u64) -> Option<Arc<Self>> {
        let layers = tidied(layers);
        if layers.iter().flatten().all(|kept| kept.run.is_none()) {
            return None;
        }
        let id = ObjectId(*next_object);
        *next_object += 1;
        Some(Arc::new(Self { id, layers }))
    }

    /// What the sequence says of `key`, if that is known here. REQUIRES: the sequence covers the key.
    pub fn get(&self, key: &[u8], hash: u64, access: Access<'_>) -> Option<Lookup> {
        let ask = |run: &Run, is_base| Ok::<_, Infallible>(answer_of(run, is_base, key, hash, access));
        match self.search(key, hash, ask) {
            Ok(found) => found,
            Err(never) => match never {},
        }
    }

    /// The same by what `ask` knows of a run, which is a base or not; `None` ends the search.
    fn search<E>(
        &self,
        key: &[u8],
        hash: u64,
        ask: impl Fn(&Run, bool) -> std::result::Result<Option<Lookup>, E>,
    ) -> std::result::Result<Option<Lookup>, E> {
        for kept in self.layers.iter().filter_map(|layer| find_in(layer, key)) {
            let Some(run) = &kept.run else {
                if planted!("barrier-skipped") || !kept.stops(hash) {
                    continue;
                }
                return Ok(None);
            };
            let Some(found) = ask(run, kept.is_base)? else { return Ok(None) };
            match found {
                // With what lies above it a base says all. Older pieces may be there that reach beyond it,
                // while what removed their entries is not.
                Lookup::Absent if kept.is_base && !planted!("search-passes-base") => return Ok(None),
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

    /// Reads all pieces; fails unless each value and tombstone that a search may find in them is what `own`
    /// finds in the sequence. Where that finds nothing a tombstone is right; where it is `None` nobody asks
    /// the buffer.
    ///
    /// Errors: `Corruption` if the law does not hold, and those of reading.
    pub fn check_law(&self, own: impl Fn(&[u8], u64) -> Result<Option<Lookup>>) -> Result<()> {
        for kept in self.layers.iter().flatten() {
            let Some(slice) =
                kept.run.as_ref().and_then(|run| RunSlice::whole_run(run).clipped(&kept.bounds()))
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
                        // A value that has been put elsewhere since is the same.
                        let is_elsewhere =
                            !matches!(own_kind, Kind::Value | Kind::Tombstone | Kind::Operands);
                        is_elsewhere || (kind, value) == (own_kind, own_value)
                    }
                    (Some(Lookup::Found(kind, ..)), Some(_)) => kind == Kind::Tombstone,
                    _ => true,
                };
                if !is_right {
                    let message = "a compaction buffer does not say what its sequence says";
                    return Err(Error::new(ErrorKind::Corruption, message));
                }
                cursor.next()?;
            }
        }
        Ok(())
    }

    /// Runs that together say all that the sequence says inside `bounds`, newest first, each with the keys of
    /// which it is to be asked; `None` if it is not known that there is nothing more. REQUIRES: the sequence
    /// covers the bounds.
    pub fn all_within(&self, bounds: &Bounds) -> Option<Vec<Share<'_>>> {
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

    /// What a layer leaves open of `range`: where it has no base. `None` if a barrier is there.
    fn below_bases<'a>(layer: &'a [Kept], range: Bounds, found: &mut Vec<Share<'a>>) -> Option<Vec<Bounds>> {
        let mut open = Vec::new();
        let mut rest = Some(range.clone());
        for kept in meeting(layer, &range) {
            if kept.is_damaged() || (kept.is_stop() && !planted!("scan-passes-barrier")) {
                return None;
            }
            let inside = kept.bounds().intersection(&range);
            if kept.is_base {
                let Bounds { low, high } = rest.take()?;
                let before = Bounds { low, high: inside.low.clone() };
                open.extend(Some(before).filter(|before| before.high.is_some() && !before.is_empty()));
                rest = inside.high.clone().map(|low| Bounds { low: Some(low), high });
            }
            found.extend(kept.run.as_ref().map(|run| Share { run, bounds: inside, is_base: kept.is_base }));
        }
        open.extend(rest.filter(|rest| !rest.is_empty()));
        Some(open)
    }

    /// The runs in it, each once.
    pub fn runs(&self) -> BTreeMap<RunId, &Arc<Run>> {
        let runs = self.layers.iter().flatten().filter_map(|kept| kept.run.as_ref());
        runs.map(|run| (run.reference().id, run)).collect()
    }

    /// Bytes of its runs.
    pub fn stored_bytes(&self) -> u64 {
        self.runs().values().map(|run| run.reference().stored_bytes()).sum()
    }

    /// Bytes of its pieces.
    pub fn retained(&self) -> Retained {
        let mut retained = Retained::default();
        for kept in self.layers.iter().flatten() {
            *(if kept.is_base { &mut retained.bases } else { &mut retained.came }) += kept.stored_bytes();
        }
        retained
    }

    /// Number of pieces, barriers included.
    pub fn pieces(&self) -> u64 {
        self.layers.iter().map(|layer| u64_of(layer.len())).sum()
    }

    /// Whether some of its runs were found damaged.
    pub fn has_damage(&self) -> bool {
        self.layers.iter().flatten().any(Kept::is_damaged)
    }

    /// Without what is damaged, and without what is not in use: pieces that are not in memory, unless queries
    /// pass them on their way to older ones that are: by filters that are in memory, or to a base, without
    /// which it would be of no use to scans. Much fewer pages are to be read of them than of the sequence.
    pub fn trimmed(self: &Arc<Self>, next_object: &mut u64) -> Option<Arc<Self>> {
        let mut older: Vec<KeptLayer> = Vec::with_capacity(self.layers.len());
        let mut is_same = self.layers.len() <= LAYERS_MAX;
        for layer in self.layers.iter().take(LAYERS_MAX).rev() {
            let mut trimmed = layer.clone();
            for kept in &mut trimmed {
                let is_used = || kept.is_resident() || kept.is_on_the_way_to(&older);
                if kept.run.is_some() && (kept.is_damaged() || !is_used()) {
                    *kept = Kept::barrier(kept.low.clone(), kept.high.clone());
                    is_same = false;
                }
            }
            older.push(trimmed);
        }
        if is_same {
            return Some(Arc::clone(self));
        }
        older.reverse();
        Self::of_layers(older, next_object)
    }

    /// Without the last half of its oldest layer.
    pub fn without_oldest(&self, next_object: &mut u64) -> Option<Arc<Self>> {
        let mut layers = self.layers.clone();
        if let Some(oldest) = layers.last_mut() {
            oldest.truncate(oldest.len() / 2);
        }
        Self::of_layers(layers, next_object)
    }

    /// What is left of it when its sequence has nothing before `border` any more.
    pub fn from(self: &Arc<Self>, border: &Fence, next_object: &mut u64) -> Option<Arc<Self>> {
        let is_behind = |kept: &Kept| kept.high.as_ref().is_none_or(|high| border < high);
        if self.layers.iter().flatten().all(is_behind) {
            return Some(Arc::clone(self));
        }
        let rest = |layer: &KeptLayer| layer.iter().filter(|kept| is_behind(kept)).cloned().collect();
        Self::of_layers(self.layers.iter().map(rest).collect(), next_object)
    }
}

#[cfg(test)]
mod tests;
