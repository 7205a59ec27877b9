use super::*;

#[test]
fn freed_neighbours_join_into_one_range() {
    let mut space = FreeSpace::from_live(2, 2, std::iter::empty());
    space.grow(100);
    let a = space.take(10).unwrap()[0];
    let b = space.take(10).unwrap()[0];
    let c = space.take(10).unwrap()[0];
    space.release(a.first_page, 10);
    space.release(c.first_page, 10);
    space.release(b.first_page, 10);
    assert_eq!(space.ranges(1), vec![(2, 100)]);
    assert_eq!(space.cut_tail(), Some(2));
    assert_eq!(space.free_pages(), 0);
}

#[test]
fn a_large_request_is_served_from_several_pieces() {
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
    assert_eq!(space.ranges(1), vec![(100, 100)]);
}

#[test]
#[should_panic(expected = "freed twice")]
fn freeing_twice_is_a_bug_that_stops_at_once() {
    let mut space = FreeSpace::default();
    space.grow(10);
    let span = space.take(4).unwrap()[0];
    space.release(span.first_page, 4);
    space.release(span.first_page, 4);
}
