//! Where the border goes, and what follows from it.

use super::*;

const LIMIT: u64 = 256 << 20;

#[test]
fn the_border_moves_towards_who_forgets_too_soon() {
    let division = Division::default();
    let before = division.record_part();
    (0..1000).for_each(|_| division.record_was_missed(LIMIT));
    let after = division.record_part();
    let moved = (after - before) * 32.0;
    assert!((0.9..1.1).contains(&moved), "a thousand reads of the device move {moved} MiB");
    (0..1000).for_each(|_| division.page_was_missed(LIMIT));
    assert!((division.record_part() - before).abs() < 0.02);
}

#[test]
fn neither_side_loses_everything() {
    let division = Division::default();
    (0..1_000_000).for_each(|_| division.page_was_missed(LIMIT));
    assert!(division.record_part() > 0.03);
    (0..2_000_000).for_each(|_| division.record_was_missed(LIMIT));
    assert!(division.record_part() < 0.97);
}

#[test]
fn who_has_less_than_its_part_gets_more() {
    let division = Division::default();
    division.pages_grew(100);
    assert!(division.are_records_due(50) && !division.are_records_due(51) && !division.are_pages_due(0));
    division.records_grew(100);
    assert!(!division.have_records_more() && !division.are_records_due(1) && !division.are_pages_due(1));
    division.records_grew(100);
    assert!(division.have_records_more() && division.are_pages_due(50) && !division.are_pages_due(51));
}
