use super::*;

/// Pages of four records, and memory for a number of pages.
fn memory(pages: u64, border: Border, admission: Admission) -> Memory {
    let sizes =
        Sizes { memory_bytes: pages * FRAME_BYTES, records: 400, records_per_page: 4, record_bytes: 151 };
    Memory::new(sizes, Policy { border, admission, has_probation: true })
}

fn reads(memory: &mut Memory, records: &[u64]) -> Vec<u64> {
    records.iter().map(|&record| memory.access(Access::Read(record))).collect()
}

#[test]
fn a_short_trace_reads_the_pages_that_a_hand_count_gives() {
    // Memory for three pages, a third of it for records: beside a few records there are two frames.
    let mut memory = memory(3, Border::Fixed(33), Admission::All);
    // Records 0 and 1 share a page, which is read once; 4, 8 and 12 are in others.
    assert_eq!(reads(&mut memory, &[0, 1, 4, 8, 12]), [1, 0, 1, 1, 1]);
    // The page of 0 was used twice and stays, and so does the last one. The page of 4 went: its record is
    // cached, but the neighbour is not. With that, the last page goes.
    assert_eq!(reads(&mut memory, &[0, 2, 4, 5]), [0, 0, 0, 1]);
    assert_eq!(memory.access(Access::Scan { first: 0, count: 8 }), 0);
    assert_eq!(memory.access(Access::Scan { first: 8, count: 8 }), 2);
    assert_eq!(memory.access(Access::Scan { first: 3, count: 2 }), 1);
}

#[test]
fn nothing_is_lent_by_separate_caches_and_everything_by_a_border() {
    let scan = Access::Scan { first: 0, count: 400 };
    for (border, frames) in [(Border::Separate(50), 5), (Border::Fixed(50), 10)] {
        let mut memory = memory(10, border, Admission::All);
        assert_eq!(memory.access(scan), 100);
        assert_eq!(memory.pages.bytes(), frames * FRAME_BYTES);
    }
}

#[test]
fn records_of_a_page_of_which_many_were_asked_for_are_not_cached() {
    let mut memory = memory(10, Border::Fixed(50), Admission::Sparse(2));
    reads(&mut memory, &[0, 1, 2, 3]);
    let cached: Vec<u64> = (0..4).filter(|&record| memory.records.contains(record)).collect();
    assert_eq!(cached, [0, 1]);
}

#[test]
fn an_evicted_page_leaves_the_records_that_were_asked_for() {
    let mut memory = memory(2, Border::Fixed(50), Admission::Distilled(3));
    assert_eq!(reads(&mut memory, &[0, 2, 8, 12]), [1, 0, 1, 1]);
    assert_eq!(memory.records.bytes(), 3 * 151);
    assert_eq!(reads(&mut memory, &[0, 2, 1]), [0, 0, 1]);
}

#[test]
fn a_write_is_cached_without_reading_its_page() {
    let mut memory = memory(2, Border::Fixed(50), Admission::Sparse(1));
    assert_eq!(memory.access(Access::Write(7)), 0);
    assert_eq!(reads(&mut memory, &[7, 6]), [0, 1]);
}

#[test]
fn a_page_that_went_lately_takes_from_records_and_a_record_from_pages() {
    let border = Border::Ghosts { depth: 2, step: 100 };
    let mut memory = memory(4, border, Admission::All);
    let first = memory.records_target;
    memory.access(Access::Scan { first: 0, count: 20 });
    assert_eq!(memory.records_target, first, "no page was here before");
    memory.access(Access::Scan { first: 0, count: 1 });
    assert_eq!(memory.records_target, first - 100);
    // A record that went lately, of a page that was never here.
    memory.records.insert(40);
    assert!(memory.records.evict());
    assert_eq!(reads(&mut memory, &[40]), [1]);
    assert_eq!(memory.records_target, first);
}

#[test]
fn a_border_stops_before_either_side_has_nothing() {
    let border = Border::Ghosts { depth: 1, step: 1 << 20 };
    let mut memory = memory(32, border, Admission::All);
    for _ in 0..2 {
        memory.access(Access::Scan { first: 0, count: 160 });
    }
    assert_eq!(memory.records_target, FRAME_BYTES);
}

#[test]
fn the_bound_holds_whatever_comes() {
    let mut random = testudo_env::SplitMix::new(3);
    for (_, policy) in super::super::policy::POLICIES {
        let mut memory = memory(9, policy.border, policy.admission);
        for _ in 0..20_000 {
            let record = random.below(400);
            match random.below(8) {
                0 => memory.access(Access::Scan { first: record, count: 9 }),
                1 => memory.access(Access::Write(record)),
                _ => memory.access(Access::Read(record.min(random.below(400)))),
            };
            let held = memory.pages.bytes() + memory.records.bytes();
            assert!(held <= memory.sizes.memory_bytes, "{policy:?}");
        }
        assert!(memory.record_share() <= 1.0);
    }
}
