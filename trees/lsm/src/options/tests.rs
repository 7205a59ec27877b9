use super::*;

fn treeline() -> LsmOptions {
    LsmOptions { updates_pages: true, ..LsmOptions::new() }
}

#[test]
fn pages_are_updated_if_whole_entries_fill_three_quarters() {
    let spaced = Some(RunLayout::for_page_updates(PAGE_FILL_PERCENT));
    let full = Some(RunLayout::for_page_updates(100));
    let layouts = [
        (0, spaced),
        (64, spaced),
        (124, spaced),
        (700, spaced),
        (900, spaced),
        (960, full),
        (1_024, full),
        (1_048, full),
        (1_300, full),
        (1_400, None),
        (1_500, full),
        (2_000, full),
        (2_100, None),
        (3_100, full),
        (4_000, full),
        (4_100, None),
        (100_000, None),
    ];
    let direct = LsmOptions { flushes_directly: true, ..treeline() };
    for (entry_bytes, expected) in layouts {
        assert_eq!(direct.page_layout(entry_bytes), expected, "{entry_bytes} bytes");
        assert_eq!(direct.updates_pages_of(entry_bytes), expected.is_some(), "{entry_bytes} bytes");
        let staged = expected.filter(|layout| Some(*layout) != full);
        assert_eq!(treeline().page_layout(entry_bytes), staged, "{entry_bytes} bytes");
    }
    assert_eq!(treeline().bottom_layout(1_400), RunLayout::default());
    assert_eq!(LsmOptions::new().bottom_layout(124), RunLayout::default());
}

#[test]
fn free_space_in_pages_is_an_option() {
    let half = LsmOptions { page_fill_percent: 50, flushes_directly: true, ..treeline() };
    assert_eq!(half.bottom_layout(124), RunLayout::for_page_updates(50).with_spares());
    assert_eq!(half.bottom_layout(1_024), RunLayout::for_page_updates(100), "one of three would fit");
    assert!(
        [49, 101]
            .iter()
            .all(|percent| { LsmOptions { page_fill_percent: *percent, ..treeline() }.validate().is_err() })
    );
}
