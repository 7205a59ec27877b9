//! A cursor over a sequence of runs, or a leaf, inside a range of keys.
//!
//! **Invariants**
//! - A run's entries before its fence do not count.
//! - The cursor is on an entry inside the bounds, or unpositioned; at most one run is open.

use std::sync::Arc;

use testudo_base::{Cursor, Entry, Result};
use testudo_run::{BatchedSeek, Direction, Missing, ReadAhead, Run, RunCursor, ScanForecast, Target};

use crate::{Bounds, Fence, FencedRun};

/// Pages of the first read of a leaf without a forecast: a scan that gets there continues in it.
const LEAF_PAGES_AT_ONCE: u32 = 4;

/// A cursor over a sequence of runs, or over a part of it.
#[derive(Debug)]
pub struct SequenceCursor {
    /// In key order, disjoint; never empty.
    runs: Vec<FencedRun>,
    low: Option<Arc<[u8]>>,
    high: Option<Arc<[u8]>>,
    is_leaf: bool,
    /// Other sources cover the rest of the part: seeks may be for keys outside.
    is_section: bool,
    /// Expected reads of a scan from this source.
    forecast: Option<ScanForecast>,
    at: usize,
    cursor: Option<RunCursor>,
    /// Direction of the current positioning.
    direction: Direction,
    stands: bool,
    /// Whether a page was read during the current positioning.
    has_read: bool,
}

impl SequenceCursor {
    /// Creates a cursor over the entries of `runs` with keys in `[low, high)`.
    pub fn new(runs: Vec<FencedRun>, low: Option<Arc<[u8]>>, high: Option<Arc<[u8]>>) -> Self {
        debug_assert!(!runs.is_empty(), "a source has runs");
        debug_assert!(runs.is_sorted_by(|a, b| a.low < b.low), "runs are in key order");
        let keys = |fenced: &FencedRun| fenced.run.reference().keys.clone();
        let high = high.filter(|high| runs.last().is_none_or(|last| !keys(last).end_before(high)));
        let low = low.filter(|low| runs.first().is_none_or(|first| !keys(first).begin_at_or_after(low)));
        Self {
            runs,
            low,
            high,
            is_leaf: false,
            is_section: false,
            forecast: None,
            at: 0,
            cursor: None,
            direction: Direction::Forward,
            stands: false,
            has_read: false,
        }
    }

    /// Creates a cursor over a leaf.
    pub fn leaf(leaf: &FencedRun) -> Self {
        Self { is_leaf: true, ..Self::new(vec![leaf.clone()], None, None) }
    }

    /// Creates a cursor over the entries of a run inside `bounds`; other sources cover the rest of the part.
    pub fn section(run: &Arc<Run>, bounds: &Bounds) -> Self {
        let low = bounds.low.clone().unwrap_or_default();
        let (runs, keys) = (vec![FencedRun { low, run: Arc::clone(run) }], bounds.to_keys());
        Self { is_section: true, ..Self::new(runs, keys.low.map(Arc::from), keys.high.map(Arc::from)) }
    }

    /// Takes over the open run of the previous cursor in scan order, if this cursor has that run.
    pub fn take_over(&mut self, earlier: &mut Self) -> bool {
        let Some(cursor) = &earlier.cursor else { return false };
        let Some(at) = self.runs.iter().position(|fenced| Arc::ptr_eq(&fenced.run, cursor.run())) else {
            return false;
        };
        self.at = at;
        self.cursor = earlier.cursor.take();
        true
    }

    /// Whether it is a leaf.
    pub fn is_leaf(&self) -> bool {
        self.is_leaf
    }

    /// Returns the run with the first keys; the others of a tier are similar.
    pub fn first_run(&self) -> &Run {
        &self.runs[0].run
    }

    /// Limits its reads to the forecast of a scan.
    pub fn set_forecast(&mut self, forecast: ScanForecast) {
        if let Some(cursor) = &mut self.cursor {
            cursor.set_forecast(forecast.clone());
        }
        self.forecast = Some(forecast);
    }

    /// Number of pages of this leaf and earlier ones that a scan has passed.
    pub fn passed_leaf_pages(&self) -> u32 {
        self.cursor.as_ref().filter(|_| self.is_leaf).map_or(0, RunCursor::passed_pages)
    }

    /// Continues a scan in a leaf, after `passed_pages` of others.
    pub fn go_on_after(&mut self, passed_pages: u32) {
        if self.is_leaf {
            self.open(0).go_on_after(passed_pages);
        }
    }

    /// Creates a cursor for a leaf that a scan will reach after `passed_pages`.
    pub fn prepared_leaf(leaf: &FencedRun, passed_pages: u32) -> Self {
        let mut prepared = Self::leaf(leaf);
        prepared.open(0).prepare_after(passed_pages);
        prepared
    }

    /// Resets the read-ahead: the next scan is not known to be long.
    pub fn begin_anew(&mut self) {
        if let Some(cursor) = &mut self.cursor {
            cursor.begin_anew();
        }
    }

    /// Starts to position it; [`BatchedSeek::progress`] completes that.
    pub fn begin(&mut self, target: Target<'_>) {
        (self.stands, self.has_read) = (false, false);
        self.direction = match target {
            Target::First | Target::From(_) => Direction::Forward,
            Target::Last | Target::Before(_) => Direction::Backward,
        };
        let (low, high) = (self.low.clone(), self.high.clone());
        let target = match (target, low.as_deref(), high.as_deref()) {
            (Target::First, Some(low), _) => Target::From(low),
            (Target::From(key), Some(low), _) => Target::From(key.max(low)),
            (Target::Last, _, Some(high)) => Target::Before(high),
            (Target::Before(key), _, Some(high)) => Target::Before(key.min(high)),
            (target, ..) => target,
        };
        let is_outside = |target| match target {
            Target::From(key) => self.high.as_deref().is_some_and(|high| high <= key),
            Target::Before(key) => self.low.as_deref().is_some_and(|low| key <= low),
            _ => false,
        };
        let at = match target {
            target if self.is_section && is_outside(target) => None,
            Target::First => Some(0),
            Target::Last => Some(self.runs.len() - 1),
            Target::From(key) => self.run_from(key),
            Target::Before(key) => self.run_before(key),
        };
        match at {
            Some(at) => self.begin_in(at, target),
            None => self.cursor = None,
        }
    }

    /// Whether positioning it had to read a page.
    pub fn has_read(&self) -> bool {
        self.has_read
    }

    /// Starts to position the run at `at`, skipping its entries before its fence.
    fn begin_in(&mut self, at: usize, target: Target<'_>) {
        let low = self.runs[at].is_clipped().then(|| self.runs[at].low.clone());
        let low = low.as_ref().map(Fence::bytes);
        let target = match (target, low.as_deref()) {
            (Target::First, Some(low)) => Target::From(low),
            (Target::From(key), Some(low)) => Target::From(key.max(low)),
            (target, _) => target,
        };
        self.open(at).begin(target);
    }

    /// Returns the run whose range contains `key`.
    fn run_of(&self, key: &[u8]) -> usize {
        self.runs.partition_point(|fenced| fenced.low.is_at_most(key)).saturating_sub(1)
    }

    /// Returns the run in which to search for the first entry from `key` on.
    fn run_from(&self, key: &[u8]) -> Option<usize> {
        let at = self.run_of(key);
        let is_behind = self.runs[at].run.reference().keys.end_before(key);
        Some(at + usize::from(is_behind)).filter(|at| *at < self.runs.len())
    }

    /// Returns the run in which to search for the last entry before `key`.
    fn run_before(&self, key: &[u8]) -> Option<usize> {
        let at = self.run_of(key);
        if self.runs[at].run.reference().keys.begin_at_or_after(key) { at.checked_sub(1) } else { Some(at) }
    }

    fn open(&mut self, at: usize) -> &mut RunCursor {
        debug_assert!(at < self.runs.len(), "a run of the sequence");
        if self.at != at {
            self.cursor = None;
            self.at = at;
        }
        let run = &self.runs[at].run;
        self.cursor.get_or_insert_with(|| {
            let mut cursor = RunCursor::new(Arc::clone(run), ReadAhead::Adaptive);
            if self.is_leaf {
                cursor.expect_pages(LEAF_PAGES_AT_ONCE);
            }
            if let Some(forecast) = &self.forecast {
                cursor.set_forecast(forecast.clone());
            }
            cursor
        })
    }

    /// Updates the position after the open run has moved. Returns `false` if the search continues in the next
    /// run.
    fn look(&mut self) -> bool {
        self.stands = false;
        let entry = self.cursor.as_ref().and_then(Cursor::entry);
        let entry = match (entry, self.direction) {
            (Some(entry), Direction::Backward) if self.runs[self.at].has_given_away(entry.key) => None,
            (entry, _) => entry,
        };
        let Some(entry) = entry else {
            let next = match self.direction {
                Direction::Forward => Some(self.at + 1).filter(|at| *at < self.runs.len()),
                Direction::Backward => self.at.checked_sub(1),
            };
            let Some(next) = next else {
                return true;
            };
            let target = match self.direction {
                Direction::Forward => Target::First,
                Direction::Backward => Target::Last,
            };
            self.begin_in(next, target);
            return false;
        };
        self.stands = match self.direction {
            Direction::Forward => self.high.as_deref().is_none_or(|high| entry.key < high),
            Direction::Backward => self.low.as_deref().is_none_or(|low| entry.key >= low),
        };
        true
    }

    /// Completes a seek of this cursor alone, blocking on every page.
    fn complete_seek(&mut self) -> Result<()> {
        let data = Arc::clone(self.runs[0].run.data());
        testudo_run::seek_together(std::slice::from_mut(self), &data)
    }

    fn place(&mut self, target: Target<'_>) -> Result<()> {
        self.begin(target);
        self.complete_seek()
    }
}

impl BatchedSeek for SequenceCursor {
    fn progress(&mut self) -> Result<Option<Missing>> {
        loop {
            let Some(cursor) = &mut self.cursor else { return Ok(None) };
            if let Some(missing) = cursor.progress()? {
                return Ok(Some(missing));
            }
            if self.look() {
                return Ok(None);
            }
        }
    }

    fn on_page(&mut self, bytes: &[u8]) -> Result<()> {
        self.has_read = true;
        self.cursor.as_mut().map_or(Ok(()), |cursor| cursor.on_page(bytes))
    }

    fn next_missing(&mut self) -> Result<Option<Missing>> {
        match &mut self.cursor {
            Some(cursor) if self.stands && self.direction == Direction::Forward => cursor.next_missing(),
            _ => Ok(None),
        }
    }

    fn prefetched(&mut self, bytes: &[u8]) {
        if let Some(cursor) = &mut self.cursor {
            cursor.prefetched(bytes);
        }
    }
}

impl Cursor for SequenceCursor {
    fn seek_first(&mut self) -> Result<()> {
        self.place(Target::First)
    }

    fn seek_last(&mut self) -> Result<()> {
        self.place(Target::Last)
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.place(Target::From(key))
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.place(Target::Before(key))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.direction = Direction::Forward;
        self.stands = false;
        let Some(cursor) = &mut self.cursor else { return Ok(()) };
        cursor.next()?;
        if self.look() { Ok(()) } else { self.complete_seek() }
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.direction = Direction::Backward;
        self.stands = false;
        let Some(cursor) = &mut self.cursor else { return Ok(()) };
        cursor.prev()?;
        if self.look() { Ok(()) } else { self.complete_seek() }
    }

    #[inline]
    fn entry(&self) -> Option<Entry<'_>> {
        if self.stands { self.cursor.as_ref()?.entry() } else { None }
    }

    fn memory_bytes(&self) -> usize {
        let of_runs = self.runs.capacity() * size_of::<FencedRun>();
        of_runs + self.cursor.as_ref().map_or(0, Cursor::memory_bytes)
    }
}
