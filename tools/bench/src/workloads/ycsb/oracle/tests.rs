use super::{Oracle, VERSIONS};

#[test]
fn admits_only_versions_from_before_to_in_flight() {
    let oracle = Oracle::new(100);
    for _ in 0..5 {
        oracle.turn(42).acknowledge();
    }
    let before = oracle.look(42);
    oracle.turn(42).acknowledge();
    oracle.turn(42).acknowledge();
    // 5 before, 7 after, 8 possibly in flight.
    for version in 0..VERSIONS {
        assert_eq!(oracle.admits(42, before, version), (5..=8).contains(&version), "{version}");
    }
}

#[test]
fn versions_wrap_without_affecting_neighbors() {
    let oracle = Oracle::new(100);
    for _ in 0..15 {
        oracle.turn(7).acknowledge();
    }
    let before = oracle.look(7);
    oracle.turn(7).acknowledge();
    assert_eq!(oracle.version(7), 0);
    assert!([15, 0, 1].iter().all(|version| oracle.admits(7, before, *version)));
    assert!([14, 2].iter().all(|version| !oracle.admits(7, before, *version)));
    assert_eq!((oracle.version(6), oracle.version(8)), (0, 0));
}

#[test]
fn read_overtaken_by_many_writes_admits_any_version() {
    let oracle = Oracle::new(100);
    let before = oracle.look(1);
    for _ in 0..8 {
        oracle.turn(1).acknowledge();
    }
    assert!((0..VERSIONS).all(|version| oracle.admits(1, before, version)));
}

#[test]
fn inserts_are_acknowledged_in_order() {
    let oracle = Oracle::new(10);
    let numbers: Vec<u64> = (0..3).map(|_| oracle.reserve_insert()).collect();
    assert_eq!(numbers, [10, 11, 12]);
    oracle.acknowledge_insert(11);
    assert_eq!(oracle.acknowledged(), 10);
    oracle.acknowledge_insert(10);
    assert_eq!(oracle.acknowledged(), 12);
    oracle.acknowledge_insert(12);
    assert_eq!((oracle.acknowledged(), oracle.reserved()), (13, 13));
}

#[test]
fn oracle_adopts_versions_found_in_a_store() {
    let oracle = Oracle::new(0);
    oracle.assume_version(3, 9);
    oracle.assume_version(3_000_000, 15);
    oracle.assume_records(3_000_001);
    assert_eq!((oracle.version(3), oracle.version(3_000_000), oracle.version(4)), (9, 15, 0));
    assert_eq!(oracle.acknowledged(), 3_000_001);
}
