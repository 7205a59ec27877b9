//! Records of all lengths, side by side.

use super::*;

#[test]
fn records_of_all_lengths_stand_side_by_side() {
    let pool = ChunkPool::new(1 << 20);
    let home = Arc::new(Home { pool: Arc::clone(&pool), free_ids: Mutex::new(Vec::new()) });
    let segment = Segment::new(7, pool.take(32 << 10), home);
    let text: Vec<u8> = (0..=255).collect();
    let record = |i: usize| Record {
        tag: u32::try_from(i).unwrap(),
        keyspace: KeyspaceId(3),
        flushes: 9,
        key: &text[..i % 29],
        value: &text[i % 7..i % 50 + 7],
    };
    let mut place = FIRST_PLACE;
    for i in 0..200 {
        segment.write(place, &record(i));
        place += record(i).words().unwrap();
    }
    let mut place = FIRST_PLACE;
    for i in 0..200 {
        let Record { tag, key, value, .. } = record(i);
        assert_eq!(segment.header(place).tag, tag);
        assert_eq!(segment.header(place).words(), record(i).words().unwrap());
        assert_eq!(segment.flushes_of(place, KeyspaceId(3), key), Some(9));
        assert_eq!(segment.flushes_of(place, KeyspaceId(4), key), None);
        assert_eq!(segment.flushes_of(place, KeyspaceId(3), &text[..key.len() + 1]), None);
        if let Some((_, shorter)) = key.split_first() {
            assert_eq!(segment.flushes_of(place, KeyspaceId(3), shorter), None);
            let mut other = key.to_vec();
            *other.last_mut().unwrap() ^= 1;
            assert_eq!(segment.flushes_of(place, KeyspaceId(3), &other), None);
        }
        assert_eq!(segment.value(place), value);
        place += segment.header(place).words();
    }
}

#[test]
fn what_is_too_long_is_not_a_record() {
    let long = vec![0; LENGTH_MAX + 1];
    let record = |key, value| Record { tag: 0, keyspace: KeyspaceId(1), flushes: 0, key, value };
    assert!(record(&long, b"").words().is_none() && record(b"", &long).words().is_none());
    assert!(record(&long[1..], b"").words().is_some());
}

#[test]
fn memory_and_number_go_home_with_the_last_holder() {
    let pool = ChunkPool::new(1 << 20);
    let home = Arc::new(Home { pool: Arc::clone(&pool), free_ids: Mutex::new(Vec::new()) });
    let segment = Segment::new(7, pool.take(4 << 10), Arc::clone(&home));
    let reader = Arc::clone(&segment);
    drop(segment);
    assert!(home.free_ids.lock().is_empty() && pool.used_bytes() == 4 << 10);
    drop(reader);
    assert!(*home.free_ids.lock() == [7] && pool.used_bytes() == pool.idle_bytes());
}
