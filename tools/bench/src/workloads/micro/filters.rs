//! The filter: bulk construction, and probes for present and for absent keys.
//!
//! **Invariants**
//! - The probed filter holds 200,000 keys, whatever the number of operations.

use std::{convert::Infallible, hint::black_box};

use testudo::Result;
use testudo_base::{
    checksum::hash_key,
    num::{u64_of, usize_of},
};
use testudo_filter::{PARTITION_BYTES, build, may_contain, partition_of};

use super::Bench;

const KEYS: u64 = 200_000;

pub(super) fn run(bench: &mut Bench<'_>) -> Result<()> {
    bench.check_names("filter", &["build", "present", "absent"])?;
    let ops = bench.args.ops;
    if bench.wants("build", "testudo") {
        let hashes: Vec<u64> = (0..ops.max(KEYS)).map(hash).collect();
        // One call builds all; a second call would add its time to that of the first.
        bench.measure_whole("filter", "build", ops, || {
            build_into(&mut Vec::new(), &hashes[..usize_of(ops)]);
        })?;
    }
    let hashes: Vec<u64> = (0..KEYS).map(hash).collect();
    let mut bytes = Vec::new();
    let partitions = build_into(&mut bytes, &hashes);
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

/// Builds the filter; returns the number of partitions.
fn build_into(bytes: &mut Vec<u8>, hashes: &[u64]) -> u32 {
    let built = build(hashes, |partition| {
        bytes.extend_from_slice(black_box(partition));
        Ok::<(), Infallible>(())
    });
    built.unwrap_or_else(|never| match never {})
}

fn hash(number: u64) -> u64 {
    hash_key(&number.to_le_bytes())
}
