use std::path::Path;

use testudo_base::{ErrorKind, Incarnation, KeyspaceId, Seqno, StoreId};
use testudo_env::{Env, MemEnv, OpenMode, OpenOptions};
use testudo_run::RunOrigin;
use testudo_storage::DataFile;

use super::*;
use crate::{SegmentRecord, SegmentWriter};

const COUNT: u64 = 500;

fn origin(id: u64) -> RunOrigin {
    let newest_seqno = Seqno(9);
    RunOrigin { id: RunId(id), keyspace: KeyspaceId(3), keyspace_name: Arc::from("k"), newest_seqno }
}

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn value(number: u64) -> Vec<u8> {
    vec![number.to_le_bytes()[0]; usize::try_from(number % 7 * 300).unwrap()]
}

/// Creates a segment with [`COUNT`] values; returns the references to them, too.
fn one_segment() -> (Arc<DataFile>, SegmentSet, Vec<ValueReference>) {
    let path = Path::new("/data");
    let options = OpenOptions { mode: OpenMode::CreateNew, direct: true };
    let file = MemEnv::new(1).open(path, options).unwrap();
    let data = DataFile::new(file, StoreId(7), 1 << 20, std::iter::empty(), Some(Incarnation(1))).unwrap();
    let mut writer = SegmentWriter::new(Arc::clone(&data), origin(5), false, 1 << 16).unwrap();
    let references = (0..COUNT).map(|number| writer.push(&key(number), &value(number)).unwrap()).collect();
    let mut segments = SegmentSet::default();
    segments.insert(writer.finish().unwrap());
    (data, segments, references)
}

/// Drops of the first references and creations of the second ones.
fn drops(ended: &[ValueReference], made: &[ValueReference]) -> ReferenceDrops {
    let mut drops = ReferenceDrops::default();
    ended.iter().for_each(|reference| drops.dropped(reference));
    made.iter().for_each(|reference| drops.made(reference));
    drops
}

fn check_read(segments: &SegmentSet, references: &[ValueReference], numbers: impl Iterator<Item = u64>) {
    for number in numbers {
        let reference = &references[usize::try_from(number).unwrap()];
        let (read, _) = segments.read(&key(number), reference, Access::Blocking).unwrap().unwrap();
        assert_eq!(read, value(number));
    }
}

#[test]
fn values_are_found_by_their_references_and_keys() {
    let (_, segments, references) = one_segment();
    check_read(&segments, &references, 0..COUNT);
    let wrong = |key: &[u8], reference| segments.read(key, &reference, Access::Blocking).unwrap_err().kind();
    let there = references[3];
    assert_eq!(wrong(&key(4), there), ErrorKind::Corruption, "the key does not match");
    assert_eq!(wrong(b"nowhere", there), ErrorKind::Corruption);
    assert_eq!(wrong(&key(3), ValueReference { length: 1, ..there }), ErrorKind::Corruption);
    assert_eq!(wrong(&key(3), ValueReference { segment: RunId(6), ..there }), ErrorKind::Corruption);
}

#[test]
fn a_value_is_dead_once_its_reference_is_dropped_and_not_recreated() {
    let (_, mut segments, references) = one_segment();
    let [a, b] = [references[1], references[2]];
    segments.bury(&drops(&[a, b], &[b])).unwrap();
    let totals = segments.totals();
    assert_eq!(totals.dead_bytes, u64::from(a.length));
    // The reference was copied into another entry, which is dropped now.
    segments.bury(&drops(&[b, b], &[b])).unwrap();
    assert_eq!(segments.totals().dead_bytes, u64::from(a.length) + u64::from(b.length));
    let segment = segments.get(RunId(5)).unwrap();
    let record = SegmentRecord::decode(&segment.encode()).unwrap();
    let opened = Segment::opened(record, Arc::clone(segment.run())).unwrap();
    assert_eq!((opened.dead(), opened.dead_bytes()), (segment.dead(), segment.dead_bytes()));
}

#[test]
fn dropping_a_dead_or_unknown_value_is_corruption() {
    let (_, mut segments, references) = one_segment();
    segments.bury(&drops(&references[1..2], &[])).unwrap();
    let unknown = ValueReference { segment: RunId(99), number: 0, length: 0 };
    let there = references[2];
    for wrong in [
        drops(&references[1..2], &[]),
        drops(&[there, there], &[]),
        drops(&[], &[there]),
        drops(&[ValueReference { number: 500, ..there }], &[]),
        drops(&[ValueReference { length: u32::MAX, ..there }], &[]),
        drops(&[unknown], &[]),
    ] {
        let error = segments.clone().bury(&wrong).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    }
}

#[test]
fn a_rewritten_segment_keeps_references_and_drops_dead_values() {
    let (_, mut segments, references) = one_segment();
    let before = segments.totals();
    segments.bury(&drops(&references.iter().step_by(2).copied().collect::<Vec<_>>(), &[])).unwrap();
    let rewritten = segments.get(RunId(5)).unwrap().rewrite(origin(6)).unwrap();
    // These values die during the rewrite.
    segments.bury(&drops(&[references[1], references[3]], &[])).unwrap();
    assert!(segments.install(&rewritten));
    let died: u64 = [1, 3].iter().map(|number| u64::from(references[*number].length)).sum();
    let after = segments.totals();
    assert_eq!(after.dead_bytes, died);
    assert!(after.device_bytes < before.device_bytes && after.value_bytes < before.value_bytes);
    check_read(&segments, &references, (5..COUNT).step_by(2));
    let again = segments.get(RunId(5)).unwrap().rewrite(origin(7)).unwrap();
    assert!(!segments.install(&rewritten), "its source was replaced");
    assert!(segments.install(&again));
    assert_eq!(segments.totals().dead_bytes, 0);
    check_read(&segments, &references, (5..COUNT).step_by(2));
}

#[test]
fn a_segment_without_live_values_is_removed() {
    let (_, mut segments, references) = one_segment();
    let rewritten = segments.get(RunId(5)).unwrap().rewrite(origin(6)).unwrap();
    segments.bury(&drops(&references, &[])).unwrap();
    assert!(segments.is_empty());
    assert!(!segments.install(&rewritten));
}
