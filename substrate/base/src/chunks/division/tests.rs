//! Movement of the border, and its consequences.

use super::*;

const LIMIT: u64 = 256 << 20;

/// The border in MiB, while pages have all of the memory.
fn border_mib(division: &Division) -> u64 {
    division.record_due_bytes() >> 20
}

fn divided() -> Division {
    let division = Division::default();
    division.pages_grew(LIMIT);
    division
}

#[test]
fn border_moves_towards_the_cache_that_evicts_too_early() {
    let division = divided();
    assert_eq!(border_mib(&division), 128);
    (0..128).for_each(|_| division.record_was_missed(LIMIT));
    assert_eq!(border_mib(&division), 136, "a 4096th for each read that would have been saved");
    (0..256).for_each(|_| division.page_was_missed(LIMIT));
    assert_eq!(border_mib(&division), 120);
    let small = Division::default();
    small.pages_grew(16 << 20);
    (0..128).for_each(|_| small.record_was_missed(16 << 20));
    assert_eq!(border_mib(&small), 9, "8 KiB in a small one");
}

#[test]
fn neither_side_loses_all_memory() {
    let division = divided();
    (0..1_000_000).for_each(|_| division.page_was_missed(LIMIT));
    assert_eq!(border_mib(&division), 8);
    (0..2_000_000).for_each(|_| division.record_was_missed(LIMIT));
    assert_eq!(border_mib(&division), 248);
}

#[test]
fn side_below_its_share_gets_more() {
    let division = Division::default();
    division.pages_grew(100);
    assert!(division.are_records_due(50) && !division.are_records_due(51) && !division.are_pages_due(0));
    division.records_grew(100);
    let is_even = !division.have_records_more() && !division.are_records_due(1) && !division.are_pages_due(1);
    assert!(is_even);
    division.records_grew(100);
    assert!(division.have_records_more() && division.are_pages_due(50) && !division.are_pages_due(51));
}
