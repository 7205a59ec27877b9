use std::cmp::Ordering;

use super::{Model, compare, write_value};
use crate::report::complaints::Complaints;

fn value(key: &[u8], operation: u64, bytes: usize) -> Vec<u8> {
    let mut value = vec![0; bytes];
    write_value(key, operation, &mut value);
    value
}

fn model() -> Model {
    let mut model = Model::default();
    model.put(b"a", 1, 10);
    model.put(b"b", 2, 300);
    model.put(b"c", 3, 0);
    model.put(b"a", 4, 20);
    model.delete(b"c");
    model.delete(b"never");
    model.put(b"d", 5, 0);
    model
}

#[test]
fn only_the_newest_write_is_correct() {
    let model = model();
    assert_eq!((model.len(), model.live_bytes()), (3, 323));
    assert!(model.judge(b"a", Some(&value(b"a", 4, 20))).is_ok());
    assert!(model.judge(b"a", Some(&value(b"a", 1, 20))).is_err());
    assert!(model.judge(b"a", Some(&value(b"a", 4, 19))).is_err());
    assert!(model.judge(b"a", None).is_err());
    assert!(model.judge(b"c", None).is_ok());
    assert!(model.judge(b"c", Some(b"")).is_err());
    assert!(model.judge(b"d", Some(b"")).is_ok());
}

fn complaints_of(entries: &[(&[u8], Vec<u8>)]) -> (u64, u64) {
    let model = model();
    let (forwards, backwards) = (Complaints::default(), Complaints::default());
    let pairs = entries.iter().map(|(key, value)| Ok((key.to_vec(), value.clone())));
    compare(pairs.clone(), model.live.iter(), Ordering::is_lt, &forwards).unwrap();
    compare(pairs.rev(), model.live.iter().rev(), Ordering::is_gt, &backwards).unwrap();
    (forwards.count(), backwards.count())
}

#[test]
fn scans_are_compared_entry_by_entry_in_both_directions() {
    let (a, b, d) = (value(b"a", 4, 20), value(b"b", 2, 300), Vec::new());
    assert_eq!(complaints_of(&[(b"a", a.clone()), (b"b", b.clone()), (b"d", d.clone())]), (0, 0));
    assert_eq!(complaints_of(&[(b"a", a.clone()), (b"d", d.clone())]), (1, 1), "b is missing");
    assert_eq!(complaints_of(&[(b"a", a.clone()), (b"b", b.clone())]), (1, 1), "d is missing");
    let with_extra = [(b"a" as &[u8], a.clone()), (b"b", b), (b"c", d.clone()), (b"d", d.clone()), (b"e", d)];
    assert_eq!(complaints_of(&with_extra), (2, 2), "c and e are extra");
    assert_eq!(complaints_of(&[(b"a", a)]), (2, 2));
    assert_eq!(complaints_of(&[]), (3, 3));
}
