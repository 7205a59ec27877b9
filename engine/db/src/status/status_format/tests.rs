use std::time::Duration;

use testudo_base::{KeyspaceId, StoreId};

use super::{Status, StatusWriter};
use crate::{DbStats, KeyspaceStats};

fn status() -> Status {
    let (mut stats, mut keyspace, mut next) = (DbStats::default(), KeyspaceStats::default(), 0);
    let mut number = |_: &'static str, stat: &mut u64| {
        next += 1;
        *stat = next * 1_000_003;
    };
    stats.for_each_stat(&mut number);
    keyspace.for_each_stat(&mut number);
    Status {
        store: StoreId(7 << 100),
        process: 4711,
        time: Duration::from_millis(1_763_823_909_123),
        stats,
        keyspaces: vec![(KeyspaceId(3), keyspace), (KeyspaceId(9), KeyspaceStats::default())],
    }
}

#[test]
fn every_stat_round_trips_despite_trailing_bytes() {
    let mut bytes = status().encode();
    assert_eq!(Status::decode(&bytes).as_ref(), Some(&status()));
    bytes.extend_from_slice(b"entries 5\n of a longer one before");
    assert_eq!(Status::decode(&bytes), Some(status()));
}

#[test]
fn large_status_is_written_in_chunks_header_last() {
    let mut status = status();
    let (_, stats) = status.keyspaces[0].clone();
    status.keyspaces = (0..3_000).map(|id| (KeyspaceId(id), stats.clone())).collect();
    let bytes = status.encode();
    let mut chunks = Vec::new();
    let mut writer = StatusWriter::begin(&status, |offset, chunk: &[u8]| chunks.push((offset, chunk.len())));
    status.keyspaces.iter().for_each(|(id, stats)| writer.add(*id, stats.clone()));
    writer.end();
    assert!(chunks.len() > 10 && chunks.iter().all(|(_, length)| *length < 40_000), "{chunks:?}");
    assert_eq!(chunks.last().map(|(offset, _)| *offset), Some(0), "the header is written last");
    assert_eq!(Status::decode(&bytes), Some(status));
}

#[test]
fn torn_status_does_not_decode() {
    let bytes = status().encode();
    for end in 0..bytes.len() {
        assert_eq!(Status::decode(&bytes[..end]), None, "the first {end} bytes");
    }
    let other = Status { stats: DbStats::default(), ..status() }.encode();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 4;
        assert_eq!(Status::decode(&damaged), None, "byte {at}");
        // The beginning of one status over another.
        damaged = bytes.clone();
        let torn = at.min(other.len());
        damaged[..torn].copy_from_slice(&other[..torn]);
        let is_whole = damaged.starts_with(&other) || damaged == bytes;
        assert!(is_whole || Status::decode(&damaged).is_none(), "{torn} bytes of another status");
    }
}
