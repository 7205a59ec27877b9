use super::*;

fn table() -> Arc<Extents> {
    let extents = Extents::new(0, std::iter::empty(), |_| ());
    extents.grow(100);
    extents
}

#[test]
fn an_unreferenced_extent_is_freed_by_its_last_holder() {
    let extents = table();
    let extent = extents.take(10).unwrap().remove(0);
    let second = Arc::clone(&extent);
    drop(extent);
    assert_eq!(extents.stats().free_bytes, 90 * PAGE_BYTES);
    drop(second);
    assert_eq!(extents.stats().free_bytes, 100 * PAGE_BYTES);
}

#[test]
fn references_and_holders_each_keep_an_extent_live() {
    let extents = table();
    let extent = extents.take(10).unwrap().remove(0);
    let span = extent.span();
    extents.apply_durable([(span, 1)].into_iter());
    drop(extent);
    assert_eq!(extents.stats().live_bytes, 10 * PAGE_BYTES);
    let held = extents.hold(span).unwrap();
    extents.apply_durable([(span, -1)].into_iter());
    assert_eq!(extents.stats().held_bytes, 10 * PAGE_BYTES);
    drop(held);
    assert_eq!(extents.stats().free_bytes, 100 * PAGE_BYTES);
}

#[test]
fn a_shared_extent_is_freed_by_its_last_reference() {
    let extents = table();
    let span = extents.take(5).unwrap().remove(0).span();
    let again = extents.take(5).unwrap().remove(0);
    assert_eq!(again.span(), span, "dropped at once and reused");
    extents.apply_durable([(span, 2)].into_iter());
    drop(again);
    extents.apply_durable([(span, -1)].into_iter());
    assert_eq!(extents.stats().live_bytes, 5 * PAGE_BYTES);
    extents.apply_durable([(span, -1)].into_iter());
    assert_eq!(extents.stats().free_bytes, 100 * PAGE_BYTES);
}

#[test]
fn pages_freed_by_an_edit_are_those_of_all_its_changes_together() {
    let extents = table();
    let extent = extents.take(10).unwrap().remove(0);
    let span = extent.span();
    extents.apply_durable([(span, 2)].into_iter());
    let freed = |deltas: &[(ExtentSpan, i32)]| extents.freed_pages(deltas.iter().copied());
    assert_eq!(freed(&[(span, -1)]), 0, "another reference remains");
    assert_eq!(freed(&[(span, -1), (span, -1)]), 10, "both are dropped");
    assert_eq!(freed(&[(span, -2), (span, 1)]), 0, "a new reference replaces both");
    let new = extents.take(4).unwrap().remove(0);
    assert_eq!(freed(&[(span, -2), (new.span(), 1)]), 6);
    let short = extents.shorten_later(&extent, 3);
    assert_eq!(freed(&[(span, -2), (short.span(), 1)]), 7, "the first pages stay");
}

#[test]
fn shortening_frees_the_tail_at_once() {
    let extents = table();
    let extent = extents.take(40).unwrap().remove(0);
    let extent = extents.shorten(extent, 3);
    assert_eq!(extents.stats().free_bytes, 97 * PAGE_BYTES);
    drop(extent);
    assert_eq!(extents.stats().free_bytes, 100 * PAGE_BYTES);
}

#[test]
fn a_referenced_extent_is_shortened_when_the_edit_is_durable() {
    for is_held_on in [false, true] {
        let extents = table();
        let extent = extents.take(40).unwrap().remove(0);
        let span = extent.span();
        extents.apply_durable([(span, 1)].into_iter());
        let short = extents.shorten_later(&extent, 3);
        assert_eq!(extents.stats().free_bytes, 60 * PAGE_BYTES, "not shortened yet");
        extents.apply_durable([(span, -1), (short.span(), 1)].into_iter());
        assert_eq!(extents.stats().live_bytes, 3 * PAGE_BYTES);
        assert_eq!(extents.stats().free_bytes, 97 * PAGE_BYTES);
        drop(extent);
        let short_span = short.span();
        let kept = Some(short).filter(|_| is_held_on);
        assert_eq!(extents.stats().live_bytes, 3 * PAGE_BYTES);
        extents.apply_durable([(short_span, -1)].into_iter());
        drop(kept);
        assert_eq!(extents.stats().free_bytes, 100 * PAGE_BYTES);
    }
}

#[test]
fn an_extent_whose_shortening_was_abandoned_is_freed_completely() {
    let extents = table();
    let extent = extents.take(40).unwrap().remove(0);
    let span = extent.span();
    extents.apply_durable([(span, 1)].into_iter());
    drop(extents.shorten_later(&extent, 3));
    extents.apply_durable([(span, -1)].into_iter());
    drop(extent);
    assert_eq!(extents.stats().free_bytes, 100 * PAGE_BYTES);
}

#[test]
fn recovery_frees_the_gaps_between_live_extents() {
    let live = [
        (ExtentSpan { first_page: 10, page_count: 10 }, 1),
        (ExtentSpan { first_page: 30, page_count: 5 }, 2),
    ];
    let extents = Extents::new(50, live.into_iter(), |_| ());
    let stats = extents.stats();
    assert_eq!((stats.live_bytes, stats.free_bytes), (15 * PAGE_BYTES, 35 * PAGE_BYTES));
    assert_eq!(extents.references(), live.to_vec());
}
