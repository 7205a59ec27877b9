use super::PartsInOrder;
use crate::ycsb::keys::KeyMaker;

#[test]
fn every_record_comes_once_and_keys_ascend_across_parts() {
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
