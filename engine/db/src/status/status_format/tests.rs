use std::time::Duration;

use testudo_base::{KeyspaceId, StoreId};
use testudo_store::warm_restart::restore_state::RestoreState;

use super::{Status, StatusWriter};
use crate::{
    DbStats, KeyspaceStats,
    db::stats::{Description, Stat, StatGroup},
};

fn status() -> Status {
    let (mut stats, mut keyspace, mut next) = (DbStats::default(), KeyspaceStats::default(), 0);
    let mut number = |metric: Description, stat: &mut dyn Stat| {
        next += 1;
        let codes_of_states = 8;
        let number = next * 1_000_003;
        stat.set_code(if metric.name == "restore_state" { number % codes_of_states } else { number });
    };
    stats.each_mut(&mut number);
    keyspace.each_mut(&mut number);
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
fn status_file_of_an_older_version_decodes() {
    let text = "store 01\nprocess 4711\ntime_ms 5\nuser_writes 12\nwrite_memory_auto 1\nof_the_future 3\n\
                restore_state 3\nkeyspace 3\nentries 100\nlarge_values_with_keys 1\n";
    let checksum = testudo_base::checksum::checksum64(text.as_bytes(), 0);
    let old = format!("testudo-status {:010} {checksum:016x}\n{text}", text.len());
    let status = Status::decode(old.as_bytes()).unwrap();
    let (stats, (id, keyspace)) = (&status.stats, &status.keyspaces[0]);
    assert_eq!((stats.writes.count, stats.write_memory.is_auto), (12, true));
    assert_eq!(stats.restore.state, RestoreState::Done);
    assert_eq!((id.0, keyspace.tree.entries, keyspace.values.large_with_keys), (3, 100, true));
}

#[test]
fn large_status_is_written_in_chunks_header_last() {
    let mut status = status();
    let (_, stats) = status.keyspaces[0].clone();
    status.keyspaces = (0..3_000).map(|id| (KeyspaceId(id), stats.clone())).collect();
    let bytes = status.encode();
    let mut chunks = Vec::new();
    let mut writer = StatusWriter::begin(&status, |offset, chunk: &[u8]| chunks.push((offset, chunk.len())));
    status.keyspaces.iter().for_each(|(id, stats)| writer.add(*id, stats));
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
