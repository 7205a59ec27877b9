//! The tree's interface to the engine: large values are separated when written, and `get` reads them.
//! Cursors return references; the caller reads the values it needs.
//!
//! **Invariants**
//! - A `SeparatedTree` is immutable; `apply` and `install` return the next one.
//! - The segments of a state are those to which the entries of its tree refer.

use testudo_base::{
    Cursor, Entry, KeyspaceId, Kind, ReferenceDrops, Result, RunId, ValueReference, num::low64, planted,
    sync::Arc,
};
use testudo_contract::{
    Compact, Inspect, Job, JobRequest, LeastGain, Opaque, OutlineLine, Part, Prepared, RangeJob, Read,
    Reclaim, ReclaimLimits, Scope, Tree, TreeEdit, TreeStats, Update, Updates, Work,
};
use testudo_run::{Access, KeyBounds, Lookup, LookupProgress, ScanLimits};
use testudo_storage::{DataFile, PageAddress};
use testudo_values::{Placement, Rewritten, Segment, SegmentSet, ValueCosts};

use crate::{
    objects::{Objects, changes_between, load},
    placing::{Settings, Values, segment_origin},
    reclaim::{Pace, Target, gain_bytes, pick},
    resolve::{damaged, resolve},
    updates::{ReferringUpdates, SeparatedUpdates},
};

/// Batch size for reading values in a check: values, and bytes.
const CHECKED_TOGETHER: usize = 64;
const CHECKED_BYTES: u64 = 256 << 10;

/// Inverse of the minimum gain of rewriting a segment to reclaim space, as a fraction of the bytes written.
const GAIN_PARTS: u64 = 32;
/// Maximum size of a segment filled by a flush, in full segments: it is full before its last value.
const FULL_SEGMENTS_MAX: u64 = 2;

/// A tree and its value segments.
#[derive(Debug)]
pub struct SeparatedTree {
    tree: Arc<dyn Tree>,
    segments: SegmentSet,
    settings: Settings,
    /// Pace since the last incoming values.
    pace: Pace,
}

/// Output of a job.
enum Outcome {
    Rewritten(Rewritten),
    OfTree { prepared: Prepared, of_values: OfValues },
}

/// Changes of values by work of the inner tree.
struct OfValues {
    /// Segments written.
    made: Vec<Segment>,
    drops: ReferenceDrops,
}

/// Work for the inner tree, with its values.
struct InnerWork {
    work: Work,
    values: Arc<Values>,
}

impl InnerWork {
    /// Returns the changes of values, once the work is done.
    fn end(&self) -> Result<OfValues> {
        self.end_with(None)
    }

    /// As [`Self::end`], for updates that have their own segment, which the tree takes over.
    fn end_with(&self, logged: Option<Segment>) -> Result<OfValues> {
        let mut made = self.values.take_made()?;
        made.extend(logged);
        Ok(OfValues { made, drops: self.work.progress.take_reference_drops() })
    }
}

/// Scope of rewriting a segment: it is independent of the inner tree, as of flushes. Values may become dead
/// meanwhile, but references to the segment stay valid.
fn of_values() -> Scope {
    Scope::of_layers(Scope::VALUES..=Scope::VALUES)
}

impl SeparatedTree {
    /// Wraps `tree`, which has no segments yet.
    pub fn empty(tree: Arc<dyn Tree>, settings: Settings) -> Arc<Self> {
        Arc::new(Self { tree, segments: SegmentSet::default(), settings, pace: Pace::default() })
    }

    /// Opens `tree` with the segments that `objects` describe. Reads no pages.
    ///
    /// Errors: `Corruption` if the objects contradict themselves or the live extents.
    pub fn open(
        tree: Arc<dyn Tree>,
        settings: Settings,
        data: &Arc<DataFile>,
        keyspace: KeyspaceId,
        objects: &Objects,
    ) -> Result<Arc<Self>> {
        let segments = load(data, keyspace, objects)?;
        Ok(Arc::new(Self { tree, segments, settings, pace: Pace::default() }))
    }

    /// Returns the work of the inner tree. Its output is placed by `placement`, which separates about
    /// `separated_bytes` of the input.
    fn inner_work(&self, work: &Work, placement: Placement, separated_bytes: u64) -> InnerWork {
        self.inner_work_with(None, work, placement, separated_bytes)
    }

    /// As [`Self::inner_work`], for updates that have their own segment.
    fn inner_work_with(
        &self,
        logged: Option<&Segment>,
        work: &Work,
        placement: Placement,
        separated_bytes: u64,
    ) -> InnerWork {
        // Discard drops of abandoned merges from an earlier attempt.
        let _ = work.progress.take_reference_drops();
        let settings = Settings { placement, ..self.settings.clone() };
        let mut segments = self.segments.clone();
        logged.into_iter().for_each(|logged| segments.insert(logged.clone()));
        let values = Values::new(segments, work, settings, separated_bytes);
        let work = Work { values: Some(Arc::<Values>::clone(&values)), ..work.clone() };
        InnerWork { work, values }
    }

    /// Whether all live values of segments are about to move back to their keys.
    fn dies_anyway(&self) -> bool {
        self.tree.is_moving() && self.settings.brings_back()
    }

    /// As [`Self::inner_work`], when space is short: values stay where they are.
    fn inner_work_sparing(&self, work: &Work) -> InnerWork {
        self.inner_work(work, Placement::inline(), 0)
    }

    /// Returns the segment of the updates' values, if the tree accepts it.
    fn logged_of(&self, updates: &dyn Updates) -> Option<Segment> {
        updates.value_segment().filter(|_| self.settings.placement.uses_value_logs())
    }

    /// Combines the edit of the inner tree with the changes of segments.
    fn with_segments(&self, edit: TreeEdit, of_values: OfValues, keyspace: KeyspaceId) -> Result<TreeEdit> {
        let mut segments = self.segments.clone();
        let pace = self.pace.after(of_values.made.iter().map(Segment::stored_bytes).sum());
        debug_assert!(
            of_values.made.iter().all(|segment| segments.get(segment.id()).is_none()),
            "new segments have new ids"
        );
        of_values.made.into_iter().for_each(|segment| segments.insert(segment));
        segments.bury(&of_values.drops)?;
        let (mut changes, rest) = changes_between(&self.segments, &segments, keyspace);
        changes.extend(edit.changes);
        changes.extend(rest);
        let tree = Arc::new(Self { tree: edit.tree, segments, settings: self.settings.clone(), pace });
        Ok(TreeEdit { tree, changes })
    }

    /// Creates the edit that installs a rewritten segment; `None` if the segment is gone.
    fn with_rewritten(&self, rewritten: &Rewritten, keyspace: KeyspaceId) -> Option<TreeEdit> {
        let mut segments = self.segments.clone();
        let read_bytes = segments.get(rewritten.id).map_or(0, |segment| segment.stored_bytes());
        if !segments.install(rewritten) {
            return None;
        }
        let (mut changes, rest) = changes_between(&self.segments, &segments, keyspace);
        changes.extend(rest);
        debug_assert!(
            segments.get(rewritten.id).is_some_and(|segment| segment.stored_bytes() <= read_bytes),
            "rewriting shrinks a segment, which keeps its id"
        );
        let pace = self.pace.after_rewriting(read_bytes);
        let tree = Self { tree: Arc::clone(&self.tree), segments, settings: self.settings.clone(), pace };
        Some(TreeEdit { tree: Arc::new(tree), changes })
    }

    /// Reads the value of each reference.
    fn check_references(&self) -> Result<()> {
        let mut cursor = self.cursor();
        let mut found: Vec<(Vec<u8>, ValueReference)> = Vec::new();
        let mut bytes = 0;
        cursor.seek_first()?;
        loop {
            let entry = cursor.entry();
            debug_assert!(found.len() <= CHECKED_TOGETHER, "a batch is bounded");
            if bytes >= CHECKED_BYTES || found.len() >= CHECKED_TOGETHER || entry.is_none() {
                let wanted: Vec<_> = found.iter().map(|(key, value)| (key.as_slice(), *value)).collect();
                self.segments.read_together(&wanted)?;
                found.clear();
                bytes = 0;
            }
            let Some(entry) = entry else { return Ok(()) };
            if let Some(reference) = ValueReference::of(entry.kind, entry.value).map_err(damaged)?
                && reference.is_in_segment()
            {
                bytes += u64::from(reference.length);
                found.push((entry.key.to_vec(), reference));
            }
            cursor.next()?;
        }
    }

    fn rewrite(&self, work: &Work, target: Target) -> Result<Option<Rewritten>> {
        let Some(segment) = target.find(&self.segments) else { return Ok(None) };
        let newest_seqno = segment.run().reference().newest_seqno;
        if let Some(watched) = &self.settings.watched {
            watched.costs.note_rewritten(segment.stored_bytes() - segment.dead_bytes());
        }
        segment.rewrite(segment_origin(work, newest_seqno)).map(Some)
    }

    /// Picks the segment whose rewriting reclaims most, within the limits.
    fn pick_segment(&self, limits: &ReclaimLimits<'_>) -> Option<Reclaim> {
        let is_excluded =
            |target: &Target| limits.but.iter().any(|reclaim| reclaim.target.of::<Target>() == Some(target));
        let worth = |gain: u64, written: u64| match limits.least_gain {
            LeastGain::Worthwhile => gain >= written / GAIN_PARTS && gain > 0,
            LeastGain::Any | LeastGain::None => gain > 0,
        };
        let candidates = self.segments.iter().filter(|segment| {
            let (space, gain) = (segment.rewritten_bytes(), gain_bytes(segment));
            space <= limits.space_bytes && worth(gain, space) && !is_excluded(&Target::of(segment))
        });
        let segment = candidates.max_by_key(|segment| gain_bytes(segment))?;
        debug_assert!(segment.rewritten_bytes() <= limits.space_bytes, "a step fits");
        Some(Reclaim {
            target: Opaque::new(Target::of(segment)),
            is_merge: false,
            space_bytes: segment.rewritten_bytes(),
            gain_bytes: gain_bytes(segment),
        })
    }
}

impl Read for SeparatedTree {
    fn get(&self, key: &[u8], hash: u64, access: Access<'_>) -> Result<Lookup> {
        match self.tree.get(key, hash, access)? {
            Lookup::Found(kind @ (Kind::Reference | Kind::UnmergedReference), value, _)
                if !ValueReference::is_to_long_value(kind, &value) =>
            {
                let entry = Entry { key, kind, value: &value };
                // The query's progress in the tree is kept: it is repeated if a page is missing.
                let progress = std::cell::Cell::new(LookupProgress::default());
                let access = match access {
                    Access::Blocking | Access::Counting(_) => Access::Blocking,
                    Access::Collecting(wanted, _) => Access::Collecting(wanted, &progress),
                };
                Ok(match resolve(&self.segments, &entry, access)? {
                    None => Lookup::Waiting,
                    // The neighbors of the value's page count, not those of its reference's page.
                    Some((kind, value, neighbours)) => Lookup::Found(kind, value, neighbours),
                })
            }
            other => Ok(other),
        }
    }

    fn may_hold_more(&self, key: &[u8], bytes: u64) -> bool {
        // At most one value is below the operands of a key.
        let longest = self.segments.iter().map(|segment| segment.stored_bytes()).max().unwrap_or_default();
        longest > bytes || self.tree.may_hold_more(key, bytes - longest)
    }

    fn load_pages(&self, pages: &[PageAddress]) -> Result<()> {
        self.tree.load_pages(pages)
    }

    fn cursor_within(&self, limits: &ScanLimits) -> Box<dyn Cursor + Send> {
        self.tree.cursor_within(limits)
    }

    fn value_segments(&self) -> Option<&SegmentSet> {
        Some(&self.segments)
    }
}

impl Update for SeparatedTree {
    fn apply(&self, work: &Work, updates: Arc<dyn Updates>) -> Result<TreeEdit> {
        let logged = self.logged_of(&*updates);
        let placement = self.settings.placement;
        let with_keys = |updates| {
            let inner = self.inner_work_sparing(work);
            let edit = self.tree.apply(&inner.work, updates)?;
            self.with_segments(edit, inner.end()?, work.keyspace)
        };
        if placement.is_inline() {
            return with_keys(updates);
        }
        let plain = Arc::clone(&updates);
        let updates = SeparatedUpdates::new(updates, placement)?;
        let separated_bytes = updates.separated_bytes();
        let logged_bytes = logged.as_ref().map_or(0, |logged| logged.stored_bytes() - logged.dead_bytes());
        if !self.settings.are_many(separated_bytes + logged_bytes) {
            return with_keys(plain);
        }
        // The inner tree expects the rest.
        work.progress.expect(separated_bytes);
        let inner = self.inner_work_with(logged.as_ref(), work, placement, separated_bytes);
        let edit = self.tree.apply(&inner.work, Arc::new(updates))?;
        self.with_segments(edit, inner.end_with(logged)?, work.keyspace)
    }

    fn apply_on_top(&self, work: &Work, updates: Arc<dyn Updates>) -> Result<TreeEdit> {
        // Data on top must take little more space than its size.
        let Some(logged) = self.logged_of(&*updates) else {
            let inner = self.inner_work_sparing(work);
            let edit = self.tree.apply_on_top(&inner.work, updates)?;
            return self.with_segments(edit, inner.end()?, work.keyspace);
        };
        let inner = self.inner_work_with(Some(&logged), work, Placement::inline(), 0);
        let edit = self.tree.apply_on_top(&inner.work, Arc::new(ReferringUpdates(updates)))?;
        self.with_segments(edit, inner.end_with(Some(logged))?, work.keyspace)
    }

    fn on_top_bytes(&self, memory_bytes: u64) -> u64 {
        self.tree.on_top_bytes(memory_bytes)
    }

    fn rewrites_per_doubling(&self) -> f64 {
        self.tree.rewrites_per_doubling()
    }
}

impl Compact for SeparatedTree {
    fn reclaim_bytes(&self) -> u64 {
        // A segment filled by a commit's buffer may be much longer than those filled by flushes.
        let of_segments = self.segments.iter().map(|segment| match segment.rewritten_bytes() {
            bytes if segment.is_logged() => bytes,
            bytes => bytes.min(FULL_SEGMENTS_MAX * self.settings.segment_bytes),
        });
        self.tree.reclaim_bytes().max(of_segments.max().unwrap_or_default())
    }

    fn pick_reclaim(&self, limits: &ReclaimLimits<'_>) -> Result<Option<Reclaim>> {
        let is_of_tree = |reclaim: &&Reclaim| reclaim.target.of::<Target>().is_none();
        let but: Vec<Reclaim> = limits.but.iter().filter(is_of_tree).cloned().collect();
        let of_tree = self.tree.pick_reclaim(&ReclaimLimits { but: &but, ..*limits })?;
        let of_segments = self.pick_segment(limits);
        Ok(of_tree.into_iter().chain(of_segments).max_by_key(|reclaim| reclaim.gain_bytes))
    }

    fn reclaim(&self, work: &Work, reclaim: &Reclaim) -> Result<TreeEdit> {
        let Some(target) = reclaim.target.of::<Target>() else {
            let inner = self.inner_work_sparing(work);
            let edit = self.tree.reclaim(&inner.work, reclaim)?;
            return self.with_segments(edit, inner.end()?, work.keyspace);
        };
        let rewritten = self.rewrite(work, *target)?.expect("it was picked from this very state");
        Ok(self.with_rewritten(&rewritten, work.keyspace).expect("it was picked from this very state"))
    }

    fn pick_job(&self, request: &JobRequest<'_>) -> Option<Job> {
        if self.segments.is_empty() {
            return self.tree.pick_job(request);
        }
        let tree_bytes = self.tree.stats().stored_bytes;
        // Overdue work of the inner tree comes first: without it, garbage is unknown.
        let of_segments = Some(&self.segments)
            .filter(|_| request.allows(&of_values()))
            .and_then(|segments| pick(segments, tree_bytes, request.is_idle))
            .filter(|segment| segment.is_transient() || !self.dies_anyway())
            .filter(|_| self.tree.behind_bytes() == 0)
            .map(|segment| Job {
                what: "rewrite a value segment",
                debt_bytes: segment.dead_bytes(),
                scope: of_values(),
                target: Opaque::new(Target::of(segment)),
            });
        let jobs = of_segments.into_iter().chain(self.tree.pick_job(request));
        jobs.max_by_key(|job| job.debt_bytes)
    }

    /// A segment is one run, and is rewritten whole. Those filled by flushes and merges have at most
    /// [`Settings::segment_bytes`](crate::Settings) and a value; those that commits have filled have the
    /// capacity of their value log, up to 900 MiB.
    fn job_bytes_max(&self, bytes_max: u64) -> u64 {
        let of_segments = self.segments.iter().map(|segment| segment.run().reference().user_bytes);
        self.tree.job_bytes_max(bytes_max).max(of_segments.max().unwrap_or_default())
    }

    fn pick_range(&self, range: &KeyBounds, bytes_max: u64) -> Result<Option<RangeJob>> {
        self.tree.pick_range(range, bytes_max)
    }

    fn has_new_reasons(&self) -> bool {
        self.tree.has_new_reasons()
    }

    fn behind_bytes(&self) -> u64 {
        let of_segments = if self.dies_anyway() { 0 } else { self.pace.behind_bytes(&self.segments) };
        self.tree.behind_bytes() + of_segments
    }

    fn prepare(&self, work: &Work, job: &Job) -> Result<Prepared> {
        let outcome = match job.target.of::<Target>() {
            Some(target) => {
                let rewritten = self.rewrite(work, *target)?;
                Outcome::Rewritten(rewritten.expect("it was picked from this very state"))
            }
            None => {
                let inner = self.inner_work(work, self.settings.placement, 0);
                let prepared = self.tree.prepare(&inner.work, job)?;
                Outcome::OfTree { prepared, of_values: inner.end()? }
            }
        };
        Ok(Prepared::new(job.what, outcome))
    }

    fn install(&self, work: &Work, prepared: Prepared) -> Result<Option<TreeEdit>> {
        match prepared.into::<Outcome>() {
            None => Ok(None),
            Some(Outcome::Rewritten(rewritten)) => Ok(self.with_rewritten(&rewritten, work.keyspace)),
            Some(Outcome::OfTree { prepared, mut of_values }) => {
                // The tree measures its share of the pairs' bytes.
                let inner = self.inner_work(work, self.settings.placement, 0);
                let Some(edit) = self.tree.install(&inner.work, prepared)? else {
                    return Ok(None);
                };
                if planted!("drops-of-job-lost") {
                    of_values.drops = ReferenceDrops::default();
                }
                self.with_segments(edit, of_values, work.keyspace).map(Some)
            }
        }
    }
}

impl Inspect for SeparatedTree {
    fn stats(&self) -> TreeStats {
        let totals = self.segments.totals();
        let stats = self.tree.stats();
        TreeStats {
            stored_bytes: stats.stored_bytes + totals.device_bytes,
            value_segments: totals.segments,
            value_bytes: totals.value_bytes,
            dead_value_bytes: totals.dead_bytes,
            transient_value_bytes: totals.transient_bytes,
            dead_transient_value_bytes: totals.dead_transient_bytes,
            ..stats
        }
    }

    fn bytes_between(&self, low: Option<&[u8]>, high: Option<&[u8]>) -> Result<u64> {
        let of_tree = self.tree.bytes_between(low, high)?;
        let mut bytes = of_tree;
        for segment in self.segments.iter() {
            bytes += if segment.is_logged() {
                // Its values are unsorted; they are assumed to be distributed like the tree's bytes.
                let (part, whole) = (u128::from(of_tree), u128::from(self.tree.stats().stored_bytes.max(1)));
                low64(u128::from(segment.run().reference().stored_bytes()) * part.min(whole) / whole)
            } else {
                segment.run().bytes_between(low, high)?
            };
        }
        Ok(bytes)
    }

    fn outline(&self) -> Vec<OutlineLine> {
        let mut lines = self.tree.outline();
        if !self.segments.is_empty() {
            let totals = self.segments.totals();
            let entries = self.segments.iter().map(|segment| segment.run().reference().entries).sum();
            let (count, bytes) = (totals.segments, totals.value_bytes);
            lines.push(OutlineLine { depth: 0, what: "value segments", count, bytes, entries });
        }
        lines
    }

    fn parts(&self) -> Vec<Part> {
        let mut parts = self.tree.parts();
        parts.extend(self.segments.iter().map(|segment| Part::Run(Arc::clone(segment.run()))));
        parts
    }

    fn is_spare(&self, run: RunId) -> bool {
        self.tree.is_spare(run)
    }

    fn value_costs(&self) -> Option<&Arc<ValueCosts>> {
        self.settings.watched.as_ref().map(|watched| &watched.costs)
    }

    fn check_invariants(&self, deep: bool) -> Result<()> {
        self.tree.check_invariants(deep)?;
        if !deep {
            return Ok(());
        }
        for segment in self.segments.iter() {
            segment.run().check_entries()?;
        }
        self.check_references()
    }

    fn check_retained(&self) -> Result<()> {
        self.tree.check_retained()
    }

    fn is_moving(&self) -> bool {
        self.tree.is_moving()
    }
}

impl Tree for SeparatedTree {}

#[cfg(test)]
mod tests;
