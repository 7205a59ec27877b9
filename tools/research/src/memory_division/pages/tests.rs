use super::*;

fn evict(pages: &mut Pages) -> u64 {
    pages.evict(|_| false).expect("there are pages").page
}

#[test]
fn page_used_on_probation_outlives_unused_pages() {
    let mut pages = Pages::new(4);
    for page in 0..3 {
        pages.insert(page, 0);
    }
    assert!(pages.touch(0, 0));
    assert_eq!([evict(&mut pages), evict(&mut pages), evict(&mut pages)], [1, 2, 0]);
    assert!(!pages.touch(0, 0));
    assert_eq!(pages.bytes(), 0);
}

#[test]
fn bytes_since_eviction_include_the_page_itself() {
    let mut pages = Pages::new(3);
    (0..3).for_each(|page| pages.insert(page, 0));
    assert_eq!(pages.bytes_since_eviction(0), None);
    (0..3).for_each(|page| assert_eq!(evict(&mut pages), page));
    assert_eq!(pages.bytes_since_eviction(0), Some(3 * FRAME_BYTES));
    assert_eq!(pages.bytes_since_eviction(2), Some(FRAME_BYTES));
}

#[test]
fn soon_returning_page_enters_the_main_set() {
    let mut pages = Pages::new(4);
    (0..3).for_each(|page| pages.insert(page, 0));
    assert_eq!(evict(&mut pages), 0);
    pages.insert(0, 0);
    pages.insert(3, 0);
    // Probation is evicted first, and page 0 was inserted before page 3.
    assert_eq!([(); 4].map(|()| evict(&mut pages)), [1, 2, 3, 0]);
}

#[test]
fn requests_count_from_insertion_and_spare_a_page_once() {
    let mut pages = Pages::new(2);
    pages.insert(0, 0b1);
    pages.insert(1, 0b1);
    assert!(pages.touch(0, 0b100));
    assert_eq!(pages.asked(0), 0b101);
    let dense = |asked: u64| asked.count_ones() >= 2;
    assert_eq!(pages.evict(dense), Some(Evicted { page: 1, asked: 0b1 }));
    assert_eq!(pages.evict(dense), Some(Evicted { page: 0, asked: 0 }));
    pages.insert(0, 0b10);
    assert_eq!(pages.asked(0), 0b10);
}
