use super::*;

const STAMP: Stamp = Stamp { payload_bytes: 0, first_seqno: Seqno(1), seqno_count: 1 };

#[test]
fn concurrently_filled_claims_keep_their_positions() {
    let mut empty = EmptyBuffer::new(2 * PAGE_SIZE, false);
    for turn in 0..20u8 {
        let mut active = empty.activate(1, Seqno(1));
        let claims: Vec<Claim> = (0..16).map(|_| active.claim(ClaimSize::of_record(40), STAMP)).collect();
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
fn buffer_memory_is_page_aligned() {
    let mut active = EmptyBuffer::new(1, false).activate(1, Seqno(1));
    assert!(active.has_room(ClaimSize::of_record(PAGE_SIZE)));
    assert!(!active.has_room(ClaimSize::of_record(PAGE_SIZE + 1)));
    drop(active.claim(ClaimSize::of_record(8), STAMP));
    assert_eq!(active.seal().bytes().as_ptr().align_offset(PAGE_SIZE), 0);
}
