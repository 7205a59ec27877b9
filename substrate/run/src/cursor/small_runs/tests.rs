use testudo_base::{Cursor, Entry, Kind, RunId};

use super::*;
use crate::{ReadAhead, Target, test_bed::TestBed};

fn write(bed: &TestBed, id: u64, entries: u64) -> std::sync::Arc<Run> {
    let mut writer = bed.writer_of(RunId(id));
    for number in 0..entries {
        let key = format!("key{number:09}").into_bytes();
        writer.push(&Entry { key: &key, kind: Kind::Value, value: &[b'v'; 100] }).unwrap();
    }
    writer.finish(None).unwrap()
}

/// Number of entries from the first one on.
fn count(cursor: &mut RunCursor) -> u64 {
    let mut entries = 0;
    while cursor.entry().is_some() {
        entries += 1;
        cursor.next().unwrap();
    }
    entries
}

#[test]
fn small_runs_of_a_merge_are_read_in_one_batch() {
    let bed = TestBed::with_cache(1 << 20);
    let runs = [write(&bed, 3, 42), write(&bed, 4, 90), write(&bed, 5, 20_000)];
    let new = |run: &std::sync::Arc<Run>, read_ahead| RunCursor::new(std::sync::Arc::clone(run), read_ahead);
    let mut cursors: Vec<RunCursor> = runs.iter().map(|run| new(run, ReadAhead::Pages(64))).collect();
    // A scan may end early.
    cursors.push(new(&runs[0], ReadAhead::Adaptive));
    let before = bed.data.io_stats();
    read_small_runs(&mut cursors);
    let after = bed.data.io_stats();
    assert_eq!(after.stream_reads - before.stream_reads, 2);
    assert_eq!(after.stream_read_bytes - before.stream_read_bytes, (2 + 3) * 4096);
    for (cursor, entries) in cursors.iter_mut().zip([42, 90]) {
        cursor.seek_first().unwrap();
        assert_eq!(count(cursor), entries);
        cursor.begin(Target::From(b"key000000040"));
        cursor.seek(b"key000000040").unwrap();
        assert_eq!(count(cursor), entries - 40);
    }
    assert_eq!(bed.data.io_stats().stream_reads, after.stream_reads, "their pages were in memory");
    cursors[2].seek_first().unwrap();
    assert_eq!(count(&mut cursors[2]), 20_000);
}

#[test]
fn damage_in_a_small_run_is_reported_by_its_cursor() {
    let bed = TestBed::with_cache(1 << 20);
    let runs = [write(&bed, 3, 42), write(&bed, 4, 42)];
    bed.damage(&runs[1], 0, 100);
    let mut cursors = runs.map(|run| RunCursor::new(run, ReadAhead::Pages(64)));
    read_small_runs(&mut cursors);
    cursors[0].seek_first().unwrap();
    assert_eq!(count(&mut cursors[0]), 42);
    assert!(cursors[1].seek_first().is_err());
}
