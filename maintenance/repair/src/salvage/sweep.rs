//! Merges all sources of a keyspace into one sequence of keys, each with its newest recovered entry and its
//! losses.
//!
//! A run is opened when the sweep reaches its first key, and closed at its end. Lost pages leave a gap
//! between the keys around them: an older entry in the gap may be stale, unless the run's filter excludes the
//! key.
//!
//! **Invariants**
//! - Keys come in order, each once.
//! - An entry counts unless a newer bottom run covers its key. Of those that count, the newest wins.
//! - A gap matters only where nothing newer covers it, or where operands are stacked on missing entries.
//! - Values of value segments are not entries; they are read through the entries that refer to them. Numbered
//!   values are not among the sources.
//! - Operands are stacked only on the entry below them in their tree: without a tree it is unknown which
//!   operands a run repeats.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};

use testudo_base::{
    Kind, Result, StoreId, ValueReference,
    num::low64,
    operands_format::{begin_stack, with_value_read},
    sync::Arc,
};
use testudo_env::File;
use testudo_run::{KeyBounds, LenientCursor, LenientFilter, LostPages};
use testudo_storage::DATA_FILE;

use crate::salvage::{
    key_ranges::{Age, CoveredRange, after, uncovered},
    plan::{KeyspacePlan, Source},
    report::LostRange,
    values::SalvagedValues,
};

/// The data file of the source.
#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    /// `None` if the file does not exist.
    pub(crate) data: Option<Arc<dyn File>>,
    /// The store that its pages belong to.
    pub(crate) store: StoreId,
}

/// The runs' answer for a key.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// The newest entry that counts.
    pub(crate) entry: Option<(Kind, Vec<u8>)>,
    /// Age up to which the answer, an entry or its absence, is valid.
    pub(crate) age: Option<Age>,
    /// Whether it comes from a run of unknown age.
    pub(crate) is_uncertain: bool,
    /// Age of the newest run that may have had a newer entry, but is not readable here.
    pub(crate) gap: Option<Age>,
    /// Loss to report unless the log has a newer version: the value of the newest entry is missing.
    pub(crate) lost: Option<LostRange>,
}

struct OpenSource {
    source: Source,
    cursor: LenientCursor,
}

struct Gap {
    bounds: KeyBounds,
    age: Age,
    /// Excludes keys that the run never held, if it is still readable.
    filter: Option<Arc<LenientFilter>>,
}

impl Gap {
    fn may_have_held(&self, key: &[u8]) -> bool {
        self.bounds.contains(key) && self.filter.as_ref().is_none_or(|filter| filter.may_contain(key))
    }
}

/// The sequence of keys.
pub(crate) struct Sweep<'p> {
    data: Option<Arc<dyn File>>,
    store: StoreId,
    values: &'p SalvagedValues,
    authorities: &'p [CoveredRange],
    next_covered_range: usize,
    active_authorities: Vec<usize>,
    /// Sources not yet opened, the next one last.
    waiting: Vec<Source>,
    open: BTreeMap<usize, OpenSource>,
    opened: usize,
    heads: BinaryHeap<Reverse<(Vec<u8>, usize)>>,
    gaps: Vec<Gap>,
    /// Losses found so far.
    pub(crate) lost: Vec<LostRange>,
    /// Bytes of pages read since this was last taken.
    pub(crate) bytes_read: u64,
}

impl<'p> Sweep<'p> {
    /// Sweeps over the sources in `plan`, which it takes.
    pub(crate) fn new(plan: &'p mut KeyspacePlan, source: &SourceFile, values: &'p SalvagedValues) -> Self {
        let SourceFile { data, store } = source.clone();
        debug_assert!(
            plan.sources.is_sorted_by(|a, b| a.reference.keys.first() >= b.reference.keys.first()),
            "the next source to open is the last one"
        );
        debug_assert!(
            plan.authorities.is_sorted_by(|a, b| a.bounds.low <= b.bounds.low),
            "covered ranges are sorted by their lower bounds"
        );
        Self {
            data,
            store,
            values,
            waiting: std::mem::take(&mut plan.sources),
            authorities: &plan.authorities,
            next_covered_range: 0,
            active_authorities: Vec::new(),
            open: BTreeMap::new(),
            opened: 0,
            heads: BinaryHeap::new(),
            gaps: Vec::new(),
            lost: Vec::new(),
            bytes_read: 0,
        }
    }

    /// The next key of any run or `limit`, a key from elsewhere, whichever is first.
    pub(crate) fn next_key(&mut self, limit: Option<&[u8]>) -> Option<Vec<u8>> {
        loop {
            let head = self.heads.peek().map(|Reverse((key, _))| key.as_slice());
            let next = head.into_iter().chain(limit).min().map(<[u8]>::to_vec);
            let due = self.waiting.last().is_some_and(|waiting| {
                next.as_deref().is_none_or(|next| waiting.reference.keys.first() <= next)
            });
            match self.waiting.pop_if(|_| due) {
                Some(source) => self.open(source),
                None => return next,
            }
        }
    }

    fn open(&mut self, source: Source) {
        let Some(data) = &self.data else {
            let pages = source.reference.data_pages;
            let why = "the data file is missing".to_owned();
            self.record_gap(&source, None, None, &LostPages { pages, offset: 0, why });
            return;
        };
        let cursor = LenientCursor::new(Arc::clone(data), self.store, &source.reference);
        let index = self.opened;
        self.opened += 1;
        let before = self.open.insert(index, OpenSource { source, cursor });
        debug_assert!(before.is_none(), "each source is opened once");
        self.advance(index);
    }

    fn advance(&mut self, index: usize) {
        let Some(mut open) = self.open.remove(&index) else { return };
        let lost = open.cursor.advance();
        self.bytes_read += open.cursor.take_bytes_read();
        let next = open.cursor.entry().map(|entry| entry.key.to_vec());
        if let Some(lost) = lost {
            let last = open.cursor.last_key().map(<[u8]>::to_vec);
            self.record_gap(&open.source, last.as_deref(), next.as_deref(), &lost);
        }
        if let Some(key) = next {
            self.heads.push(Reverse((key, index)));
            self.open.insert(index, open);
        }
    }

    /// Records that pages between the keys `last` and `next` of a source are lost.
    fn record_gap(&mut self, source: &Source, last: Option<&[u8]>, next: Option<&[u8]>, lost: &LostPages) {
        let reference = &source.reference;
        let whole = reference.keys.bounds();
        let low = last.map(after).or(whole.low);
        let range = KeyBounds { low, high: next.map(<[u8]>::to_vec).or(whole.high) };
        let counted = match &source.counts_in {
            None => vec![range],
            Some(bounds) => bounds.iter().map(|bounds| bounds.intersection(&range)).collect(),
        };
        let age = source.age();
        let is_newer = |covered_range: &CoveredRange| covered_range.age > age;
        let parts = counted.iter().filter(|part| !part.is_empty());
        let parts: Vec<_> = parts.flat_map(|part| uncovered(part, self.authorities, is_newer)).collect();
        debug_assert!(parts.iter().all(|part| !part.is_empty()), "a gap has room for a key");
        if parts.is_empty() {
            return;
        }
        let data = self.data.as_ref();
        let filter = data.and_then(|data| LenientFilter::open(Arc::clone(data), self.store, reference));
        let filter = filter.map(Arc::new);
        for bounds in parts {
            let pages = u64::from(lost.pages);
            let share = |total: u64| {
                let whole = u128::from(reference.data_pages.max(1));
                low64(u128::from(total) * u128::from(pages) / whole).max(1)
            };
            self.lost.push(LostRange {
                low: bounds.low.clone().unwrap_or_default(),
                high: bounds.high.clone(),
                records_about: share(reference.entries),
                bytes_about: share(reference.user_bytes),
                file: DATA_FILE.to_owned(),
                offset: lost.offset,
                why: lost.why.clone(),
            });
            self.gaps.push(Gap { bounds, age, filter: filter.clone() });
        }
    }

    /// Replaces the operands of the first of `sources` by a complete entry. `sources` are newest first, and
    /// none is older than `covered_range`. The entry is the operands stacked on their base or, if runs may
    /// repeat operands, the newest whole entry, or else the operands alone.
    fn stack_up(&self, key: &[u8], sources: &[&OpenSource], covered_range: Option<Age>, answer: &mut Answer) {
        let is_operands =
            |open: &&&OpenSource| open.cursor.entry().is_some_and(|entry| entry.kind == Kind::Operands);
        let depth = sources.iter().take_while(is_operands).count();
        debug_assert!(depth > 0, "there are operands to stack");
        debug_assert!(sources.is_sorted_by(|a, b| a.source.age() >= b.source.age()), "newest first");
        let base = sources.get(depth).and_then(|open| Some((open.source.age(), open.cursor.entry()?)));
        let (base_age, base) = base.unzip();
        let base_age = base_age.max(covered_range);
        let base = base.map_or((Kind::Tombstone, &[][..]), |entry| (entry.kind, entry.value));
        // Runs outside any tree may be repeated by later ones.
        if sources.iter().any(|open| open.source.counts_in.is_none()) {
            answer.gap = answer.gap.max(answer.age);
            let newest = sources.first().and_then(|open| open.cursor.entry());
            answer.entry = match newest {
                Some(newest) if base.0 == Kind::Tombstone => Some(on_nothing(newest.value)),
                _ => Some((base.0, base.1.to_vec())),
            };
            return;
        }
        let older = self.gaps.iter().filter(|gap| base_age.is_none_or(|base| gap.age > base));
        let gap = older.filter(|gap| gap.may_have_held(key)).map(|gap| gap.age).max();
        answer.gap = answer.gap.max(gap);
        let mut stack = Vec::new();
        let kind = begin_stack(base.0, base.1, &mut stack);
        for entry in sources[..depth].iter().rev().filter_map(|open| open.cursor.entry()) {
            stack.extend_from_slice(entry.value);
        }
        answer.entry = Some((kind, stack));
    }

    /// The runs' answer for `key`, which [`Self::next_key`] returned; advances past it.
    ///
    /// Errors: `Corruption`, `Io` from the target.
    pub(crate) fn take(&mut self, key: &[u8]) -> Result<Answer> {
        debug_assert!(
            self.heads.peek().is_none_or(|Reverse((head, _))| head.as_slice() >= key),
            "no run has an earlier key"
        );
        let mut holders = Vec::new();
        while let Some(Reverse((_, index))) = self.heads.pop_if_equal(key) {
            holders.push(index);
        }
        let covered_range = self.authorities_at(key);
        let mut answer = self.judge(key, &holders, &covered_range);
        self.read_value(key, &holders, &mut answer)?;
        for index in holders {
            self.advance(index);
        }
        self.gaps.retain(|gap| gap.bounds.high.as_deref().is_none_or(|high| key < high));
        Ok(answer)
    }

    /// Replaces a reference by its value, if one of the sources has it.
    fn read_value(&self, key: &[u8], holders: &[usize], answer: &mut Answer) -> Result<()> {
        let Some((kind @ (Kind::Reference | Kind::UnmergedReference), bytes)) = &answer.entry else {
            return Ok(());
        };
        let wanted = ValueReference::of(*kind, bytes).ok().flatten();
        if let Some(reference) = wanted.filter(|reference| !reference.is_in_segment()) {
            // It is stored in another keyspace.
            answer.lost = self.values.lost_long_value(key, &reference)?;
            if answer.lost.is_some() {
                (answer.entry, answer.gap) = (None, answer.gap.max(answer.age));
            }
            return Ok(());
        }
        let entries = holders.iter().filter_map(|index| self.open.get(index)?.cursor.entry());
        let mut values = entries.filter(|entry| entry.kind == Kind::Referred);
        let value = values.find_map(|entry| {
            let (reference, value) = ValueReference::split_referred(entry.value).ok()?;
            (Some(reference) == wanted).then_some(value)
        });
        let value = match (value, wanted) {
            (Some(value), _) => Some(value.to_vec()),
            (None, Some(reference)) => self.values.logged.read(&reference)?,
            (None, None) => None,
        };
        let read = value.and_then(|value| match kind {
            Kind::Reference => Some((Kind::Value, value)),
            _ => Some((Kind::Unmerged, with_value_read(bytes, &value).ok()?)),
        });
        if read.is_none() {
            // The lost page was reported already, unless a newer run covers its keys.
            if let Some(reference) = wanted
                && !self.gaps.iter().any(|gap| gap.may_have_held(key))
            {
                let of = "the value is in a value segment";
                answer.lost = Some(self.values.logged.lost(key, &reference, of));
            }
            answer.gap = answer.gap.max(answer.age);
        }
        answer.entry = read;
        Ok(())
    }

    /// Ages of the bottom runs that cover `key`.
    fn authorities_at(&mut self, key: &[u8]) -> Vec<Age> {
        while let Some(next) = self.authorities.get(self.next_covered_range)
            && next.bounds.low.as_deref().is_none_or(|low| low <= key)
        {
            self.active_authorities.push(self.next_covered_range);
            self.next_covered_range += 1;
        }
        let authorities = self.authorities;
        let covers = |index: &usize| authorities[*index].bounds.contains(key);
        self.active_authorities.retain(covers);
        self.active_authorities.iter().map(|&index| authorities[index].age).collect()
    }

    fn judge(&self, key: &[u8], holders: &[usize], authorities: &[Age]) -> Answer {
        let counting = || {
            let open = holders.iter().filter_map(|index| self.open.get(index));
            let is_value = |open: &&OpenSource| open.cursor.entry().is_some_and(|e| e.kind == Kind::Referred);
            open.filter(|open| open.source.counts_for(key)).filter(move |open| !is_value(open))
        };
        let known = || counting().filter(|open| !open.source.is_orphan);
        let newest = known().max_by_key(|open| open.source.age());
        let covered_range = authorities.iter().copied().max();
        let age = newest.map(|open| open.source.age()).max(covered_range);
        let entry = newest.filter(|open| Some(open.source.age()) == age).and_then(|open| open.cursor.entry());
        let newer = self.gaps.iter().filter(|gap| Some(gap.age) > age);
        let gap = newer.filter(|gap| gap.may_have_held(key)).map(|gap| gap.age).max();
        let mut answer = Answer {
            entry: entry.map(|entry| (entry.kind, entry.value.to_vec())),
            age,
            is_uncertain: false,
            gap,
            lost: None,
        };
        if answer.entry.as_ref().is_some_and(|(kind, _)| *kind == Kind::Operands) {
            let mut sources: Vec<_> = known().collect();
            // Operands do not apply to entries that a covered range deletes.
            sources.retain(|open| Some(open.source.age()) >= covered_range);
            sources.sort_by_key(|open| Reverse(open.source.age()));
            self.stack_up(key, &sources, covered_range, &mut answer);
        }
        // A run without a footer has only its id as an age. It counts if no later run has an entry or covers
        // the key.
        let latest = known().map(|open| open.source.age()).chain(authorities.iter().copied());
        let latest = latest.map(|(_, run)| run).max();
        let orphan = counting().filter(|open| open.source.is_orphan).max_by_key(|open| open.source.age());
        if let Some(orphan) = orphan
            && latest.is_none_or(|latest| latest < orphan.source.age().1)
        {
            answer.is_uncertain = true;
            match orphan.cursor.entry() {
                Some(entry) if entry.kind == Kind::Operands => {
                    answer.gap = answer.gap.max(Some(orphan.source.age()));
                    let whole = answer.entry.take().filter(|(kind, _)| *kind != Kind::Tombstone);
                    answer.entry = Some(whole.unwrap_or_else(|| on_nothing(entry.value)));
                }
                entry => answer.entry = entry.map(|entry| (entry.kind, entry.value.to_vec())),
            }
        }
        answer
    }
}

/// Operands on top of no value.
fn on_nothing(operands: &[u8]) -> (Kind, Vec<u8>) {
    let mut stack = Vec::with_capacity(operands.len() + 1);
    let kind = begin_stack(Kind::Tombstone, &[], &mut stack);
    stack.extend_from_slice(operands);
    (kind, stack)
}

/// Pops the top of a heap if it equals a key.
trait PopIfEqual {
    fn pop_if_equal(&mut self, key: &[u8]) -> Option<Reverse<(Vec<u8>, usize)>>;
}

impl PopIfEqual for BinaryHeap<Reverse<(Vec<u8>, usize)>> {
    fn pop_if_equal(&mut self, key: &[u8]) -> Option<Reverse<(Vec<u8>, usize)>> {
        let is_equal = self.peek().is_some_and(|Reverse((head, _))| head == key);
        if is_equal { self.pop() } else { None }
    }
}
