//! Spare pages: replaced pages stay in their slot groups.

use super::*;
use crate::format::slot_group::{GROUP_PAGES, GROUP_SPARES};

fn records(count: u64) -> Model {
    (0..count).map(|number| (key(number), vec![7; 100])).collect()
}

/// Overwrites a page's worth of consecutive records in each of `groups` groups.
fn overwrite(bed: &mut Bed, model: &mut Model, groups: u64, byte: u8) -> Changes {
    let count = model.len() as u64;
    let mut changes = Changes::new();
    for _ in 0..groups {
        let first = bed.next(count - 40);
        changes.extend((first..first + 40).map(|number| (key(number), Some(vec![byte; 100]))));
    }
    changes
}

#[test]
fn a_run_leaves_two_of_sixteen_pages() {
    let (bed, model) = (Bed::spaced(1), records(2400));
    let run = bed.run_of(&model);
    let reference = run.reference();
    let pages = reference.data_pages;
    assert!(pages > 70 && reference.spare_end == pages - pages % GROUP_PAGES, "{pages} pages");
    assert_eq!(reference.spare_pages(), pages / GROUP_PAGES * GROUP_SPARES);
    let spare: Vec<u32> = (0..pages).filter(|page| reference.is_spare(*page)).collect();
    assert_eq!(spare[..4], [14, 15, 30, 31]);
    check(&run, &model);
    check_leniently(&bed, &run, &model);
    let (resident, all) = run.resident_pages(None, None).unwrap();
    assert_eq!((resident, all), (all, u64::from(pages - reference.spare_pages())));
}

#[test]
fn spare_pages_that_do_not_fit_the_run_are_refused() {
    let (bed, model) = (Bed::spaced(1), records(2400));
    let run = bed.run_of(&model);
    let decoded = |spare_end: u32| {
        let mut encoded = Vec::new();
        RunRef { spare_end, ..run.reference().clone() }.encode(&mut encoded);
        RunRef::decode(&mut Reader::new(&encoded)).map(|decoded| decoded.spare_end)
    };
    let end = run.reference().spare_end;
    assert_eq!((decoded(end), decoded(16), decoded(0)), (Ok(end), Ok(16), Ok(0)));
    for invalid in [1, 15, end + 1, end + 16, u32::MAX] {
        assert!(decoded(invalid).is_err(), "{invalid}");
    }
}

#[test]
fn a_block_of_several_pages_ends_spare_pages() {
    let (bed, mut model) = (Bed::spaced(2), records(2000));
    model.insert(key(1000), vec![9; 9000]);
    let run = bed.run_of(&model);
    let (end, pages) = (run.reference().spare_end, run.reference().data_pages);
    assert!(end > 16 && end < pages / 2 + 16, "{end} of {pages} pages");
    check(&run, &model);
    check_leniently(&bed, &run, &model);
}

#[test]
fn replaced_pages_stay_in_their_groups() {
    let (mut bed, mut model) = (Bed::spaced(3), records(2400));
    let mut run = bed.run_of(&model);
    let spans = run.reference().spans.len();
    for round in 0..60 {
        let changes = overwrite(&mut bed, &mut model, 1, round);
        run = bed.update(&run, &changes).unwrap();
        apply(&mut model, changes);
    }
    check(&run, &model);
    let replaced = run.reference().replaced.as_ref().unwrap();
    let all = replaced.page_count();
    let outside =
        replaced.pages().filter(|(page, place)| place.at / GROUP_PAGES != page / GROUP_PAGES).count();
    assert!(all > 40 && outside * 4 < all, "{outside} of {all} pages are outside their group");
    assert_eq!(run.reference().spans.len(), spans, "no place outside the run is needed");
}

#[test]
fn queries_count_the_reads_that_scattered_pages_need() {
    let (mut bed, mut model) = (Bed::spaced(4), records(2400));
    let mut run = bed.run_of(&model);
    let mut held = Vec::new();
    for round in 0..30 {
        let changes = overwrite(&mut bed, &mut model, 1, round);
        // Versions in use keep places from being reused.
        held.push(Arc::clone(&run));
        run = bed.update(&run, &changes).unwrap();
        apply(&mut model, changes);
    }
    assert_eq!(run.scattered_reads(), 0, "nothing was scanned");
    let run = bed.file.reopened(&run);
    let mut merge = RunCursor::new(Arc::clone(&run), ReadAhead::Pages(32));
    merge.seek_first().unwrap();
    while merge.entry().is_some() {
        merge.next().unwrap();
    }
    assert_eq!(run.scattered_reads(), 0, "merges are no queries");
    assert_eq!(limited_scan(&run, b"", 2400).len(), 2400);
    assert!(run.scattered_reads() > 3, "{} further reads", run.scattered_reads());
    let plain = bed.file.reopened(&held[0]);
    assert_eq!((limited_scan(&plain, b"", 2400).len(), plain.scattered_reads()), (2400, 0));
}

#[test]
fn places_of_a_held_version_are_not_reused() {
    let (mut bed, mut model) = (Bed::spaced(5), records(600));
    let run = bed.run_of(&model);
    let mut held = vec![(Arc::clone(&run), model.clone())];
    for round in 0..25 {
        let changes = overwrite(&mut bed, &mut model, 1, round);
        let next = bed.update(&held.last().unwrap().0, &changes).unwrap();
        apply(&mut model, changes);
        held.push((next, model.clone()));
    }
    for (run, model) in &held {
        check(run, model);
    }
    check_leniently(&bed, &held.last().unwrap().0, &model);
}
