//! Sections of data pages: splits, appends, joins, and their recovery from found pages.

use super::*;

fn values(numbers: impl Iterator<Item = u64>, byte: u8) -> Changes {
    numbers.map(|number| (key(number), Some(vec![byte; 100]))).collect()
}

/// Every fourth number of 1200.
fn wide_run(bed: &Bed) -> (Arc<Run>, Model) {
    let model: Model = (0..600).map(|number| (key(number * 4), vec![7; 100])).collect();
    (bed.run_of(&model), model)
}

/// The numbers of the keys of a section.
fn numbers_of(run: &Arc<Run>, section: usize) -> Vec<u64> {
    let update = PageUpdate::begin(run).unwrap().unwrap();
    let lists = PageUpdate::read(&[(&update, &[section])]).unwrap().pop().unwrap();
    let number = |entry: Entry<'_>| std::str::from_utf8(&entry.key[3..]).unwrap().parse().unwrap();
    lists[0].iter().map(number).collect()
}

fn sections_of(run: &Arc<Run>) -> usize {
    PageUpdate::begin(run).unwrap().unwrap().sections()
}

#[test]
fn a_page_is_split_into_as_many_as_its_entries_need() {
    let mut bed = Bed::new(1);
    let (run, mut model) = wide_run(&bed);
    let before = sections_of(&run);
    let page = numbers_of(&run, 3);
    let (first, last) = (page[0], page[page.len() - 1]);
    let changes = values((first..last).filter(|number| number % 4 != 0), 3);
    let (split, counts) = bed.counted_update(&run, &changes).unwrap();
    assert_eq!((counts.replaced, counts.split, counts.joined), (1, 1, 0));
    assert!(counts.written == 4 || counts.written == 5, "four times the entries: {counts:?}");
    assert_eq!(sections_of(&split), before + usize_of(counts.written) - 1);
    apply(&mut model, changes);
    check(&split, &model);
    check_leniently(&bed, &split, &model);
    let sizes: Vec<usize> =
        (3..3 + usize_of(counts.written)).map(|at| numbers_of(&split, at).len()).collect();
    assert!(sizes.iter().all(|size| size * 3 > page.len() * 2), "even pages: {sizes:?}");
    // A further change reads and writes one of them.
    let changes = values(std::iter::once(numbers_of(&split, 5)[2]), 4);
    let (again, counts) = bed.counted_update(&split, &changes).unwrap();
    assert_eq!((counts.replaced, counts.written), (1, 1));
    apply(&mut model, changes);
    check(&again, &model);
    check_leniently(&bed, &again, &model);
}

#[test]
fn greater_keys_leave_a_full_page_where_it_is() {
    let mut bed = Bed::new(1);
    let dense: Model = (0..600).map(|number| (key(number), vec![7; 100])).collect();
    let start = numbers_of(&bed.run_of(&dense), 3)[0];
    // A gap after the third page.
    let with_gap = |number| if number < start { number } else { number + 1000 };
    let mut model: Model = (0..600).map(|number| (key(with_gap(number)), vec![7; 100])).collect();
    let mut run = bed.run_of(&model);
    let last = *numbers_of(&run, 2).last().unwrap();
    let end = numbers_of(&run, 3)[0];
    let room = last + 1..end;
    assert!(room.end - room.start > 900, "between {last} and {end}");
    let mut written = Vec::new();
    for round in 0..30 {
        let changes = values((0..4).map(|number| last + 1 + round * 4 + number), 5);
        let (next, counts) = bed.counted_update(&run, &changes).unwrap();
        written.push(counts.written);
        apply(&mut model, changes);
        run = next;
        assert!(run.reference().replaced.as_ref().unwrap().place_of(2).is_none() || round < 2);
    }
    assert_eq!(written, vec![1; 30], "each batch writes one page");
    assert!(overflow(&run) >= 3, "{} overflow pages", overflow(&run));
    check_all(&run, &model);
    check_leniently(&bed, &run, &model);
    let list = run.reference().replaced.as_deref().cloned();
    let again = bed.file.reopened(&run);
    assert_eq!(again.reference().replaced.as_deref().cloned(), list);
    check_all(&again, &model);
}

/// Like `check`, for keys beyond those that it looks up.
fn check_all(run: &Arc<Run>, model: &Model) {
    check(run, model);
    for (key, value) in model {
        let found = run.get(key, hash_key(key), Access::Blocking).unwrap();
        assert!(matches!(found, Lookup::Found(Kind::Value, found, _) if found == *value));
    }
}

#[test]
fn an_empty_section_is_joined_with_its_neighbor() {
    for which in 0..3 {
        let mut bed = Bed::new(1);
        let (run, mut model) = wide_run(&bed);
        let page = numbers_of(&run, 3);
        let range = page[0]..page[page.len() - 1];
        let changes = values(range.filter(|number| number % 4 < 2), 3);
        let split = bed.update(&run, &changes).unwrap();
        apply(&mut model, changes);
        assert!(overflow(&split) >= 1);
        let changes = values(numbers_of(&split, 3)[..1].iter().map(|number| number + 2), 3);
        let split = bed.update(&split, &changes).unwrap();
        apply(&mut model, changes);
        let before = overflow(&split);
        let gone = if which == 0 { 3 } else { 3 + before };
        let mut changes: Changes =
            numbers_of(&split, gone).iter().map(|number| (key(*number), None)).collect();
        if which == 2 {
            // Its neighbor changes as well.
            changes.extend(values(numbers_of(&split, gone - 1)[..1].iter().copied(), 9));
        }
        let (joined, counts) = bed.counted_update(&split, &changes).unwrap();
        assert_eq!((counts.joined, counts.written, overflow(&joined)), (1, 1, before - 1), "{which}");
        apply(&mut model, changes);
        check(&joined, &model);
        check_leniently(&bed, &joined, &model);
        // Keys of the joined range come and are found.
        let changes = values(page.iter().map(|number| number + 3).take(20), 6);
        let again = bed.update(&joined, &changes).unwrap();
        apply(&mut model, changes);
        check(&again, &model);
        let mut found = found_pages(&bed, &split);
        found.extend(found_pages(&bed, &joined));
        let known = run.reference().clone().with_found_pages(found);
        assert!(salvaged(&bed, &known).1 == 0);
    }
}

#[test]
fn small_neighbors_are_joined() {
    let mut bed = Bed::new(1);
    let (run, mut model) = wide_run(&bed);
    let page = numbers_of(&run, 3);
    let changes = values((page[0]..page[page.len() - 1]).filter(|number| number % 4 < 2), 3);
    let run = bed.update(&run, &changes).unwrap();
    apply(&mut model, changes);
    let before = overflow(&run);
    let mut changes = Changes::new();
    for section in [3, 4] {
        let numbers = numbers_of(&run, section);
        changes.extend(numbers[numbers.len() / 3..].iter().map(|number| (key(*number), None)));
    }
    let (run, counts) = bed.counted_update(&run, &changes).unwrap();
    assert_eq!((counts.joined, counts.written, overflow(&run)), (1, 1, before - 1));
    apply(&mut model, changes);
    check(&run, &model);
}

#[test]
fn a_page_without_entries_keeps_a_tombstone() {
    let mut bed = Bed::new(1);
    let (run, mut model) = wide_run(&bed);
    let page = numbers_of(&run, 3);
    let changes: Changes = page.iter().map(|number| (key(*number), None)).collect();
    let (run, counts) = bed.counted_update(&run, &changes).unwrap();
    assert_eq!((counts.written, counts.joined), (1, 0));
    assert_eq!(run.reference().tombstones, 1);
    apply(&mut model, changes);
    check(&run, &model);
    check_leniently(&bed, &run, &model);
    // Entries return.
    let changes = values(page.iter().map(|number| number + 1).take(5), 3);
    let run = bed.update(&run, &changes).unwrap();
    assert_eq!(run.reference().tombstones, 0);
    apply(&mut model, changes);
    check(&run, &model);
}

/// Pages of all versions of a run as found in its file, with their contents at that time.
fn all_found(bed: &Bed, run: &Arc<Run>) -> Vec<FoundPage> {
    let mut all = Vec::new();
    let mut bytes = AlignedBuffer::zeroed(PAGE_SIZE);
    for span in &run.reference().spans {
        for physical in span.first_page..span.end_page() {
            bed.file
                .data
                .read_many(&mut [(physical, &mut *bytes)])
                .into_iter()
                .for_each(|read| read.unwrap());
            let Some(header) = testudo_storage::PageHeader::read(&bytes) else { continue };
            if header.kind != Some(PageKind::Replaced) {
                continue;
            }
            let record = ReplacedPageRecord::read(payload_of(&bytes)).unwrap();
            let keys = crate::block_keys(payload_of(&bytes)).unwrap();
            let writing = Writing { generation: header.generation, incarnation: header.incarnation };
            all.push(FoundPage { physical, writing, record, keys });
        }
    }
    all
}

fn random_changes(bed: &mut Bed, below: u64) -> Changes {
    let mut changes = Changes::new();
    let (near, way) = (bed.next(below), bed.next(6));
    let count = if way == 3 { 200 } else { bed.next(70) };
    for at in 0..=count {
        let number = match way {
            // Ascending keys, scattered ones, and stretches that are removed.
            0 | 1 => near + at,
            2 => bed.next(below),
            3 => near + at,
            _ => near + bed.next(90),
        };
        let length = usize::try_from(bed.next(200)).unwrap();
        let is_removed = if way == 3 { bed.next(40) > 0 } else { bed.next(5) == 0 };
        let byte = testudo_base::num::low32(bed.next(250)).to_le_bytes()[0];
        changes.insert(key(number.min(below - 1)), (!is_removed).then(|| vec![byte; length]));
    }
    changes
}

#[test]
fn random_histories_with_splits_and_joins_are_read_back() {
    let (mut splits, mut joins, mut most) = (0, 0, 0);
    for seed in 1..=10 {
        let seeded = if seed > 8 { Bed::spaced } else { Bed::new };
        let mut bed = seeded(seed * 0x9E37_79B9);
        let mut model: Model = (0..400).map(|number| (key(number * 6), vec![7; 100])).collect();
        let mut run = bed.run_of(&model);
        let plain = Arc::clone(&run);
        let mut held = std::collections::VecDeque::new();
        for round in 0..60 {
            let changes = random_changes(&mut bed, 2400);
            let (next, counts) = bed.counted_update(&run, &changes).expect("pages are split");
            splits += counts.split;
            joins += counts.joined;
            most = most.max(overflow(&next));
            apply(&mut model, changes);
            run = next;
            held.push_back((Arc::clone(&run), model.clone()));
            if round % 6 == 0 {
                check(&run, &model);
                check_leniently(&bed, &run, &model);
            }
            if held.len() > 3 {
                let (old, of_old) = held.pop_front().unwrap();
                if round % 12 == 7 {
                    check(&old, &of_old);
                }
            }
            if round % 20 == 19 {
                // Reopened from the map in its file.
                let mut encoded = Vec::new();
                run.reference().encode(&mut encoded);
                let reference = RunRef::decode(&mut Reader::new(&encoded)).unwrap();
                run = Run::open(Arc::clone(run.data()), reference).unwrap();
                check(&run, &model);
            }
        }
        // Without a manifest and a map: from the pages in the file alone.
        let found = all_found(&bed, &run);
        let plain = RunRef { spans: run.reference().spans.clone(), ..plain.reference().clone() };
        let known = plain.with_found_pages(found);
        let list = run.reference().replaced.as_deref().cloned().unwrap().in_map(None);
        assert_eq!(known.replaced.as_deref(), Some(&list), "the newest version is found, seed {seed}");
        let (values, lost) = salvaged(&bed, &known);
        assert!(values == model && lost == 0, "seed {seed}: {lost} pages are lost");
    }
    assert!(splits > 50 && joins > 10 && most > 15, "{splits} splits, {joins} joins, {most} pages");
}

#[test]
fn an_older_page_serves_only_the_keys_of_a_lost_section() {
    let mut bed = Bed::new(1);
    let (run, mut model) = wide_run(&bed);
    let page = numbers_of(&run, 3);
    let older = bed.update(&run, &values(page.iter().copied(), 3)).unwrap();
    let changes = values((page[0]..page[page.len() - 1]).filter(|number| number % 2 == 0), 4);
    let newer = bed.update(&older, &changes).unwrap();
    assert!(overflow(&newer) >= 1);
    // Another writing after it, so that the lost page is not one of the newest.
    let newest = bed.update(&newer, &values(std::iter::once(4), 5)).unwrap();
    for lost in 0..=overflow(&newer) {
        let numbers = numbers_of(&newer, 3 + lost);
        let mut found = found_pages(&bed, &older);
        let mut of_newer = found_pages(&bed, &newer);
        of_newer.retain(|found| found.keys.0 != key(numbers[0]));
        found.extend(of_newer);
        found.extend(found_pages(&bed, &newest));
        let known = run.reference().clone().with_found_pages(found);
        let (values, lost_pages) = salvaged(&bed, &known);
        assert_eq!(lost_pages, 0);
        for number in page.iter().copied() {
            let is_lost = numbers[0] <= number && number <= numbers[numbers.len() - 1];
            let expected = if is_lost { 3 } else { 4 };
            let expected = if number == page[page.len() - 1] { 3 } else { expected };
            assert_eq!(values.get(&key(number)), Some(&vec![expected; 100]), "{number}, lost {numbers:?}");
        }
        let more = numbers.iter().filter(|number| *number % 4 != 0);
        assert!(more.clone().count() > 5, "some keys are only on the lost page");
        more.for_each(|number| assert_eq!(values.get(&key(*number)), None));
    }
    apply(&mut model, values(page.iter().copied(), 3));
    apply(&mut model, changes);
    apply(&mut model, values(std::iter::once(4), 5));
    check(&newest, &model);
}

#[test]
fn an_original_page_serves_the_keys_of_a_lost_section() {
    let mut bed = Bed::new(1);
    let (run, model) = wide_run(&bed);
    let page = numbers_of(&run, 3);
    let changes = values((page[0]..page[page.len() - 1]).filter(|number| number % 2 == 0), 4);
    let newer = bed.update(&run, &changes).unwrap();
    let newest = bed.update(&newer, &values(std::iter::once(4), 5)).unwrap();
    let lost = numbers_of(&newer, 4);
    let mut found = found_pages(&bed, &newer);
    found.retain(|found| found.keys.0 != key(lost[0]));
    found.extend(found_pages(&bed, &newest));
    let known = run.reference().clone().with_found_pages(found);
    let (values, lost_pages) = salvaged(&bed, &known);
    assert_eq!(lost_pages, 0);
    for number in lost {
        assert_eq!(values.get(&key(number)), model.get(&key(number)), "{number}");
    }
}

/// An update that was never committed is followed by one with the same entries and more.
#[test]
fn a_later_writing_replaces_an_uncommitted_one() {
    for seed in 1..400 {
        let mut bed = Bed::new(seed * 0x9E37_79B9);
        let mut model: Model = (0..100).map(|number| (key(number * 24), vec![7; 100])).collect();
        let plain = bed.run_of(&model);
        let mut run = Arc::clone(&plain);
        for _ in 0..bed.next(4) {
            let changes = random_changes(&mut bed, 2400);
            run = bed.update(&run, &changes).unwrap();
            apply(&mut model, changes);
        }
        let first = random_changes(&mut bed, 2400);
        let uncommitted = bed.update(&run, &first).unwrap();
        let mut more = first;
        if bed.next(2) == 0 {
            more.extend(random_changes(&mut bed, 2400));
        }
        // Some of the first entries were overwritten or removed in the meantime.
        let keys: Vec<Vec<u8>> = more.keys().cloned().collect();
        for key in keys {
            match bed.next(4) {
                0 => drop(more.insert(key, None)),
                1 => drop(more.insert(key.clone(), Some(model.get(&key).cloned().unwrap_or_default()))),
                _ => {}
            }
        }
        let committed = bed.update(&run, &more).unwrap();
        apply(&mut model, more);
        drop(uncommitted);
        let mut found = all_found(&bed, &run);
        found.extend(all_found(&bed, &committed));
        found.sort_by_key(|page| page.physical);
        found.dedup_by_key(|page| page.physical);
        let known = plain.reference().clone().with_found_pages(found);
        let (values, _) = salvaged(&bed, &known);
        assert!(values == model, "seed {seed}: {} instead of {}", values.len(), model.len());
    }
}
