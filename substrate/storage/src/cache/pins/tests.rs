use super::*;

#[test]
fn claims_and_pins_exclude_each_other() {
    let group = Group::new(0);
    group.provide(2);
    let frame = group.frame(0);
    assert!(frame.claim_page().is_none(), "the frame has no page");
    let mut claim = frame.claim_free().unwrap();
    assert!(frame.claim_free().is_none() && frame.claim_page().is_none());
    claim.start_loading(9, RunId(1));
    claim.bytes_mut().fill(5);
    assert!(frame.pin(0, 9, RunId(1)).is_none(), "the page is being loaded");
    let (page, is_awaited) = claim.publish(0);
    assert!(!is_awaited && page.iter().all(|&byte| byte == 5));
    let again = frame.pin(1, 9, RunId(1)).unwrap();
    assert!(frame.pin(1, 8, RunId(1)).is_none() && frame.pin(1, 9, RunId(2)).is_none());
    drop(page);
    assert!(frame.claim_page().is_none());
    drop(again);
    frame.claim_page().unwrap().put_back();
    drop(frame.claim_page().unwrap());
    assert!(frame.pin(0, 9, RunId(1)).is_none(), "the frame is free");
}

#[test]
fn frame_memory_is_aligned_for_direct_io() {
    let group = Group::new(0);
    group.provide(3);
    let mut claim = group.frame(2).claim_free().unwrap();
    assert_eq!(claim.bytes_mut().as_ptr().addr() % PAGE_SIZE, 0);
}

#[test]
#[should_panic(expected = "all frames must be claimed")]
fn memory_is_not_freed_while_a_frame_is_unclaimed() {
    let group = Group::new(0);
    group.provide(2);
    let claims = vec![group.frame(0).claim_free().unwrap()];
    group.take_back(claims);
}
