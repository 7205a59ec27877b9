//! Device reads of scans.
//!
//! **Invariants**
//! - Every scan starts with cached footers and indexes, but without any data page.

use testudo_base::Cursor;
use testudo_run::ScanLimits;

use crate::{Bed, Family};

/// Device reads and bytes of `scans` scans of `count` entries each, spread over the keys; `is_said`: the
/// cursor gets the length as a limit.
pub fn reads_of_scans<F: Family>(bed: &mut Bed<F>, scans: usize, count: usize, is_said: bool) -> (u64, u64) {
    let starts: Vec<Vec<u8>> =
        bed.model.keys().step_by((bed.model.len() - count) / scans).take(scans).cloned().collect();
    let (mut reads, mut bytes) = (0, 0);
    for start in starts {
        // Other work replaces the cache between two scans.
        bed.cool(1 << 20);
        let entries = is_said.then(|| u64::try_from(count).unwrap());
        let mut cursor = bed.tree.cursor_within(&ScanLimits { entries, end: None });
        for run in bed.runs() {
            run.bytes_between(Some(run.reference().keys.last()), None).unwrap();
            run.bytes_between(Some(&start), None).unwrap();
        }
        let before = bed.work.data.io_stats();
        cursor.seek(&start).unwrap();
        for (number, (key, value)) in bed.model.range(start..).take(count).enumerate() {
            let entry = cursor.entry().expect("an entry is missing");
            assert_eq!((entry.key, entry.value), (key.as_slice(), value.as_slice()));
            if number + 1 < count {
                cursor.next().unwrap();
            }
        }
        drop(cursor);
        let after = bed.work.data.io_stats();
        reads += after.page_reads + after.stream_reads - before.page_reads - before.stream_reads;
        bytes += after.page_read_bytes + after.stream_read_bytes
            - before.page_read_bytes
            - before.stream_read_bytes;
    }
    (reads, bytes)
}
