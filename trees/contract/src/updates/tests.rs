use super::*;

#[test]
fn borders_are_sorted_and_no_longer_than_a_key() {
    for shared in [0, 5, MAX_KEY_BYTES - 20, MAX_KEY_BYTES - 8, MAX_KEY_BYTES - 6, MAX_KEY_BYTES - 1] {
        let key = |byte: u8| {
            let mut key = vec![7; shared];
            key.resize((shared + 8).min(MAX_KEY_BYTES), byte);
            key
        };
        let (first, last) = (key(1), key(200));
        let borders = keys_between(&first, &last);
        assert!(borders.len() > 1, "{shared}: {}", borders.len());
        assert!(borders.is_sorted_by(|one, next| one < next), "{shared}");
        assert!(borders.iter().all(|border| *border > first && *border <= last), "{shared}");
        assert!(borders.iter().all(|border| border.len() <= MAX_KEY_BYTES), "{shared}");
    }
    assert!(keys_between(b"a", b"a").is_empty());
}
