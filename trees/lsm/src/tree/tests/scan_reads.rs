//! Device reads of scans.

use super::*;

fn key(number: u64) -> Vec<u8> {
    format!("user{number:020}").into_bytes()
}

/// A tree with several sequences, with records spread over them.
fn filled() -> Bed {
    let mut bed = Bed::new(options(256 << 10, 10, 4));
    let total = 31 * 1_291;
    for batch in 0..31 {
        // An odd multiplier visits every number once.
        let number = |n: u64| (batch * 1_291 + n) * 7919 % total;
        bed.apply_and_move((0..1_291).map(|n| (key(number(n)), Some(vec![b'v'; 100]))).collect());
    }
    bed
}

/// Device reads and bytes of scans of `count` entries each, spread over the keys; `is_said`: the cursor gets
/// the length as a limit.
fn reads_of_scans(bed: &mut Bed, scans: usize, count: usize, is_said: bool) -> (u64, u64) {
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

#[test]
fn a_scan_reads_little_beyond_its_entries() {
    const ENTRY_BYTES: u64 = 124;
    let mut bed = filled();
    let sources = u64_of(bed.tree.outline().iter().filter(|line| line.depth == 1).count()) + 1;
    assert!(sources > 2, "{sources} sources are not worth a test");
    for (count, scans, is_said, percent_max) in
        [(1_000, 20, true, 150), (1_000, 20, false, 180), (10_000, 3, true, 115), (10_000, 3, false, 130)]
    {
        let (reads, bytes) = reads_of_scans(&mut bed, scans, count, is_said);
        let returned = u64_of(count) * ENTRY_BYTES * u64_of(scans);
        let what = format!("{count} entries, said: {is_said}: {reads} reads, {bytes} bytes for {returned}");
        assert!(bytes * 100 <= returned * percent_max, "{what}");
    }
}

#[test]
fn a_scan_of_everything_reads_each_page_once() {
    let mut bed = filled();
    bed.cool(1 << 20);
    let mut cursor = bed.tree.cursor();
    cursor.seek_first().unwrap();
    let mut count = 0;
    while cursor.entry().is_some() {
        count += 1;
        cursor.next().unwrap();
    }
    assert_eq!(count, bed.model.len());
    let (io, stored) = (bed.work.data.io_stats(), bed.tree.stats().stored_bytes);
    let read = io.page_read_bytes + io.stream_read_bytes;
    assert!(read <= stored + stored / 5, "{read} bytes read of {stored}");
}
