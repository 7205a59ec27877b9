//! Device reads of scans, and their behavior when reads fail.

use testudo_env::{FaultError, FaultPlan, IoClass};
use testudo_run::ScanLimits;

use testudo_treebed::reads_of_scans;

use super::*;

fn key(number: u64) -> Vec<u8> {
    format!("user{number:020}").into_bytes()
}

/// A tree with tiers in each node, with records spread over them.
fn filled(batches: u64, batch_records: u64) -> Bed {
    let mut bed = Bed::new(turtle(64 << 10, 16));
    let total = batches * batch_records;
    for batch in 0..batches {
        // An odd multiplier visits every number once.
        let number = |n: u64| (batch * batch_records + n) * 7919 % total;
        bed.apply((0..batch_records).map(|n| (key(number(n)), Some(vec![b'v'; 100]))).collect());
    }
    bed
}

/// Maximum number of runs that may have one key.
fn sources(bed: &Bed) -> u64 {
    let mut tiers_at_depth: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for line in bed.tree.outline() {
        match line.what {
            "node" => tiers_at_depth.entry(line.depth).or_default().0 = 0,
            "tier" => {
                let (count, most) = tiers_at_depth.entry(line.depth - 1).or_default();
                *count += 1;
                *most = (*most).max(*count);
            }
            _ => {}
        }
    }
    tiers_at_depth.values().map(|(_, most)| most).sum::<u64>() + 1
}

/// Reads up to `count` entries from `start` on.
fn scan(bed: &Bed, start: &[u8], count: usize) -> Result<Model> {
    let mut cursor = bed.tree.cursor();
    let mut found = Model::new();
    cursor.seek(start)?;
    while let Some(entry) = cursor.entry() {
        found.insert(entry.key.to_vec(), entry.value.to_vec());
        if found.len() == count {
            break;
        }
        cursor.next()?;
    }
    Ok(found)
}

#[test]
fn a_cold_scan_reads_a_page_of_each_source_in_one_batch() {
    const SCANS: u64 = 40;
    let mut bed = filled(15, 2001);
    bed.cool(4 << 20);
    for run in bed.runs() {
        // Footers and indexes are cached, data is not.
        run.bytes_between(Some(run.reference().keys.last()), None).unwrap();
    }
    let sources = sources(&bed);
    assert!(sources > 3, "{sources} sources are not worth a test");
    for records in [10, 100] {
        let before = bed.work.data.io_stats();
        for number in 0..SCANS {
            let start = key(number * 700 + records);
            let found = scan(&bed, &start, usize::try_from(records).unwrap()).unwrap();
            let expected = bed.model.range(start..).take(usize::try_from(records).unwrap());
            assert!(found.iter().eq(expected));
        }
        let after = bed.work.data.io_stats();
        let rounds = after.read_rounds - before.read_rounds;
        let reads = after.page_reads - before.page_reads;
        let pages = (after.page_read_bytes - before.page_read_bytes) / 4096;
        // A page has about 30 records; a scan may start near the end of a page, and cross into the next one.
        let crossings = records / 15;
        assert!(rounds <= SCANS * (3 + 2 * crossings) / 2, "{rounds} rounds for {SCANS} scans of {records}");
        assert!(
            reads <= SCANS * (sources + 1 + crossings),
            "{reads} reads, {sources} sources, {records} records"
        );
        assert!(
            pages <= SCANS * (sources + 5 + 2 * crossings),
            "{pages} pages for {SCANS} scans of {records}"
        );
        assert_eq!(after.stream_read_bytes, before.stream_read_bytes, "a short scan reads ahead");
        bed.cool(4 << 20);
        for run in bed.runs() {
            run.bytes_between(Some(run.reference().keys.last()), None).unwrap();
        }
    }
}

#[test]
fn a_scan_of_everything_reads_each_page_once_and_leaves_the_cache_alone() {
    let mut bed = filled(15, 2001);
    bed.cool(1 << 20);
    assert!(scan(&bed, &[], usize::MAX).unwrap() == bed.model);
    let io = bed.work.data.io_stats();
    let stored = bed.tree.stats().stored_bytes;
    let read = io.page_read_bytes + io.stream_read_bytes;
    assert!(read <= stored + stored / 5, "{read} bytes read of {stored}");
    assert!(io.stream_read_bytes > stored / 3, "{} bytes of {stored} were read ahead", io.stream_read_bytes);
}

#[test]
fn a_failed_read_ends_a_scan_without_wrong_entries() {
    let mut bed = filled(6, 1001);
    let mut failures = 0;
    for skip in (0..).step_by(2) {
        bed.cool(1 << 20);
        bed.env.set_plan(Some(FaultPlan::once(skip, FaultError::Device).of_class(IoClass::Read)));
        let mut cursor = bed.tree.cursor();
        let mut expected = bed.model.iter();
        let mut moved = cursor.seek_first();
        while moved.is_ok()
            && let Some(entry) = cursor.entry()
        {
            let (key, value) = expected.next().expect("an entry too many");
            assert_eq!((entry.key, entry.value), (key.as_slice(), value.as_slice()));
            moved = cursor.next();
        }
        let has_failed = !bed.env.failures().is_empty();
        assert!(has_failed || moved.is_ok());
        if moved.is_ok() {
            assert!(expected.next().is_none());
            if !has_failed {
                break;
            }
            // A page that was only likely to be needed.
            continue;
        }
        failures += 1;
        assert!(cursor.entry().is_none(), "after an error the cursor is unpositioned");
        let rest: Vec<_> = expected.collect();
        let Some((key, _)) = rest.first() else { continue };
        cursor.seek(key).unwrap();
        for (key, value) in rest {
            let entry = cursor.entry().expect("an entry is missing");
            assert_eq!((entry.key, entry.value), (key.as_slice(), value.as_slice()));
            cursor.next().unwrap();
        }
    }
    assert!(failures > 10, "only {failures} reads failed");
}

#[test]
fn long_scans_read_little_beyond_their_entries() {
    const ENTRY_BYTES: u64 = 124;
    let mut bed = Bed::new(turtle(1 << 20, 16));
    let total = 31 * 1_291;
    for batch in 0..31 {
        let number = |n: u64| (batch * 1_291 + n) * 7919 % total;
        bed.apply((0..1_291).map(|n| (key(number(n)), Some(vec![b'v'; 100]))).collect());
    }
    let sources = sources(&bed);
    assert!(sources > 2, "{sources} sources are not worth a test");
    // Entries, scans, whether the cursor knows the length; maximum device reads per scan, and maximum bytes
    // read as a percentage of those returned. The sources alone are a page each: 13 % of a thousand entries.
    for (count, scans, is_said, reads_max, percent_max) in [
        (1_000, 20, true, 6, 130),
        (1_000, 20, false, 13, 150),
        (10_000, 3, true, 14, 110),
        (10_000, 3, false, 40, 120),
    ] {
        let (reads, bytes) = reads_of_scans(&mut bed, scans, count, is_said);
        let scans = u64::try_from(scans).unwrap();
        let returned = u64::try_from(count).unwrap() * ENTRY_BYTES * scans;
        let what = format!("{count} entries, said: {is_said}: {reads} reads, {bytes} bytes for {returned}");
        assert!(bytes * 100 <= returned * percent_max, "{what}");
        assert!(reads <= scans * reads_max, "{what}");
    }
}

#[test]
fn a_cursor_returns_every_entry_whatever_its_limits() {
    let mut bed = filled(6, 1001);
    let removed: Vec<Vec<u8>> = bed.model.keys().skip(500).take(2_500).cloned().collect();
    bed.apply(removed.into_iter().map(|key| (key, None)).collect());
    bed.cool(1 << 20);
    let end: Arc<[u8]> = bed.model.keys().nth(1_200).unwrap().as_slice().into();
    let middle = bed.model.keys().nth(300).unwrap().clone();
    for entries in [None, Some(0), Some(1), Some(700), Some(u64::MAX)] {
        for end in [None, Some(Arc::clone(&end)), Some(Arc::from([]))] {
            let mut cursor = bed.tree.cursor_within(&ScanLimits { entries, end });
            for start in [Vec::new(), middle.clone()] {
                cursor.seek(&start).unwrap();
                for (key, value) in bed.model.range(start..) {
                    skip_tombstones(&mut *cursor, true);
                    let entry = cursor.entry().expect("an entry is missing");
                    assert_eq!((entry.key, entry.value), (key.as_slice(), value.as_slice()));
                    cursor.next().unwrap();
                }
                skip_tombstones(&mut *cursor, true);
                assert!(cursor.entry().is_none());
            }
        }
    }
}

#[test]
fn a_bounded_scan_reads_no_page_beyond_its_end() {
    let mut bed = filled(6, 1001);
    let keys: Vec<Vec<u8>> = bed.model.keys().cloned().collect();
    let (mut bounded, mut open) = (0, 0);
    for start in (0..5_000).step_by(250) {
        for (end, bytes) in [(Some(Arc::from(keys[start + 20].as_slice())), &mut bounded), (None, &mut open)]
        {
            bed.cool(1 << 20);
            for run in bed.runs() {
                run.bytes_between(Some(run.reference().keys.last()), None).unwrap();
                run.bytes_between(Some(&keys[start]), None).unwrap();
            }
            let before = bed.work.data.io_stats().page_read_bytes;
            let mut cursor = bed.tree.cursor_within(&ScanLimits { entries: None, end });
            cursor.seek(&keys[start]).unwrap();
            for key in &keys[start..start + 20] {
                assert_eq!(cursor.entry().map(|entry| entry.key), Some(key.as_slice()));
                cursor.next().unwrap();
            }
            *bytes += bed.work.data.io_stats().page_read_bytes - before;
        }
    }
    assert!(bounded * 10 <= open * 8, "{bounded} bytes read with an end, {open} without");
}
