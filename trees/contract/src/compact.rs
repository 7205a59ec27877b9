//! The tree's own background work: jobs that improve it, and steps that reclaim space.
//!
//! **Invariants**
//! - Picking changes nothing; doing the work is separate.
//! - Nothing that an edit refers to is written after [`Compact::prepare`] returned.

use testudo_base::Result;
use testudo_run::KeyBounds;

use crate::{Job, JobRequest, Prepared, RangeJob, Reclaim, ReclaimLimits, TreeEdit, Work};

/// Improves the tree in the background.
pub trait Compact {
    /// Approximate upper bound on the space that a unit of work from [`Compact::pick_reclaim`] needs.
    fn reclaim_bytes(&self) -> u64;
    /// Picks the unit of work that reclaims most space. Repeating this terminates. Reads index pages only.
    fn pick_reclaim(&self, limits: &ReclaimLimits<'_>) -> Result<Option<Reclaim>>;
    /// Executes the choice of [`Compact::pick_reclaim`]. All trees of one family use the same target type;
    /// panics if the target is of another type.
    fn reclaim(&self, work: &Work, reclaim: &Reclaim) -> Result<TreeEdit>;
    /// Picks a job that improves the tree, cheapest first, outside the scopes of jobs in progress. Repeating
    /// it terminates, also while idle. Pure.
    fn pick_job(&self, request: &JobRequest<'_>) -> Option<Job>;
    /// Upper bound on the bytes that a job reads, and on those that it writes, if jobs are requested with
    /// this limit: the limit itself, unless the smallest unit of the tree's work is larger. Bytes are those
    /// of keys and values; those of a part of a run are estimated by its pages.
    fn job_bytes_max(&self, bytes_max: u64) -> u64;
    /// Picks a job that moves the first keys of `range` with data above the bottom down to it, from all
    /// levels; `None` if there are none. Calling it again with the rest of the range
    /// ([`RangeJob::done_below`]) after each job compacts the whole range, however much is written meanwhile.
    /// Changes nothing. Reads a page of each run that may have the first such key. `bytes_max`: limit on the
    /// bytes that the job reads, and on those that it writes, as for [`Compact::pick_job`].
    ///
    /// Afterwards each key of the range is in one run, without tombstones and replaced entries. Data outside
    /// the range is rewritten only where a run or node has keys on both sides of an end of the range.
    fn pick_range(&self, range: &KeyBounds, bytes_max: u64) -> Result<Option<RangeJob>>;
    /// Whether reads since the last call have given [`Compact::pick_job`] new reasons.
    fn has_new_reasons(&self) -> bool {
        false
    }
    /// Approximate bytes that jobs should write before the next update, because they are too far behind the
    /// incoming writes; 0 if they keep up. Pure.
    fn behind_bytes(&self) -> u64 {
        0
    }
    /// Does the reads and writes of a job that [`Compact::pick_job`] or [`Compact::pick_range`] chose on this
    /// very state.
    fn prepare(&self, work: &Work, job: &Job) -> Result<Prepared>;
    /// Makes a prepared job part of this state, which may be a later one. Writes no run. Returns `None`,
    /// without effect, if the job's input is no longer part of the tree.
    fn install(&self, work: &Work, prepared: Prepared) -> Result<Option<TreeEdit>>;
}
