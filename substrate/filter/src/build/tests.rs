use std::convert::Infallible;

use testudo_base::{checksum::hash_key, num::u64_of};

use super::{build, partition_count, partition_of};
use crate::{PARTITION_BYTES, check, may_contain};

fn hashes(count: u64, salt: u64) -> Vec<u64> {
    (0..count).map(|i| hash_key(&[i.to_le_bytes(), salt.to_le_bytes()].concat())).collect()
}

/// A filter with access to its partitions.
struct Filter {
    bytes: Vec<u8>,
    partitions: u32,
}

impl Filter {
    fn new(hashes: &[u64]) -> Self {
        let mut bytes = Vec::new();
        let Ok(partitions) = build(hashes, |partition| {
            bytes.extend_from_slice(partition);
            Ok::<(), Infallible>(())
        });
        assert_eq!(partitions, partition_count(u64_of(hashes.len())));
        if partitions == 1 {
            assert!(bytes.len() <= PARTITION_BYTES);
        } else {
            assert_eq!(bytes.len(), partitions as usize * PARTITION_BYTES);
        }
        for partition in bytes.chunks(PARTITION_BYTES) {
            assert_eq!(check(partition), Ok(()));
        }
        Self { bytes, partitions }
    }

    fn may_contain(&self, hash: u64) -> bool {
        let start = partition_of(hash, self.partitions) as usize * PARTITION_BYTES;
        let end = (start + PARTITION_BYTES).min(self.bytes.len());
        may_contain(&self.bytes[start..end], hash)
    }

    fn error_rate(&self, absent: &[u64]) -> f64 {
        absent.iter().filter(|&&hash| self.may_contain(hash)).count() as f64 / absent.len() as f64
    }
}

#[test]
fn every_key_is_found_at_every_size() {
    for count in [0, 1, 2, 10, 55, 59, 64, 100, 1000, 2900, 2976, 2977, 6000, 50_000, 500_000] {
        let present = hashes(count, 1);
        let filter = Filter::new(&present);
        assert!(present.iter().all(|&hash| filter.may_contain(hash)), "{count} keys");
    }
}

#[test]
fn every_key_is_found_at_each_small_size() {
    for count in 0..400 {
        let present = hashes(count, 7);
        let filter = Filter::new(&present);
        assert!(present.iter().all(|&hash| filter.may_contain(hash)), "{count} keys");
        assert!(filter.error_rate(&hashes(2000, 8)) < 0.02, "{count} keys");
    }
}

#[test]
fn every_key_is_found_under_skewed_hashes() {
    let shapes: [fn(u64) -> u64; 7] = [
        |hash| hash | 0xffff_ffff_0000_0000,
        |hash| hash & 0xffff_ffff,
        |hash| hash & 0xffff_ffff_0000_0000,
        |hash| hash | 0xffff_ffff,
        |_| 0xdead_beef_dead_beef,
        |hash| hash & 0xff,
        |hash| hash & 0x0000_00ff_ffff_ffff,
    ];
    for (at, shape) in shapes.iter().enumerate() {
        for count in [10, 1000, 2900, 50_000] {
            let present: Vec<u64> = hashes(count, 1).into_iter().map(shape).collect();
            let filter = Filter::new(&present);
            assert!(present.iter().all(|&hash| filter.may_contain(hash)), "shape {at}, {count} keys");
        }
    }
}

#[test]
fn equal_hashes_take_one_slot() {
    let filter = Filter::new(&vec![hash_key(b"same"); 2000]);
    assert!(filter.may_contain(hash_key(b"same")));
    assert!(filter.error_rate(&hashes(20_000, 2)) < 0.001);
}

#[test]
fn an_empty_filter_denies_everything() {
    let filter = Filter::new(&[]);
    assert!(filter.bytes.len() < 16);
    assert_eq!(filter.error_rate(&hashes(1000, 2)), 0.0);
}

#[test]
fn the_false_positive_rate_is_about_four_in_a_thousand() {
    for count in [500, 2900, 50_000, 200_000] {
        let filter = Filter::new(&hashes(count, 1));
        let rate = filter.error_rate(&hashes(200_000, 2));
        assert!(rate < 0.006, "{count} keys err on {rate}");
    }
}

#[test]
fn size_is_proportional_to_the_number_of_keys() {
    let bits = |count| Filter::new(&hashes(count, 1)).bytes.len() as f64 * 8.0 / count as f64;
    assert!(bits(50_000) < 11.8, "{} bits per key", bits(50_000));
    assert!(bits(1000) < 12.5, "{} bits per key", bits(1000));
    assert!(Filter::new(&hashes(10, 1)).bytes.len() < 100);
}

#[test]
fn evenly_spread_hashes_never_fill_a_partition() {
    for salt in 0..20 {
        let filter = Filter::new(&hashes(100_000, salt));
        assert!(filter.bytes.chunks(PARTITION_BYTES).all(|partition| partition[0] == 1), "salt {salt}");
    }
}

#[test]
fn damaged_bytes_neither_panic_nor_hang() {
    let mut noise = hashes(507 * 64, 5).into_iter();
    for round in 0..64u8 {
        let mut bytes: Vec<u8> = noise.by_ref().take(507).flat_map(u64::to_le_bytes).collect();
        bytes[0] = round % 4;
        bytes[1] = [50, 27, 255, 1][usize::from(round / 4 % 4)];
        if round >= 32 {
            // Sparse runends cause the longest walks.
            bytes[6..].iter_mut().for_each(|byte| *byte &= 1);
        }
        bytes.truncate(PARTITION_BYTES - usize::from(round) * usize::from(round));
        for hash in hashes(2000, u64::from(round)) {
            may_contain(&bytes, hash);
        }
        let _ = check(&bytes);
    }
}

#[test]
fn a_flipped_bit_neither_panics_nor_hangs_and_zeros_deny_nothing() {
    let present = hashes(60, 1);
    let filter = Filter::new(&present);
    for bit in 0..filter.bytes.len() * 8 {
        let mut bytes = filter.bytes.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        for &hash in &present {
            may_contain(&bytes, hash);
        }
        let _ = check(&bytes);
    }
    for cut in 0..filter.bytes.len() {
        assert!(present.iter().all(|&hash| may_contain(&filter.bytes[..cut], hash)));
    }
    assert!(may_contain(&[0; PARTITION_BYTES], 1));
    assert!(check(&[0; PARTITION_BYTES]).is_err());
}
