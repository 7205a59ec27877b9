//! Prints the time to build and probe a filter, its size and its false positive rate.
//!
//! Run with `cargo run --release -p testudo-filter --example filter_rate`.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use testudo_base::checksum::hash_key;
use testudo_filter::{PARTITION_BYTES, build, may_contain, partition_of};

#[expect(clippy::disallowed_methods, reason = "a measurement needs the real clock")]
fn now() -> Instant {
    Instant::now()
}

fn each(took: Duration, count: usize) -> f64 {
    took.as_secs_f64() * 1e9 / count as f64
}

fn build_into(bytes: &mut Vec<u8>, hashes: &[u64]) -> u32 {
    let built = build(hashes, |partition| {
        bytes.extend_from_slice(partition);
        Ok::<(), std::convert::Infallible>(())
    });
    built.unwrap_or_else(|never| match never {})
}

fn main() {
    for count in [1000u64, 20_000, 200_000, 2_000_000] {
        let hashes: Vec<u64> = (0..count).map(|i| hash_key(&i.to_le_bytes())).collect();
        let absent: Vec<u64> = (count..2 * count).map(|i| hash_key(&i.to_le_bytes())).collect();
        let mut bytes = Vec::new();
        let rounds = 4_000_000 / count;
        let started = now();
        for _ in 0..rounds {
            bytes.clear();
            build_into(&mut bytes, &hashes);
        }
        let built = each(started.elapsed(), hashes.len()) / rounds as f64;
        let partitions = build_into(&mut Vec::new(), &hashes);
        let probe = |hashes: &[u64]| {
            let started = now();
            let mut found = 0usize;
            for _ in 0..rounds {
                for &hash in hashes {
                    let start = partition_of(hash, partitions) as usize * PARTITION_BYTES;
                    let partition = &bytes[start..bytes.len().min(start + PARTITION_BYTES)];
                    found += usize::from(may_contain(black_box(partition), hash));
                }
            }
            (each(started.elapsed(), hashes.len()) / rounds as f64, found as f64 / rounds as f64)
        };
        let ((present_ns, found), (absent_ns, wrong)) = (probe(&hashes), probe(&absent));
        assert_eq!(found, count as f64);
        println!(
            "{count:>8} keys: build {built:5.1} ns/key, probe {present_ns:5.1} ns present, {absent_ns:5.1} \
             ns \
             absent, {:.2} bits/key, {:.3} % false",
            bytes.len() as f64 * 8.0 / count as f64,
            wrong * 100.0 / count as f64,
        );
    }
}
