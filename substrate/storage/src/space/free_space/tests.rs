use super::*;

#[test]
fn freed_neighbors_merge_into_one_range() {
    let mut space = FreeSpace::from_live(2, 2, std::iter::empty());
    space.grow(100);
    let a = space.take(10).unwrap()[0];
    let b = space.take(10).unwrap()[0];
    let c = space.take(10).unwrap()[0];
    space.release(a.first_page, 10);
    space.release(c.first_page, 10);
    space.release(b.first_page, 10);
    assert_eq!(space.ranges(), vec![(2, 100)]);
    assert_eq!(space.give_up(0, Spans::large(10)), Vec::new());
    assert_eq!((space.free_pages(), space.end_page()), (0, 2));
}

#[test]
fn a_large_request_is_served_from_several_spans() {
    let mut space = FreeSpace::from_live(
        0,
        100,
        [ExtentSpan { first_page: 30, page_count: 1 }, ExtentSpan { first_page: 60, page_count: 1 }]
            .into_iter(),
    );
    let spans = space.take(80).unwrap();
    assert_eq!(spans.iter().map(|s| u64::from(s.page_count)).sum::<u64>(), 80);
    assert_eq!(space.free_pages(), 18);
    assert!(space.take(19).is_none());
}

#[test]
fn best_fit_leaves_large_ranges_whole() {
    let mut space = FreeSpace::from_live(0, 200, [ExtentSpan { first_page: 20, page_count: 80 }].into_iter());
    assert_eq!(space.take(20).unwrap(), vec![ExtentSpan { first_page: 0, page_count: 20 }]);
    assert_eq!(space.ranges(), vec![(100, 100)]);
}

#[test]
#[should_panic(expected = "freed twice")]
fn freeing_twice_panics() {
    let mut space = FreeSpace::default();
    space.grow(10);
    let span = space.take(4).unwrap()[0];
    space.release(span.first_page, 4);
    space.release(span.first_page, 4);
}

/// Of 20 segments of 100 pages the first page is used: free ranges of 99 pages.
fn comb() -> FreeSpace {
    let live = (0..20).map(|tooth| ExtentSpan { first_page: tooth * 100, page_count: 1 });
    FreeSpace::from_live(0, 2000, live)
}

#[test]
fn the_tail_of_the_file_is_released_first_then_the_largest_ranges() {
    let mut space = comb();
    space.release(500, 1);
    assert_eq!(
        space.give_up(1980, Spans::large(10)),
        vec![],
        "1981 pages are free, and the surplus at the end"
    );
    assert_eq!((space.free_pages(), space.end_page()), (1980, 1999));
    assert_eq!(space.give_up(1800, Spans::large(10)), vec![(518, 82)]);
    assert_eq!((space.free_pages(), space.hole_pages(), space.end_page()), (1800, 82, 1901));
    assert_eq!(space.give_up(0, Spans::large(2)).len(), 2, "at most two spans");
    while !space.give_up(0, Spans::large(100)).is_empty() {}
    assert!(space.ranges().iter().all(|(_, length)| *length < Spans::LEAST_PAGES), "{space:?}");
}

#[test]
fn holes_are_allocated_once_they_have_space_again() {
    let mut space = comb();
    assert_eq!(space.give_up(0, Spans::large(100)).len(), 19);
    assert_eq!((space.free_pages(), space.hole_pages(), space.end_page()), (0, 19 * 99, 1901));
    assert_eq!(space.take(1), None);
    assert_eq!(space.take_hole(50), Some((1, 50)));
    assert_eq!(space.take_hole(200).map(|(_, pages)| pages), Some(99), "the largest hole");
    space.put_hole((1, 50));
    assert_eq!(space.take_hole(99), Some((1, 99)));
    space.release(1, 99);
    assert_eq!(space.take(99).unwrap(), vec![ExtentSpan { first_page: 1, page_count: 99 }]);
    while let Some((start, pages)) = space.take_hole(1000) {
        space.release(start, pages);
    }
    assert_eq!((space.free_pages(), space.hole_pages()), (17 * 99, 0));
}

#[test]
fn spans_that_were_not_released_are_free_again() {
    let mut space = comb();
    let spans = space.give_up(0, Spans::large(100));
    space.release(100, 1);
    let (free, holes) = (space.free_pages(), space.hole_pages());
    for span in &spans[..3] {
        space.restore(*span);
    }
    let restored: u64 = spans[..3].iter().map(|(_, pages)| pages).sum();
    assert_eq!((space.free_pages(), space.hole_pages()), (free + restored, holes - restored));
}

#[test]
fn a_large_range_is_released_in_spans_and_restored_in_part() {
    let mut space =
        FreeSpace::from_live(0, 10_000, [ExtentSpan { first_page: 9_999, page_count: 1 }].into_iter());
    let spans = space.give_up(0, Spans::large(100));
    assert_eq!(spans, vec![(5903, 4096), (1807, 4096), (0, 1807)]);
    space.restore(spans[1]);
    assert_eq!((space.free_pages(), space.hole_pages()), (4096, 5903));
    assert_eq!(space.take_hole(10_000), Some((5903, 4096)));
}

#[test]
fn holes_at_the_end_of_the_file_are_cut_with_it() {
    let mut space = comb();
    space.give_up(0, Spans::large(100));
    space.release(1900, 1);
    space.give_up(0, Spans::large(100));
    assert_eq!((space.end_page(), space.hole_pages()), (1801, 18 * 99));
}

#[test]
#[should_panic(expected = "freed twice")]
fn freeing_a_hole_panics() {
    let mut space = comb();
    space.give_up(0, Spans::large(100));
    space.release(120, 1);
}

#[test]
fn single_page_fragments_are_used_only_when_space_is_short() {
    let live = (0..40).map(|at| ExtentSpan { first_page: 2 * at, page_count: 1 });
    let mut space = FreeSpace::from_live(0, 80, live);
    assert_eq!((space.free_pages(), space.take(2)), (40, None));
    let spans = space.take_fragments(40).unwrap();
    assert_eq!(spans.len(), 40);
    assert!(spans.iter().all(|span| span.page_count == 1 && span.first_page % 2 == 1), "{spans:?}");
    assert_eq!((space.free_pages(), space.take_fragments(1)), (0, None));
}

#[test]
fn fragments_are_allocated_from_the_largest_ranges() {
    let live = [3, 5, 12].into_iter().map(|first_page| ExtentSpan { first_page, page_count: 1 });
    let mut space = FreeSpace::from_live(0, 14, live);
    let span = |first_page, page_count| ExtentSpan { first_page, page_count };
    assert_eq!(space.take_fragments(8).unwrap(), vec![span(0, 2), span(6, 6)]);
    assert_eq!(space.ranges(), vec![(2, 1), (4, 1), (13, 1)]);
}

#[test]
fn a_request_uses_at_most_the_maximum_number_of_fragments() {
    let live = (0..=1024).map(|at| ExtentSpan { first_page: 2 * at, page_count: 1 });
    let mut space = FreeSpace::from_live(0, 2050, live);
    assert_eq!((space.free_pages(), space.take_fragments(1025)), (1025, None));
    assert_eq!(space.take_fragments(1024).map(|spans| spans.len()), Some(MAX_FRAGMENTS));
}

#[test]
fn a_full_device_gets_single_pages_released() {
    let live = (0..40).map(|at| ExtentSpan { first_page: 2 * at + 1, page_count: 1 });
    let mut space = FreeSpace::from_live(0, 80, live);
    assert_eq!(space.give_up(0, Spans::large(100)), vec![], "no range is worth a hole");
    assert_eq!(space.give_up(30, Spans::ALL).len(), 10);
    assert_eq!((space.free_pages(), space.hole_pages()), (30, 10));
    assert_eq!(space.give_up(0, Spans::ALL).len(), 30);
    assert_eq!((space.free_pages(), space.hole_pages(), space.take_fragments(1)), (0, 40, None));
    assert_eq!(space.take_hole(5).map(|(_, pages)| pages), Some(1));
}
