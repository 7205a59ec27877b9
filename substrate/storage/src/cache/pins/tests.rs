use super::*;

#[test]
fn a_claim_and_a_pin_keep_each_other_out() {
    let group = Group::new(0);
    group.provide(2);
    let frame = group.frame(0);
    assert!(frame.claim_page().is_none(), "it holds nothing");
    let mut claim = frame.claim_free().unwrap();
    assert!(frame.claim_free().is_none() && frame.claim_page().is_none());
    claim.start_loading(9, RunId(1));
    claim.bytes_mut().fill(5);
    assert!(frame.pin(0, 9, RunId(1)).is_none(), "it is loading");
    let (page, is_awaited) = claim.publish(0);
    assert!(!is_awaited && page.iter().all(|&byte| byte == 5));
    let again = frame.pin(1, 9, RunId(1)).unwrap();
    assert!(frame.pin(1, 8, RunId(1)).is_none() && frame.pin(1, 9, RunId(2)).is_none());
    drop(page);
    assert!(frame.claim_page().is_none());
    drop(again);
    frame.claim_page().unwrap().put_back();
    drop(frame.claim_page().unwrap());
    assert!(frame.pin(0, 9, RunId(1)).is_none(), "it is free");
}

#[test]
fn memory_starts_where_direct_io_can_read() {
    let group = Group::new(0);
    group.provide(3);
    let mut claim = group.frame(2).claim_free().unwrap();
    assert_eq!(claim.bytes_mut().as_ptr().addr() % PAGE_SIZE, 0);
}

#[test]
#[should_panic(expected = "all frames are claimed")]
fn memory_is_not_freed_while_one_frame_may_be_read() {
    let group = Group::new(0);
    group.provide(2);
    let claims = vec![group.frame(0).claim_free().unwrap()];
    group.take_back(claims);
}
