//! Scans that read the values ahead.

use testudo_base::ErrorKind;
use testudo_env::AlignedBuffer;

use super::*;

/// A tree with many values outside, and nothing that waits.
fn settled_bed(family: Family, placement: Placement, seed: u64) -> Bed {
    let mut random = SplitMix::new(seed);
    let mut bed = Bed::new(family, placement);
    for _ in 0..30 {
        bed.apply(&mut random);
        while bed.run_job() {}
    }
    bed
}

/// The cursor's entry as key and value; goes on past what is no value, forwards or back.
fn value_at(bed: &Bed, cursor: &mut dyn Cursor, is_forward: bool) -> Option<(Vec<u8>, Vec<u8>)> {
    loop {
        let entry = cursor.entry()?;
        assert!(!matches!(entry.kind, Kind::Reference | Kind::UnmergedReference), "{entry:?}");
        match entry.kind {
            Kind::Tombstone => {}
            Kind::Value => return Some((entry.key.to_vec(), entry.value.to_vec())),
            _ => return Some((entry.key.to_vec(), bed.work.full_merge.merge(&entry).unwrap())),
        }
        if is_forward { cursor.next() } else { cursor.prev() }.unwrap();
    }
}

fn owned_pair((key, value): (&Vec<u8>, &Vec<u8>)) -> (Vec<u8>, Vec<u8>) {
    (key.clone(), value.clone())
}

#[test]
fn a_cursor_that_turns_anywhere_shows_what_the_model_has() {
    let placements = [Placement::separate(), three_classes()];
    let beds = FAMILIES.into_iter().flat_map(|family| placements.map(|placement| (family, placement)));
    for (seed, (family, placement)) in (20..).zip(beds) {
        let mut random = SplitMix::new(seed);
        let bed = settled_bed(family, placement, seed);
        for _ in 0..60 {
            let start = format!("key-{:04}", random.below(KEYS)).into_bytes();
            let end = format!("key-{:04}", random.below(KEYS)).into_bytes();
            let limits = ScanLimits {
                entries: random.percent(50).then(|| random.below(90)),
                end: random.percent(50).then(|| Arc::from(end)),
            };
            let mut cursor = bed.tree.cursor_within(&limits);
            cursor.seek(&start).unwrap();
            let mut expected = bed.model.range(start.clone()..).next().map(owned_pair);
            let mut is_forward = true;
            for _ in 0..random.below(200) {
                let found = value_at(&bed, &mut *cursor, is_forward);
                assert_eq!(found, expected, "{family:?} {placement:?}");
                let Some((key, _)) = found else { break };
                is_forward = if is_forward { random.percent(97) } else { random.percent(40) };
                if is_forward {
                    cursor.next().unwrap();
                    let behind = (std::ops::Bound::Excluded(key), std::ops::Bound::Unbounded);
                    expected = bed.model.range(behind).next().map(owned_pair);
                } else {
                    cursor.prev().unwrap();
                    expected = bed.model.range(..key).next_back().map(owned_pair);
                }
            }
        }
    }
}

/// Reads of a scan from the first entry on, and how many values it has shown.
fn reads_of_scan(bed: &Bed, limits: &ScanLimits) -> (u64, u64) {
    let before = bed.work.data.io_stats().read_rounds;
    let mut cursor = bed.tree.cursor_within(limits);
    cursor.seek_first().unwrap();
    let mut shown = 0;
    while value_at(bed, &mut *cursor, true).is_some() {
        shown += 1;
        if limits.entries.is_some_and(|entries| shown >= entries) {
            break;
        }
        cursor.next().unwrap();
    }
    (bed.work.data.io_stats().read_rounds - before, shown)
}

#[test]
fn values_of_a_scan_are_read_many_at_a_time() {
    for family in FAMILIES {
        let bed = settled_bed(family, Placement::separate(), 31);
        // What the cache has after it are the pages of the tree, and index pages.
        reads_of_scan(&bed, &ScanLimits::default());
        let (rounds, shown) = reads_of_scan(&bed, &ScanLimits::default());
        assert!(shown > 300 && rounds * 16 < shown, "{family:?}: {rounds} rounds for {shown} values");
        let limits = ScanLimits { entries: Some(40), end: None };
        let (rounds, shown) = reads_of_scan(&bed, &limits);
        assert!(shown == 40 && rounds <= 2, "{family:?}: {rounds} rounds for {shown} values");
    }
}

#[test]
fn a_value_that_cannot_be_read_is_an_error_in_its_place_only() {
    for family in FAMILIES {
        let bed = settled_bed(family, Placement::separate(), 41);
        let segments = bed.tree.value_segments().unwrap();
        let lost = Arc::clone(segments.iter().max_by_key(|segment| segment.stored_bytes()).unwrap());
        let spans = lost.spans().to_vec();
        let pages = usize::try_from(lost.run().reference().data_pages).unwrap();
        assert!(u64::from(spans[0].page_count) >= u64_of(pages), "the data pages lie in one piece");
        bed.work.data.write_pages(spans[0].first_page, &AlignedBuffer::zeroed(pages * 4096)).unwrap();
        // Only the device counts, not what the cache has had before.
        bed.work.data.set_cache_bytes(0);
        let (mut shown, mut failed, mut before_first) = (0, 0, 0);
        for (key, value) in &bed.model {
            let mut cursor = bed.tree.cursor();
            match cursor.seek(key) {
                Ok(()) => {
                    assert_eq!(value_at(&bed, &mut *cursor, true).unwrap(), owned_pair((key, value)));
                    shown += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corruption);
                    failed += 1;
                }
            }
            before_first += u32::from(failed == 0);
        }
        assert!(shown > 50 && failed > 0, "{family:?}: {shown} shown, {failed} failed");
        // A scan shows all that comes before the first one that is lost, and then fails, once.
        let mut cursor = bed.tree.cursor();
        let (mut outcome, mut seen) = (cursor.seek_first(), 0);
        while let (Ok(()), Some(entry)) = (&outcome, cursor.entry()) {
            seen += u32::from(entry.kind != Kind::Tombstone);
            outcome = cursor.next();
        }
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Corruption);
        assert_eq!(seen, before_first, "{family:?}");
        assert!(cursor.entry().is_none() && cursor.next().is_ok() && cursor.entry().is_none());
    }
}
