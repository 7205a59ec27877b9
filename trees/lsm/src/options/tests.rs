use super::*;

#[test]
fn pages_are_updated_if_whole_entries_fill_them() {
    let treeline = LsmOptions { updates_pages: true, ..LsmOptions::new() };
    for (entry_bytes, are_updated) in
        [(0, true), (64, true), (124, true), (700, true), (900, true), (1_024, false), (1_500, false)]
    {
        let layout = treeline.bottom_layout(entry_bytes);
        assert_eq!(layout == RunLayout::for_page_updates(), are_updated, "{entry_bytes} bytes");
    }
    assert_eq!(LsmOptions::new().bottom_layout(124), RunLayout::default());
}
