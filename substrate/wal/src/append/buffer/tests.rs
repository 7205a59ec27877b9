use super::*;

#[test]
fn claims_filled_by_many_threads_come_out_in_their_places() {
    let mut empty = EmptyBuffer::new(2 * PAGE_SIZE);
    for turn in 0..20u8 {
        let mut active = empty.activate();
        let claims: Vec<Claim> = (0..16).map(|_| active.claim(40)).collect();
        let mut sealed = active.seal();
        let bytes = std::thread::scope(|scope| {
            for (index, mut claim) in claims.into_iter().enumerate() {
                scope.spawn(move || claim.bytes_mut().fill(u8::try_from(index).unwrap() ^ turn));
            }
            sealed.bytes().to_vec()
        });
        assert_eq!(bytes.len(), PAGE_SIZE);
        for index in 0..16 {
            let expected = u8::try_from(index).unwrap() ^ turn;
            assert!(bytes[index * 40..][..40].iter().all(|&byte| byte == expected));
        }
        assert!(bytes[640..].iter().all(|&byte| byte == 0), "nothing of an earlier turn follows");
        empty = sealed.recycle();
    }
}

#[test]
fn memory_stands_at_a_page() {
    let mut active = EmptyBuffer::new(1).activate();
    assert_eq!(active.free_bytes(), PAGE_SIZE);
    drop(active.claim(8));
    assert_eq!(active.seal().bytes().as_ptr().align_offset(PAGE_SIZE), 0);
}
