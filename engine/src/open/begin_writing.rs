//! The edit with which an opening for writing begins.

use testudo_base::{Opening, Result};
use testudo_storage::Change;

use crate::store::Store;

/// Makes the edit with which an opening for writing begins, once, before its first run and its first log
/// segment: it states the incarnation, and steps over the run ids that a crash may have used without the
/// manifest knowing. A reader keeps it to itself. REQUIRES: of a writer, everything that is read at opening
/// has been found valid.
pub(crate) fn begin_writing(store: &Store) -> Result<()> {
    let Some(incarnation) = store.data.writer() else { return Ok(()) };
    let has_begun = |opening: &Opening| opening.incarnation == incarnation;
    if store.manifest.with_state(|state| state.openings.last().is_some_and(has_begun)) {
        return Ok(());
    }
    store.manifest.begin_writing()?;
    let newest = testudo_wal::list_segments(&*store.env, &store.directory)?.pop().unwrap_or_default();
    let log_segment = store.manifest.with_state(|state| state.log_segment);
    let first_segment = (newest + 1).max(log_segment);
    let opening = Change::Opened(Opening { incarnation, first_segment });
    store.commit_edit(&[Change::NextRun(store.run_ids.next()), opening])
}
