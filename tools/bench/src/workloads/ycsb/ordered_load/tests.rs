use super::{PartsInOrder, Preparation, SequentialShare};
use crate::workloads::ycsb::keys::KeyMaker;

#[test]
fn parts_hold_each_record_once_in_key_order() {
    let records = 600_000;
    for keys in [KeyMaker::new(24).unwrap(), KeyMaker::new(11).unwrap()] {
        let numbers: Vec<u64> = PartsInOrder::new(keys, records).flatten().collect();
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..records));
        let (mut previous, mut key) = (Vec::new(), Vec::new());
        for number in numbers {
            keys.write(number, &mut key);
            assert!(previous < key);
            std::mem::swap(&mut previous, &mut key);
        }
    }
}

#[test]
fn threads_partition_the_key_space_of_the_share() {
    let keys = KeyMaker::new(24).unwrap();
    let records = 20_000;
    let share = SequentialShare::new(75).unwrap();
    let of_thread =
        |index| PartsInOrder::of_thread(keys, records, share, (index, 3)).flatten().collect::<Vec<_>>();
    let numbers: Vec<u64> = (0..3).flat_map(of_thread).collect();
    assert!((14_500..15_500).contains(&numbers.len()), "{}", numbers.len());
    assert!(numbers.is_sorted_by_key(|number| keys.position(*number)));
    let directory = tempfile::tempdir().unwrap();
    let preparation = Preparation::new(keys, records, share, 3, directory.path()).unwrap();
    for _ in 0..2 {
        let prepared = (0..3).flat_map(|index| preparation.numbers(index).unwrap()).map(Result::unwrap);
        assert!(prepared.eq(numbers.iter().copied()));
    }
    let mut sorted = numbers;
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq((0..records).filter(|record| share.has(*record))));
    assert!((0..records).all(|record| SequentialShare::ALL.has(record)));
    assert!(SequentialShare::new(0).is_none());
}
