//! Forecast of how much of a scan each source of a part will return, so that it reads that and no more.
//!
//! Entries in buffers and in the leaf are assumed to be distributed uniformly over the keys of the part. So
//! each source contributes to a scan in proportion to its bytes in the part.
//!
//! **Invariants**
//! - Hints only, computed from data in memory.

use std::sync::Arc;

use testudo_base::num::low64;
use testudo_run::{ScanForecast, ScanProgress};

use crate::SequenceCursor;

/// Gives each source its forecast for a scan; `waiting_bytes` are the bytes of each source in the part.
pub(crate) fn forecast_reads(
    progress: &Arc<ScanProgress>,
    sources: &mut [SequenceCursor],
    waiting_bytes: &[u64],
) {
    debug_assert_eq!(sources.len(), waiting_bytes.len(), "one number for each source");
    let entries = sources.iter().zip(waiting_bytes).map(|(source, bytes)| {
        let reference = source.first_run().reference();
        scaled(*bytes, reference.entries, reference.user_bytes)
    });
    let entries: u64 = entries.sum();
    for (source, bytes) in sources.iter_mut().zip(waiting_bytes) {
        let reference = source.first_run().reference();
        let pages = scaled(*bytes, reference.section_count().into(), reference.user_bytes);
        source.set_forecast(ScanForecast::new(progress, pages, entries, source.is_leaf()));
    }
}

/// `bytes × part / whole`
fn scaled(bytes: u64, part: u64, whole: u64) -> u64 {
    low64(u128::from(bytes) * u128::from(part) / u128::from(whole.max(1)))
}
