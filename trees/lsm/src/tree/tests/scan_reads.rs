//! Device reads of scans.

use testudo_treebed::reads_of_scans;

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
