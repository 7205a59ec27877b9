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
    assert_eq!(space.ranges(), vec![(2, 100)]);
    assert_eq!(space.give_up(0, 1, 10), Vec::new());
    assert_eq!((space.free_pages(), space.end_page()), (0, 2));
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
    assert_eq!(space.ranges(), vec![(100, 100)]);
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

/// Of 200 pages every tenth is taken: ranges of nine.
fn comb() -> FreeSpace {
    let live = (0..20).map(|tooth| ExtentSpan { first_page: tooth * 10, page_count: 1 });
    FreeSpace::from_live(0, 200, live)
}

#[test]
fn the_end_of_the_file_is_given_up_first_then_the_largest_ranges() {
    let mut space = comb();
    space.release(50, 1);
    assert_eq!(space.give_up(180, 4, 10), vec![], "181 pages are free, and the surplus at the end");
    assert_eq!((space.free_pages(), space.end_page()), (180, 199));
    assert_eq!(space.give_up(160, 4, 10), vec![(48, 12)]);
    assert_eq!((space.free_pages(), space.end_page()), (160, 191));
    assert_eq!(space.give_up(0, 4, 2).len(), 2, "no more at once");
    assert_eq!(space.give_up(0, 10, 100), vec![], "none is large enough: {space:?}");
}

#[test]
fn holes_are_taken_when_they_have_space_again() {
    let mut space = comb();
    assert_eq!(space.give_up(0, 1, 100).len(), 19);
    assert_eq!((space.free_pages(), space.end_page()), (0, 191));
    assert_eq!(space.take(1), None);
    assert_eq!(space.take_hole(5), Some((1, 5)));
    assert_eq!(space.take_hole(20), Some((6, 4)), "none is so large");
    space.put_hole((6, 4));
    space.put_hole((1, 5));
    assert_eq!(space.take_hole(9), Some((1, 9)));
    space.release(1, 9);
    assert_eq!(space.take(9).unwrap(), vec![ExtentSpan { first_page: 1, page_count: 9 }]);
    while let Some((start, pages)) = space.take_hole(100) {
        space.release(start, pages);
    }
    assert_eq!(space.free_pages(), 18 * 9);
}

#[test]
fn holes_at_the_end_go_with_it() {
    let mut space = comb();
    space.give_up(0, 1, 100);
    space.release(190, 1);
    space.give_up(0, 1, 100);
    assert_eq!(space.end_page(), 181);
}

#[test]
#[should_panic(expected = "freed twice")]
fn freeing_a_hole_is_a_bug_that_stops_at_once() {
    let mut space = comb();
    space.give_up(0, 1, 100);
    space.release(12, 1);
}
