use super::*;

/// Creates a memory of `pages` pages, with four records per page.
fn memory(pages: u64, border: Border, admission: Admission) -> Memory {
    let sizes =
        Sizes { memory_bytes: pages * FRAME_BYTES, records: 400, records_per_page: 4, record_bytes: 151 };
    Memory::new(sizes, Policy { border, admission, has_probation: true })
}

fn reads(memory: &mut Memory, records: &[u64]) -> Vec<u64> {
    records.iter().map(|&record| memory.access(Access::Read(record))).collect()
}

#[test]
fn short_trace_matches_a_manual_page_count() {
    // Memory for three pages, a third of it for records: a few records leave two frames.
    let mut memory = memory(3, Border::Fixed(33), Admission::All);
    // Records 0 and 1 share a page, which is read once; 4, 8 and 12 are on others.
    assert_eq!(reads(&mut memory, &[0, 1, 4, 8, 12]), [1, 0, 1, 1, 1]);
    // The page of 0 was used twice and stays, and so does the last one. The page of 4 was evicted: its
    // record is cached, but its neighbor is not. Reading the neighbor evicts the last page.
    assert_eq!(reads(&mut memory, &[0, 2, 4, 5]), [0, 0, 0, 1]);
    assert_eq!(memory.access(Access::Scan { first: 0, count: 8 }), 0);
    assert_eq!(memory.access(Access::Scan { first: 8, count: 8 }), 2);
    assert_eq!(memory.access(Access::Scan { first: 3, count: 2 }), 1);
}

#[test]
fn separate_caches_lend_no_memory_and_borders_lend_all() {
    let scan = Access::Scan { first: 0, count: 400 };
    for (border, frames) in [(Border::Separate(50), 5), (Border::Fixed(50), 10)] {
        let mut memory = memory(10, border, Admission::All);
        assert_eq!(memory.access(scan), 100);
        assert_eq!(memory.pages.bytes(), frames * FRAME_BYTES);
    }
}

#[test]
fn sparse_admission_rejects_records_of_hot_pages() {
    let mut memory = memory(10, Border::Fixed(50), Admission::Sparse(2));
    reads(&mut memory, &[0, 1, 2, 3]);
    let cached: Vec<u64> = (0..4).filter(|&record| memory.records.contains(record)).collect();
    assert_eq!(cached, [0, 1]);
}

#[test]
fn evicted_page_leaves_its_requested_records() {
    let mut memory = memory(2, Border::Fixed(50), Admission::Distilled(3));
    assert_eq!(reads(&mut memory, &[0, 2, 8, 12]), [1, 0, 1, 1]);
    assert_eq!(memory.records.bytes(), 3 * 151);
    assert_eq!(reads(&mut memory, &[0, 2, 1]), [0, 0, 1]);
}

#[test]
fn write_is_cached_without_a_page_read() {
    let mut memory = memory(2, Border::Fixed(50), Admission::Sparse(1));
    assert_eq!(memory.access(Access::Write(7)), 0);
    assert_eq!(reads(&mut memory, &[7, 6]), [0, 1]);
}

#[test]
fn ghost_hits_move_the_border_both_ways() {
    let border = Border::Ghosts { depth: 2, step: 100 };
    let mut memory = memory(4, border, Admission::All);
    let first = memory.records_target;
    memory.access(Access::Scan { first: 0, count: 20 });
    assert_eq!(memory.records_target, first, "no page was resident before");
    memory.access(Access::Scan { first: 0, count: 1 });
    assert_eq!(memory.records_target, first - 100);
    // A recently evicted record, on a page that was never resident.
    memory.records.insert(40);
    assert!(memory.records.evict());
    assert_eq!(reads(&mut memory, &[40]), [1]);
    assert_eq!(memory.records_target, first);
}

#[test]
fn moving_border_stops_at_its_minimum() {
    let border = Border::Ghosts { depth: 1, step: 1 << 20 };
    let mut memory = memory(32, border, Admission::All);
    for _ in 0..2 {
        memory.access(Access::Scan { first: 0, count: 160 });
    }
    assert_eq!(memory.records_target, FRAME_BYTES);
}

#[test]
fn memory_bound_holds_for_all_policies() {
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
