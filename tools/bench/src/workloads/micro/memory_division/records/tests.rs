use super::*;

#[test]
fn used_records_are_put_in_again_once_for_each_use() {
    let mut records = Records::new(3, 151);
    (0..3).for_each(|record| records.insert(record));
    assert!(records.touch(0) && records.touch(0) && records.touch(1));
    assert_eq!(records.bytes(), 3 * 151);
    let mut order = Vec::new();
    while records.evict() {
        let gone = (0..3).find(|&record| records.bytes_since_eviction(record) == Some(151));
        order.extend(gone);
    }
    assert_eq!(order, [2, 1, 0]);
    assert_eq!(records.bytes_since_eviction(2), Some(3 * 151));
    assert!(!records.contains(0) && !records.touch(0));
}

#[test]
fn a_record_that_comes_again_has_no_credit_from_before() {
    let mut records = Records::new(2, 151);
    assert!(!records.touch(0));
    records.insert(0);
    records.insert(1);
    assert!(records.evict());
    assert!(!records.contains(0) && records.contains(1));
}
