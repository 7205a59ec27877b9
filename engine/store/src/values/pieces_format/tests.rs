use super::*;

#[test]
fn pieces_cover_a_value_once() {
    for length in [1, 65_535, 65_536, 65_537, 200_000, u32::MAX] {
        let bytes: u64 = (0..piece_count(length)).map(|piece| u64_of(piece_len(length, piece))).sum();
        assert_eq!(bytes, u64::from(length));
        assert_eq!(piece_at(u64::from(length) - 1), piece_count(length) - 1);
    }
    assert_eq!(piece_count(0), 0);
}

#[test]
fn keys_identify_value_and_piece() {
    assert_eq!(value_of_head(&head_key(7)), Some(7));
    assert_eq!(value_of_head(&piece_key(7, 1)), None);
    assert!(is_piece_of(7, &piece_key(7, 1)) && !is_piece_of(7, &piece_key(8, 1)));
    assert!(!is_piece_of(7, &head_key(7)));
    assert!(head_key(u64::MAX) < heads_end() && heads_end() < piece_key(0, 0));
    let head = PiecesHead { keyspace: "k".to_owned(), length: 9, key: b"key".to_vec() };
    assert_eq!(PiecesHead::decode(&head.encode()).unwrap(), head);
    assert!(PiecesHead::decode(b"short").is_err());
}
