use super::*;

fn list(keys: &[&str]) -> EntryList {
    let mut list = EntryList::default();
    for key in keys {
        let kind = if key.len() > 1 { Kind::Tombstone } else { Kind::Value };
        let value = if kind == Kind::Value { b"value".as_slice() } else { b"" };
        list.push(&Entry { key: key.as_bytes(), kind, value });
    }
    list
}

#[test]
fn a_cursor_stays_within_its_range_in_both_directions() {
    let list = list(&["a", "c", "ee", "g", "i"]);
    let mut cursor = list.cursor(1..4);
    let key = |cursor: &EntryListCursor<'_>| {
        cursor.entry().map(|entry| String::from_utf8(entry.key.to_vec()).unwrap())
    };
    cursor.seek_first().unwrap();
    assert_eq!(key(&cursor).as_deref(), Some("c"));
    cursor.prev().unwrap();
    assert_eq!(key(&cursor), None, "nothing before the range");
    cursor.seek_last().unwrap();
    assert_eq!(key(&cursor).as_deref(), Some("g"));
    cursor.next().unwrap();
    assert_eq!(key(&cursor), None, "nothing after the range");
    for (sought, at_or_after, before) in
        [("a", Some("c"), None), ("c", Some("c"), None), ("d", Some("ee"), Some("c")), ("h", None, Some("g"))]
    {
        cursor.seek(sought.as_bytes()).unwrap();
        assert_eq!(key(&cursor).as_deref(), at_or_after, "from {sought} on");
        cursor.seek_before(sought.as_bytes()).unwrap();
        assert_eq!(key(&cursor).as_deref(), before, "before {sought}");
    }
}

#[test]
fn counts_match_the_entries() {
    let mut list = list(&["a", "bb", "c"]);
    assert_eq!((list.len(), list.tombstones(), list.user_bytes()), (3, 1, 14));
    assert_eq!(list.last().unwrap().key, b"c");
    assert_eq!(list.iter().filter(|entry| entry.kind == Kind::Value).count(), 2);
    list.clear();
    assert!(list.is_empty() && list.user_bytes() == 0 && list.first().is_none());
}
