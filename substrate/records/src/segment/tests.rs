//! Records of all lengths, stored contiguously.

use super::*;

#[test]
fn records_of_all_lengths_are_stored_contiguously() {
    let pool = ChunkPool::new(1 << 20);
    let home = Arc::new(Home { pool: Arc::clone(&pool), free_ids: Mutex::new(Vec::new()) });
    let segment = Segment::new(7, Part::Main, pool.take(32 << 10), home);
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
        assert_eq!(segment.value(place, 9).as_deref(), Some(value));
        assert_eq!(segment.value(place, 8), None);
        place += segment.header(place).words();
    }
}

#[test]
fn readers_never_see_a_partially_rewritten_record() {
    let pool = ChunkPool::new(1 << 20);
    let home = Arc::new(Home { pool: Arc::clone(&pool), free_ids: Mutex::new(Vec::new()) });
    let segment = Segment::new(7, Part::Main, pool.take(32 << 10), home);
    // Equal in words, with 49 to 56 bytes.
    let value = |flushes: u32| vec![flushes.to_le_bytes()[0]; 49 + usize_of(u64::from(flushes % 8))];
    fn record(flushes: u32, value: &[u8]) -> Record<'_> {
        Record { tag: 5, keyspace: KeyspaceId(3), flushes, key: b"key", value }
    }
    let first = value(0);
    segment.write(FIRST_PLACE, &record(0, &first));
    let last = 100_000;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut newest = 0;
                while newest < last {
                    let flushes = segment.flushes_of(FIRST_PLACE, KeyspaceId(3), b"key").unwrap();
                    if flushes == CHANGING {
                        continue;
                    }
                    assert!(flushes >= newest);
                    newest = flushes;
                    if let Some(seen) = segment.value(FIRST_PLACE, flushes) {
                        assert_eq!(seen, value(flushes));
                    }
                }
            });
        }
        (1..=last).for_each(|flushes| segment.rewrite(FIRST_PLACE, &record(flushes, &value(flushes))));
    });
    assert_eq!(segment.header(FIRST_PLACE).words(), record(last, &value(last)).words().unwrap());
}

#[test]
fn oversized_keys_and_values_have_no_record_size() {
    let long = vec![0; LENGTH_MAX + 1];
    let record = |key, value| Record { tag: 0, keyspace: KeyspaceId(1), flushes: 0, key, value };
    assert!(record(&long, b"").words().is_none() && record(b"", &long).words().is_none());
    assert!(record(&long[1..], b"").words().is_some());
}

#[test]
fn memory_and_id_are_returned_with_the_last_reference() {
    let pool = ChunkPool::new(1 << 20);
    let home = Arc::new(Home { pool: Arc::clone(&pool), free_ids: Mutex::new(Vec::new()) });
    let segment = Segment::new(7, Part::Main, pool.take(4 << 10), Arc::clone(&home));
    let reader = Arc::clone(&segment);
    drop(segment);
    assert!(home.free_ids.lock().is_empty() && pool.used_bytes() == 4 << 10);
    drop(reader);
    assert!(*home.free_ids.lock() == [7] && pool.used_bytes() == pool.idle_bytes());
}
