//! Keys of maximum length: only ends of ranges can be between adjacent ones.

use testudo_base::MAX_KEY_BYTES;

use super::*;

fn key(number: u64) -> Vec<u8> {
    let mut key = format!("{number:04}").into_bytes();
    key.resize(MAX_KEY_BYTES, b'k');
    if number.is_multiple_of(3) {
        *key.last_mut().unwrap() = 0xFF;
    }
    key
}

#[test]
fn longest_keys_survive_merges_moves_and_reopening() {
    for (seed, options) in [(1, options(200_000, 2, 1)), (2, options(1 << 20, 4, 2))] {
        let mut random = SplitMix::new(seed);
        let mut bed = Bed::new(options);
        let mut found = RunsByAge::new();
        for round in 0..12 {
            let delete_percent = if round % 4 == 3 { 70 } else { 20 };
            let numbers = (0..8).map(|_| random.below(60)).collect::<Vec<_>>();
            let value = |random: &mut SplitMix| {
                (!random.percent(delete_percent)).then(|| random.next_u64().to_be_bytes().to_vec())
            };
            bed.apply(numbers.iter().map(|number| (key(*number), value(&mut random))).collect());
            bed.reopen();
            if random.percent(30) {
                bed.run_jobs();
                bed.reopen();
            }
            bed.check_runs(&mut found);
            for number in 0..60 {
                assert_eq!(bed.get(&key(number)), bed.model.get(&key(number)).cloned(), "{number}");
            }
        }
    }
}
