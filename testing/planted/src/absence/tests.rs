use std::collections::BTreeSet;

use super::texts_in;

#[test]
fn texts_are_found_at_any_position() {
    let texts = ["ab", "abc", "d", "missing", "c"];
    let found = texts_in(b"xabxxabcd", texts.into_iter());
    assert_eq!(found, BTreeSet::from(["ab", "abc", "c", "d"]));
    assert!(texts_in(b"", texts.into_iter()).is_empty());
}
