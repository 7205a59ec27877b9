use testudo_base::checksum::hash_key;

use super::{check, may_contain};

/// A filter with remainders of 16 bits over the first 60 of [`hash`], written by an earlier build, in hex.
const WIDE: &str = "\
    020278003c0000025c97292c14c4c0046c9b613814c4c00000ccf9a0880000000000000000000000000000852225e8eb\
    fc03f296ac00008838c8fb775fc107edb600000000f59f2ce10000000037e09a477bccb56e000000000000e5c03bfe66\
    61d7b2000000000000000009fa0000c84d00000000000000000000b078000000000000522ec5b6000000000000000000\
    0000003180ed43009031f077136301001035e04f1fc302000000000000000000e4d700000000cb1b9275767e8c750000\
    d367374f000000000000000000000000d857fd1ff10864d5544c2d2c65dcc3e0ba89f9f6220d7293120b1273a5fad508\
    f50f0000000000006016a6280000000000006fa5aa04cc3670c4594e0000000000000000000000000000000000000000\
    0000000000000000";
const WIDE_KEYS: u64 = 60;

fn hash(number: u64) -> u64 {
    hash_key(&[number.to_le_bytes(), 1u64.to_le_bytes()].concat())
}

fn wide() -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&WIDE[at..at + 2], 16).unwrap();
    (0..WIDE.len()).step_by(2).map(digits).collect()
}

#[test]
fn filters_with_16_bit_remainders_are_probed() {
    let filter = wide();
    assert_eq!(check(&filter), Ok(()));
    assert!((0..WIDE_KEYS).all(|number| may_contain(&filter, hash(number))));
    // Remainders of 8 bits would be wrong about 800 times.
    let wrong = (WIDE_KEYS..WIDE_KEYS + 400_000).filter(|&number| may_contain(&filter, hash(number)));
    assert!(wrong.count() < 20);
}

#[test]
fn damage_to_filters_with_16_bit_remainders_is_tolerated() {
    let filter = wide();
    for bit in 0..filter.len() * 8 {
        let mut damaged = filter.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        for number in 0..2 * WIDE_KEYS {
            may_contain(&damaged, hash(number));
        }
        let _ = check(&damaged);
    }
    for cut in 0..filter.len() {
        assert!((0..WIDE_KEYS).all(|number| may_contain(&filter[..cut], hash(number))), "cut at {cut}");
    }
}
