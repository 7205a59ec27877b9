use super::*;

#[test]
fn separator_is_between_its_neighbors() {
    for (left, right) in [("a", "b"), ("abc", "abd"), ("ab", "abc"), ("user123", "user9"), ("", "x")] {
        let s = separator(left.as_bytes(), right.as_bytes());
        assert!(left.as_bytes() < s.as_slice() && s.as_slice() <= right.as_bytes(), "{left} {right}");
    }
}

#[test]
fn common_prefix_agrees_with_a_byte_loop() {
    for length in 0..40 {
        let a: Vec<u8> = (0..length).collect();
        for change in 0..usize::from(length) {
            let mut b = a.clone();
            b[change] ^= 0x80;
            assert_eq!(common_prefix(&a, &b), change);
        }
        assert_eq!(common_prefix(&a, &a), usize::from(length));
    }
}

#[test]
fn prefix_end_skips_trailing_ff() {
    assert_eq!(prefix_end(b"a\xff"), Some(b"b".to_vec()));
    assert_eq!(prefix_end(b"\xff\xff"), None);
    assert_eq!(prefix_end(b""), None);
}
