//! Device reads of merges.

use super::*;

fn updates(numbers: std::ops::Range<u64>) -> Arc<VecUpdates> {
    let entry = |number: u64| OwnedEntry {
        key: format!("user{number:020}").into_bytes(),
        kind: Kind::Value,
        value: vec![b'v'; 100],
    };
    Arc::new(VecUpdates::new(numbers.map(entry).collect(), Seqno(20)))
}

/// Bytes that a merge reads of an uncached run with `entries`, and its data pages.
fn merged_bytes(entries: u64) -> (u64, u64) {
    let mut bed = Bed::new(BeTreeOptions::new(Policy::Turtle));
    let edit = bed.tree.apply(&bed.work, updates(0..entries)).unwrap();
    bed.publish(edit);
    bed.work.data.sync().unwrap();
    bed.tree.check_invariants(false).unwrap();
    bed.cool(1 << 20);
    let runs = bed.runs();
    let [run] = &runs[..] else { panic!("{} runs", runs.len()) };
    let data_pages = u64::from(run.reference().data_pages);
    assert!(data_pages > 4, "{data_pages} pages");
    let before = bed.work.data.io_stats();
    // Tiers below 64 KiB would wait for others.
    let incoming = (entries * 3 / 2).max(700);
    bed.tree.apply(&bed.work, updates(entries / 2..entries / 2 + incoming)).unwrap();
    let after = bed.work.data.io_stats();
    assert_eq!(after.page_reads - before.page_reads, 1, "only the evicted footer is read separately");
    (after.stream_read_bytes - before.stream_read_bytes, data_pages)
}

#[test]
fn a_small_run_is_read_at_once_with_its_index() {
    for entries in [200, 500] {
        let (bytes, data_pages) = merged_bytes(entries);
        assert_eq!(bytes, data_pages * 4096, "the footer has the index");
    }
    let (bytes, data_pages) = merged_bytes(1900);
    assert_eq!(bytes, (data_pages + 1) * 4096);
}
