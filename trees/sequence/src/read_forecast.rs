//! How much of a scan each source of a part is expected to give, so that it reads that and no more.
//!
//! Entries that wait in buffers and those of the leaf are taken to be spread alike over the keys of the part.
//! So each source gives of a scan what it has of all bytes around there.
//!
//! **Invariants**
//! - Advice only, computed from what is in memory.

use std::sync::Arc;

use testudo_base::num::low64;
use testudo_run::{ScanForecast, ScanProgress};

use crate::SequenceCursor;

/// Tells each source what a scan is expected to need of it; `waiting_bytes` are what each has for the part.
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
        let pages = scaled(*bytes, reference.data_pages.into(), reference.user_bytes);
        source.set_forecast(ScanForecast::new(progress, pages, entries, source.is_leaf()));
    }
}

/// `bytes × part / whole`
fn scaled(bytes: u64, part: u64, whole: u64) -> u64 {
    low64(u128::from(bytes) * u128::from(part) / u128::from(whole.max(1)))
}
