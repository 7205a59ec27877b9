use std::{collections::BTreeMap, path::Path};

use testudo_base::{Cursor, KeyspaceId, Kind, StoreId, checksum::hash_key, codec::Reader};
use testudo_env::{Env, OpenMode, OpenOptions};

use super::*;
use crate::{
    Access, FoundPage, LenientCursor, Lookup, PageWalk, ReadAhead, RunCursor, RunLayout, RunOrigin,
    RunWriter, ScanForecast, ScanLimits, ScanProgress, test_bed::TestBed,
};

mod sections;
mod spare_pages;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

struct Bed {
    file: TestBed,
    next_id: u64,
    random: u64,
    layout: RunLayout,
}

impl Bed {
    fn new(seed: u64) -> Self {
        let layout = RunLayout::default();
        Self { file: TestBed::with_cache(4 << 20), next_id: 10, random: seed | 1, layout }
    }

    /// A bed whose runs have spare pages.
    fn spaced(seed: u64) -> Self {
        Self { layout: RunLayout::for_page_updates(94).with_spares(), ..Self::new(seed) }
    }

    fn next(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    fn run_of(&self, model: &Model) -> Arc<Run> {
        let mut writer = self.file.writer().with_layout(self.layout);
        for (key, value) in model {
            writer.push(&Entry { key, kind: Kind::Value, value }).unwrap();
        }
        writer.finish(None).unwrap()
    }

    /// Applies `changes` to the run, `None` removes; returns `None` if the run must be rewritten.
    fn update(&mut self, run: &Arc<Run>, changes: &Changes) -> Option<Arc<Run>> {
        self.counted_update(run, changes).map(|(run, _)| run)
    }

    fn counted_update(&mut self, run: &Arc<Run>, changes: &Changes) -> Option<(Arc<Run>, UpdateCounts)> {
        let mut update = PageUpdate::begin(run).unwrap().unwrap();
        let mut sections: Vec<usize> = changes.keys().map(|key| update.section_of(key)).collect();
        sections.dedup();
        let lists = PageUpdate::read(&[(&update, &sections)]).unwrap().pop().unwrap();
        for (section, old) in sections.into_iter().zip(lists) {
            let kept = old.iter().filter(|entry| entry.kind == Kind::Value);
            let mut model: Model = kept.map(|entry| (entry.key.to_vec(), entry.value.to_vec())).collect();
            let own = || changes.iter().filter(|(key, _)| update.section_of(key) == section);
            for (key, value) in own() {
                match value {
                    Some(value) => drop(model.insert(key.clone(), value.clone())),
                    None => drop(model.remove(key)),
                }
            }
            let incoming = own().next().unwrap().0.clone();
            let mut new = EntryList::default();
            for (key, value) in &model {
                new.push(&Entry { key, kind: Kind::Value, value });
            }
            update.replace(section, &old, &incoming, new);
        }
        self.next_id += 1;
        let version = update.prepare(RunId(self.next_id), Seqno(self.next_id)).unwrap()?;
        let counts = version.counts();
        Some((PreparedVersion::write(vec![version]).unwrap().pop()?, counts))
    }
}

type Changes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

fn apply(model: &mut Model, changes: Changes) {
    for (key, value) in changes {
        match value {
            Some(value) => drop(model.insert(key, value)),
            None => drop(model.remove(&key)),
        }
    }
}

/// Overflow pages of a run.
fn overflow(run: &Run) -> usize {
    run.reference().replaced.as_ref().map_or(0, |replaced| replaced.overflow().len())
}

/// Removes a tombstone that a page keeps.
fn skip_tombstones(cursor: &mut RunCursor, forward: bool) {
    while cursor.entry().is_some_and(|entry| entry.kind == Kind::Tombstone) {
        if forward { cursor.next() } else { cursor.prev() }.unwrap();
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

/// Checks all kinds of reads of a run against the model.
fn check(run: &Arc<Run>, model: &Model) {
    run.check_pages().unwrap();
    run.check_entries().unwrap();
    for ahead in [ReadAhead::Adaptive, ReadAhead::Pages(3), ReadAhead::Pages(64)] {
        let mut cursor = RunCursor::new(Arc::clone(run), ahead);
        let mut expected = model.iter();
        cursor.seek_first().unwrap();
        skip_tombstones(&mut cursor, true);
        while let Some(entry) = cursor.entry() {
            assert_eq!(Some((&entry.key.to_vec(), &entry.value.to_vec())), expected.next());
            cursor.next().unwrap();
            skip_tombstones(&mut cursor, true);
        }
        assert_eq!(expected.next(), None, "forward, {ahead:?}");
        cursor.seek_last().unwrap();
        skip_tombstones(&mut cursor, false);
        let mut expected = model.iter().rev();
        while let Some(entry) = cursor.entry() {
            assert_eq!(Some(entry.key), expected.next().map(|(key, _)| key.as_slice()));
            cursor.prev().unwrap();
            skip_tombstones(&mut cursor, false);
        }
        assert_eq!(expected.next(), None, "backward, {ahead:?}");
    }
    let mut cursor = RunCursor::new(Arc::clone(run), ReadAhead::Adaptive);
    for number in 0..2500 {
        let key = key(number);
        let found = run.get(&key, hash_key(&key), Access::Blocking).unwrap();
        let value = if let Lookup::Found(Kind::Value, value, _) = found { Some(value) } else { None };
        assert_eq!(value.as_ref(), model.get(&key), "get {number}");
        cursor.seek(&key).unwrap();
        skip_tombstones(&mut cursor, true);
        let next = model.range(key.clone()..).next().map(|(key, _)| key.as_slice());
        assert_eq!(cursor.entry().map(|entry| entry.key), next, "from {number} on");
        cursor.seek_before(&key).unwrap();
        skip_tombstones(&mut cursor, false);
        let before = model.range(..key.clone()).next_back().map(|(key, _)| key.as_slice());
        assert_eq!(cursor.entry().map(|entry| entry.key), before, "before {number}");
    }
    for number in (0..2500).step_by(37) {
        let count = number % 7 * 40 + 1;
        let found = limited_scan(run, &key(number), count);
        let expected =
            model.range(key(number)..).take(usize::try_from(count).unwrap()).map(|(key, _)| key.clone());
        assert_eq!(found, expected.collect::<Vec<_>>(), "{count} from {number} on");
    }
    for is_whole in [true, false] {
        let mut encoded = Vec::new();
        let reference = run.reference();
        if is_whole {
            reference.encode_whole(&mut encoded)
        } else {
            reference.encode(&mut encoded)
        }
        let mut reader = Reader::new(&encoded);
        let decoded = RunRef::decode(&mut reader).unwrap();
        reader.finish().unwrap();
        assert!(decoded.has_known_places() || !is_whole, "a whole reference needs no map");
        let again = Run::open(Arc::clone(run.data()), decoded).unwrap();
        assert_eq!(again.reference(), reference, "its encoding");
    }
}

/// The keys of a scan with a known number of entries.
fn limited_scan(run: &Arc<Run>, from: &[u8], count: u64) -> Vec<Vec<u8>> {
    let progress = ScanProgress::new(&ScanLimits { entries: Some(count), end: None });
    let mut cursor = RunCursor::new(Arc::clone(run), ReadAhead::Adaptive);
    let reference = run.reference();
    cursor.set_forecast(ScanForecast::new(
        &progress,
        reference.section_count().into(),
        reference.entries,
        true,
    ));
    let mut keys = Vec::new();
    cursor.seek(from).unwrap();
    skip_tombstones(&mut cursor, true);
    while let Some(entry) = cursor.entry().filter(|_| (keys.len() as u64) < count) {
        keys.push(entry.key.to_vec());
        progress.count_entry();
        cursor.next().unwrap();
        skip_tombstones(&mut cursor, true);
    }
    keys
}

/// Checks the reads of salvage and copies.
fn check_leniently(bed: &Bed, run: &Arc<Run>, model: &Model) {
    let mut walk = PageWalk::new(run.reference(), StoreId(7), 0);
    let mut read = |page: u32, buffer: &mut [u8]| run.read_pages(page, buffer);
    let mut pages = 0;
    while let Some(stretch) = walk.next_stretch(&mut read).unwrap() {
        assert!(stretch.blocks.iter().all(|block| block.damage.is_none()), "every page is the expected one");
        pages += stretch.blocks.iter().map(|block| block.pages).sum::<u32>();
    }
    assert_eq!(pages, run.reference().page_count() - run.reference().spare_pages());
    let (found, lost) = salvaged(bed, run.reference());
    assert_eq!(lost, 0, "nothing is lost");
    assert!(found == *model, "salvage finds all entries, and each once");
}

/// Returns the values that salvage reads by a reference, and the number of pages that it reports as lost.
fn salvaged(bed: &Bed, reference: &RunRef) -> (Model, u32) {
    let options = OpenOptions { mode: OpenMode::Read, direct: false };
    let file = bed.file.env.open(Path::new("/data"), options).unwrap();
    let mut cursor = LenientCursor::new(file, StoreId(7), reference);
    let (mut model, mut lost) = (Model::new(), 0);
    loop {
        lost += cursor.advance().map_or(0, |lost| lost.pages);
        let Some(entry) = cursor.entry() else { return (model, lost) };
        let is_greater = model.last_key_value().is_none_or(|(last, _)| last.as_slice() < entry.key);
        assert!(is_greater, "keys increase");
        if entry.kind == Kind::Value {
            model.insert(entry.key.to_vec(), entry.value.to_vec());
        }
    }
}

#[test]
fn versions_of_a_run_coexist_with_their_own_contents() {
    for seed in 1..=8 {
        let seeded = if seed > 6 { Bed::spaced } else { Bed::new };
        let mut bed = seeded(seed * 0x9E37_79B9);
        let mut model: Model = (0..1200).map(|number| (key(number * 2), vec![7; 100])).collect();
        let mut run = bed.run_of(&model);
        let first = (Arc::clone(&run), model.clone());
        let mut held = std::collections::VecDeque::new();
        let mut rounds = 0;
        while rounds < 40 {
            let mut changes = Changes::new();
            let near = bed.next(2400);
            for _ in 0..=bed.next(12) {
                let number = if bed.next(3) == 0 { bed.next(2400) } else { (near + bed.next(60)).min(2399) };
                let value = match bed.next(8) {
                    0 => None,
                    _ => {
                        let length = usize::try_from(bed.next(160)).unwrap();
                        Some(vec![testudo_base::num::low32(bed.next(250)).to_le_bytes()[0]; length])
                    }
                };
                changes.insert(key(number), value);
            }
            let Some(next) = bed.update(&run, &changes) else { break };
            apply(&mut model, changes);
            run = next;
            check(&run, &model);
            held.push_back((Arc::clone(&run), model.clone()));
            if held.len() > 3 {
                let (old, of_old) = held.pop_front().unwrap();
                check(&old, &of_old);
            }
            rounds += 1;
        }
        assert!(rounds > 5, "seed {seed}: {rounds} rounds");
        assert!(seed > 1 || overflow(&run) > 0, "some page overflows");
        check_leniently(&bed, &run, &model);
        check(&first.0, &first.1);
        check_leniently(&bed, &first.0, &first.1);
        for (old, of_old) in held {
            check(&old, &of_old);
        }
    }
}

#[test]
fn unused_places_are_reused() {
    let mut bed = Bed::new(1);
    let model: Model = (0..1200).map(|number| (key(number), vec![7; 100])).collect();
    let mut run = bed.run_of(&model);
    let written = run.reference().stored_bytes();
    for round in 0..50u8 {
        let changes = (0..200).map(|number| (key(number * 3), Some(vec![round; 100]))).collect();
        run = bed.update(&run, &changes).unwrap();
    }
    let pages = run.reference().replaced.as_ref().unwrap().page_count() as u64;
    let taken = (run.reference().stored_bytes() - written) / 4096;
    assert!(taken <= pages + 2 + 4, "fifty rounds allocated {taken} pages for {pages} replaced ones");
    let snapshot = Arc::clone(&run);
    for round in 0..3u8 {
        let changes = (0..200).map(|number| (key(number * 3), Some(vec![round; 90]))).collect();
        run = bed.update(&run, &changes).unwrap();
    }
    snapshot.check_entries().unwrap();
    let value = snapshot.get(&key(3), 0, Access::Blocking).unwrap();
    assert!(matches!(value, Lookup::Found(Kind::Value, value, _) if value == vec![49; 100]));
}

/// Replaced and overflow pages are elsewhere; a scan of known length still reads all of them in one batch.
#[test]
fn a_scan_reads_replaced_pages_in_the_same_batch() {
    let mut bed = Bed::new(1);
    let model: Model = (0..3000).map(|number| (key(number * 4), vec![7; 100])).collect();
    let plain = bed.run_of(&model);
    let mut run = Arc::clone(&plain);
    for round in 0..3 {
        let mut changes = BTreeMap::new();
        for page in (round..60).step_by(4) {
            (0..12).for_each(|number| {
                drop(changes.insert(key(page * 196 + number * 4 + 1), Some(vec![1; 100])))
            });
        }
        run = bed.update(&run, &changes).unwrap();
    }
    assert!(overflow(&run) > 10, "there are overflow pages");
    let rounds_of = |bed: &mut Bed, run: &Arc<Run>| {
        // The index is in memory, data pages are not.
        let data_pages = run.reference().page_count();
        let mut rounds = Vec::new();
        for _ in 0..40 {
            let from = key(bed.next(10_000));
            drop(limited_scan(run, &from, 1));
            for page in 0..data_pages {
                let address = run.address(PageKind::Data, page).unwrap();
                if page < run.reference().data_pages || page >= run.reference().footer_end() {
                    bed.file.data.forget_page(address.page);
                }
            }
            let before = reads_of(bed);
            assert_eq!(limited_scan(run, &from, 150).len().min(100), 100);
            rounds.push(reads_of(bed) - before);
        }
        rounds.into_iter().sum::<u64>()
    };
    let (plain, updated) = (rounds_of(&mut bed, &plain), rounds_of(&mut bed, &run));
    assert!(
        updated <= plain + plain / 4,
        "40 scans wait {updated} times, {plain} times without replaced pages"
    );
}

/// Number of waits for the device.
fn reads_of(bed: &Bed) -> u64 {
    let io = bed.file.data.io_stats();
    io.read_rounds + io.stream_reads
}

#[test]
fn an_unpublished_version_frees_its_places() {
    let mut bed = Bed::new(1);
    let model: Model = (0..600).map(|number| (key(number), vec![7; 100])).collect();
    let run = bed.run_of(&model);
    let changes = (0..100).map(|number| (key(number), Some(vec![1; 100]))).collect();
    let first = bed.update(&run, &changes).unwrap();
    let live = || bed.file.data.space_stats().held_bytes;
    let held = live();
    drop(first);
    assert!(live() < held, "its pages are free again");
    let again = bed.update(&run, &changes).unwrap();
    check(&run, &model);
    drop((run, again));
}

#[test]
fn a_reopened_run_shares_places_with_existing_versions() {
    let mut bed = Bed::new(1);
    let model: Model = (0..600).map(|number| (key(number), vec![7; 100])).collect();
    let run = bed.run_of(&model);
    let changes = |value: u8| (0..100).map(|number| (key(number), Some(vec![value; 100]))).collect();
    let first = bed.update(&run, &changes(1)).unwrap();
    // Like a tree that is opened again while snapshots hold the previous one.
    let again = Run::open(Arc::clone(&bed.file.data), first.reference().clone()).unwrap();
    let second = bed.update(&again, &changes(2)).unwrap();
    let third = bed.update(&second, &changes(3)).unwrap();
    check(&run, &model);
    for (version, value) in [(&first, 1), (&again, 1), (&second, 2), (&third, 3)] {
        let mut model = model.clone();
        (0..100).for_each(|number| drop(model.insert(key(number), vec![value; 100])));
        check(version, &model);
    }
}

#[test]
fn an_entry_longer_than_a_page_is_refused() {
    let mut bed = Bed::new(1);
    let model: Model = (0..600).map(|number| (key(number * 4), vec![7; 100])).collect();
    let run = bed.run_of(&model);
    let large = BTreeMap::from([(key(8), Some(vec![1; 5000]))]);
    assert!(bed.update(&run, &large).is_none(), "a record longer than a page");
    check(&run, &model);
}

#[test]
fn a_reference_whose_page_numbers_overflow_is_refused() {
    let mut bed = Bed::new(1);
    let model: Model = (0..600).map(|number| (key(number), vec![7; 100])).collect();
    let changes = (0..100).map(|number| (key(number), Some(vec![1; 100]))).collect();
    let plain = bed.run_of(&model);
    let run = bed.update(&plain, &changes).unwrap();
    let mut reference = run.reference().clone();
    for more in [0, 1] {
        let last = reference.spans.len() - 1;
        let others: u32 = reference.spans[..last].iter().map(|span| span.page_count).sum();
        reference.spans[last].page_count = u32::MAX - others;
        if more == 1 {
            reference.spans.push(testudo_base::ExtentSpan { first_page: 1 << 33, page_count: 1 });
        }
        let mut encoded = Vec::new();
        reference.encode(&mut encoded);
        let decoded = RunRef::decode(&mut Reader::new(&encoded));
        assert_eq!(decoded.is_ok(), more == 0, "{decoded:?}");
    }
}

/// Returns the pages written for a version, as found without a manifest.
fn found_pages(bed: &Bed, run: &Arc<Run>) -> Vec<FoundPage> {
    let reference = run.reference();
    let replaced = reference.replaced.as_ref().unwrap();
    let newest = replaced.writings().last().copied().unwrap();
    let own = replaced.places().filter(|place| place.writing == newest);
    let found = |place: PagePlace| {
        let (physical, _) = locate(run.spans(), place.at).unwrap();
        let mut bytes = AlignedBuffer::zeroed(PAGE_SIZE);
        bed.file.data.read_many(&mut [(physical, &mut *bytes)]).into_iter().for_each(|read| read.unwrap());
        let record = ReplacedPageRecord::read(payload_of(&bytes)).unwrap();
        let block = Block::parse(payload_of(&bytes)).unwrap();
        let key = |slot: usize| [block.prefix(), block.cell(slot).unwrap().suffix].concat();
        let keys = (key(0), key(block.count() - 1));
        FoundPage { physical, writing: place.writing, record, keys }
    };
    own.map(found).collect()
}

#[test]
fn incomplete_writings_of_found_pages_are_ignored() {
    let mut bed = Bed::new(1);
    let model: Model = (0..1200).map(|number| (key(number), vec![7; 100])).collect();
    let plain = bed.run_of(&model);
    let changes = |value: u8| (0..10).map(|number| (key(number * 100), Some(vec![value; 100]))).collect();
    let committed = bed.update(&plain, &changes(1)).unwrap();
    let (lost, lost_too) =
        (bed.update(&committed, &changes(2)).unwrap(), bed.update(&committed, &changes(3)).unwrap());
    let mut found = found_pages(&bed, &committed);
    // One page of each later writing was never written.
    found.extend(found_pages(&bed, &lost).into_iter().skip(1));
    found.extend(found_pages(&bed, &lost_too).into_iter().skip(1));
    let known = plain.reference().clone().with_found_pages(found.clone());
    let list = committed.reference().replaced.as_deref().cloned().unwrap().in_map(None);
    assert_eq!(known.replaced.as_deref(), Some(&list), "the committed version is found");
    found.retain(|page| {
        page.writing.generation != committed.reference().replaced.as_ref().unwrap().writings()[0].generation
    });
    let known = plain.reference().clone().with_found_pages(found);
    assert_eq!(known.replaced, None, "incomplete writings are ignored");
}

/// A multi-page block may span two extents while other pages of the run were replaced.
#[test]
fn multi_page_blocks_across_extents_are_read_among_replaced_pages() {
    for seed in 1..20 {
        let mut bed = Bed::new(seed);
        let origin = RunOrigin {
            id: RunId(3),
            keyspace: KeyspaceId(1),
            keyspace_name: "tests".into(),
            newest_seqno: Seqno(1),
        };
        let mut model = Model::new();
        // Space is freed back to front, so that each extent is before the previously allocated one.
        let mut held: Vec<_> = (0..40).map(|_| bed.file.data.allocate(16).unwrap()).collect();
        let writer = RunWriter::new(Arc::clone(&bed.file.data), origin, 1).unwrap();
        let mut writer = writer.with_layout(RunLayout::for_page_updates(94));
        for number in 0..400u64 {
            let bytes = if bed.next(20) == 0 { 5000 + bed.next(60_000) } else { 100 };
            let value = vec![7; usize::try_from(bytes).unwrap()];
            writer.push(&Entry { key: &key(number), kind: Kind::Value, value: &value }).unwrap();
            if number % 12 == 0 {
                held.pop();
            }
            model.insert(key(number), value);
        }
        let plain = writer.finish(None).unwrap();
        assert!(plain.reference().spans.len() > 2, "the run occupies {:?}", plain.reference().spans);
        let is_changed = |(_, value): &(&Vec<u8>, &Vec<u8>)| value.len() == 100;
        let small: Vec<Vec<u8>> = model.iter().filter(is_changed).map(|(key, _)| key.clone()).collect();
        let small = small.into_iter().filter(|_| bed.next(4) == 0);
        let changes: BTreeMap<_, _> = small.map(|key| (key, Some(vec![1; 100]))).collect();
        let can_replace = {
            let update = PageUpdate::begin(&plain).unwrap().unwrap();
            move |key: &[u8]| update.can_replace(&[update.section_of(key)])
        };
        let changes = changes.into_iter().filter(|(key, _)| can_replace(key)).collect();
        let Some(run) = bed.update(&plain, &changes) else { panic!("pages must be replaced") };
        model.extend(changes.into_iter().filter_map(|(key, value)| Some((key, value?))));
        check(&run, &model);
    }
}
