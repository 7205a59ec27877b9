use super::*;

#[test]
fn newest_visible_version_is_found_in_a_list() {
    let mut list = Vec::new();
    begin_list(&mut list);
    push_version(&mut list, Seqno(9), Kind::Tombstone, b"");
    push_version(&mut list, Seqno(5), Kind::Value, b"five");
    push_version(&mut list, Seqno(2), Kind::Operands, b"two");
    assert_eq!(versions_of(&list), Ok(KeyVersions::Here));
    let seen = |at| visible_at(&list, Seqno(at)).unwrap().map(|(kind, range)| (kind, &list[range]));
    assert_eq!(seen(1), None);
    assert_eq!(seen(2), Some((Kind::Operands, &b"two"[..])));
    assert_eq!(seen(8), Some((Kind::Value, &b"five"[..])));
    assert_eq!(seen(u64::MAX), Some((Kind::Tombstone, &b""[..])));
    for end in 0..list.len() {
        let _ = versions_of(&list[..end]);
        let _ = visible_at(&list[..end], Seqno(3));
    }
    list[9] = 99;
    assert!(visible_at(&list, Seqno(3)).is_err(), "unknown kind");
}

#[test]
fn versions_stored_apart_sort_newest_first() {
    let mut apart = Vec::new();
    encode_apart(&mut apart, 7);
    assert_eq!(versions_of(&apart), Ok(KeyVersions::Apart(7)));
    let keys = [(6, 1), (7, 300), (7, 2), (7, 1), (8, 9)].map(|(number, at)| version_key(number, Seqno(at)));
    assert!(keys.is_sorted());
    assert_eq!(keys.map(|key| is_version_of(&key, 7)), [false, true, true, true, false]);
}
