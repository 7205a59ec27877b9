use super::*;

#[test]
fn clock_reinserts_a_record_once_per_use() {
    let mut records = Records::new(3, 151, false);
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
fn probation_protects_used_records_from_unused_ones() {
    for has_probation in [true, false] {
        let mut records = Records::new(1000, 151, has_probation);
        for record in 0..50 {
            records.insert(record);
            assert!(records.touch(record));
        }
        // One use is one turn of the clock.
        for record in 50..1000 {
            records.insert(record);
            while records.bytes() > 100 * 151 {
                assert!(records.evict());
            }
        }
        let kept = (0..50).filter(|record| records.contains(*record)).count();
        assert_eq!(kept, if has_probation { 50 } else { 0 });
    }
}

#[test]
fn soon_returning_record_enters_the_main_set_without_credit() {
    let mut records = Records::new(2, 151, true);
    assert!(!records.touch(0));
    records.insert(0);
    records.insert(1);
    assert!(records.evict());
    assert!(!records.contains(0) && records.contains(1));
    records.insert(0);
    assert!(records.main.contains(&0));
    assert!(records.evict() && !records.contains(1));
    assert!(records.evict() && !records.contains(0));
}
