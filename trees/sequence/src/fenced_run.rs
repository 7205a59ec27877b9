//! A run and the fence before it.

use std::sync::Arc;

use testudo_base::Result;
use testudo_run::Run;

use crate::{Bounds, Fence};

/// One of several disjoint runs in key order.
#[derive(Clone, Debug)]
pub struct FencedRun {
    /// Greater than all keys of the preceding run; the run's own keys before it do not count any more.
    pub low: Fence,
    /// The run.
    pub run: Arc<Run>,
}

impl FencedRun {
    /// Whether the run may have keys before its fence.
    #[inline]
    pub fn is_clipped(&self) -> bool {
        !self.low.is_empty() && !self.run.reference().keys.begin_at_or_after(&self.low.head())
    }

    /// Whether `key`, one of the run's, does not count any more.
    #[inline]
    pub fn has_given_away(&self, key: &[u8]) -> bool {
        self.is_clipped() && !self.low.is_at_most(key)
    }
}

/// Whether a run has keys outside its bounds. Its first and last key are read if its reference has only
/// truncated ones and they do not decide it, or if `deep`.
pub fn is_outside(run: &Arc<Run>, bounds: &Bounds, deep: bool) -> Result<bool> {
    let keys = &run.reference().keys;
    let (low, high) = (bounds.low.as_ref().map(Fence::head), bounds.high.as_ref().map(Fence::head));
    if low.as_ref().is_some_and(|low| keys.begin_before(low))
        || high.as_ref().is_some_and(|high| keys.reach(high))
    {
        return Ok(true);
    }
    let is_inside =
        low.is_none_or(|low| keys.begin_at_or_after(&low)) && high.is_none_or(|high| keys.end_before(&high));
    if is_inside && !deep {
        return Ok(false);
    }
    let (first, last) = run.exact_ends()?;
    Ok(!bounds.contains(&first) || !bounds.contains(&last))
}

/// Reads a whole run: every page verifies, keys increase, counts match, and the filter has every key.
pub fn check_run(run: &Arc<Run>) -> Result<()> {
    run.check_pages()?;
    run.check_entries().map(|_| ())
}
