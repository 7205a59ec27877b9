//! The filter: building in bulk, and probes for keys that are there and that are not.
//!
//! **Invariants**
//! - The filter that is probed holds 200,000 keys, whatever the number of operations.

use std::hint::black_box;

use testudo::Result;
use testudo_base::{
    checksum::hash_key,
    num::{u64_of, usize_of},
};
use testudo_filter::{PARTITION_BYTES, Precision, build, may_contain, partition_of};

use super::Bench;

const KEYS: u64 = 200_000;

pub(super) fn run(bench: &mut Bench<'_>) -> Result<()> {
    bench.check_names("filter", &["build", "present", "absent"])?;
    let ops = bench.args.ops;
    if bench.wants("build", "testudo") {
        let hashes: Vec<u64> = (0..ops.max(KEYS)).map(hash).collect();
        // One call builds for all; a second one would count its time as that of no key.
        bench.measure_whole("filter", "build", ops, || {
            black_box(build(&hashes[..usize_of(ops)], Precision::Bits8, &mut Vec::new()));
        })?;
    }
    let hashes: Vec<u64> = (0..KEYS).map(hash).collect();
    let mut bytes = Vec::new();
    let partitions = build(&hashes, Precision::Bits8, &mut bytes);
    let probe = |hash: u64| {
        let start = usize_of(u64::from(partition_of(hash, partitions))) * PARTITION_BYTES;
        may_contain(black_box(&bytes[start..bytes.len().min(start + PARTITION_BYTES)]), hash)
    };
    if bench.wants("present", "testudo") {
        let count = u64_of(hashes.len());
        bench.measure("filter", "present", ops, |number| {
            assert!(probe(hashes[usize_of(number.wrapping_mul(7919) % count)]));
        })?;
    }
    if bench.wants("absent", "testudo") {
        bench.measure("filter", "absent", ops, |number| {
            black_box(probe(hash(KEYS + number)));
        })?;
    }
    Ok(())
}

fn hash(number: u64) -> u64 {
    hash_key(&number.to_le_bytes())
}
