use super::*;

fn evict(pages: &mut Pages) -> u64 {
    pages.evict(|_| false).expect("there are pages").page
}

#[test]
fn a_page_that_was_used_on_probation_outlives_those_that_were_not() {
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
fn evicted_bytes_are_counted_from_the_page_that_went() {
    let mut pages = Pages::new(3);
    (0..3).for_each(|page| pages.insert(page, 0));
    assert_eq!(pages.bytes_since_eviction(0), None);
    (0..3).for_each(|page| assert_eq!(evict(&mut pages), page));
    assert_eq!(pages.bytes_since_eviction(0), Some(3 * FRAME_BYTES));
    assert_eq!(pages.bytes_since_eviction(2), Some(FRAME_BYTES));
}

#[test]
fn a_page_that_returns_soon_belongs_to_the_main_set() {
    let mut pages = Pages::new(4);
    (0..3).for_each(|page| pages.insert(page, 0));
    assert_eq!(evict(&mut pages), 0);
    pages.insert(0, 0);
    pages.insert(3, 0);
    // Probation goes first, and page 0 came before page 3.
    assert_eq!([(); 4].map(|()| evict(&mut pages)), [1, 2, 3, 0]);
}

#[test]
fn asked_records_are_those_since_the_page_came_and_keep_it_once() {
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
