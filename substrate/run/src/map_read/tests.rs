use std::{collections::BTreeMap, path::Path};

use testudo_base::{Cursor, Entry, Kind, RunId, Seqno, checksum::hash_key, codec::Reader, sync::Arc};
use testudo_env::{Env, OpenMode, OpenOptions};

use super::*;
use crate::{
    Access, EntryList, Lookup, PageUpdate, PreparedVersion, ReadAhead, Run, RunCursor, RunRef,
    test_bed::TestBed,
};

const SECTOR: usize = 512;

fn key(number: u64) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

/// A run of 600 records of 100 bytes.
fn run_in(bed: &TestBed) -> Arc<Run> {
    let mut writer = bed.writer();
    for number in 0..600 {
        writer.push(&Entry { key: &key(number), kind: Kind::Value, value: &[7; 100] }).unwrap();
    }
    writer.finish(None).unwrap()
}

/// Overwrites a record; the version gets `id` as its generation and age.
fn overwrite(run: &Arc<Run>, number: u64, value: u8, id: u64) -> Arc<Run> {
    PreparedVersion::write(vec![prepare(run, number, value, id)]).unwrap().pop().unwrap()
}

fn prepare(run: &Arc<Run>, number: u64, value: u8, id: u64) -> PreparedVersion {
    let mut update = PageUpdate::begin(run).unwrap().unwrap();
    let section = update.section_of(&key(number));
    let old = PageUpdate::read(&[(&update, &[section])]).unwrap().pop().unwrap().pop().unwrap();
    let mut new = EntryList::default();
    for entry in old.iter() {
        let value = if entry.key == key(number) { vec![value; 100] } else { entry.value.to_vec() };
        new.push(&Entry { value: &value, ..entry });
    }
    update.replace(section, &old, &key(number), new);
    update.prepare(RunId(id), Seqno(id)).unwrap().unwrap()
}

fn stored(run: &Run) -> RunRef {
    let mut encoded = Vec::new();
    run.reference().encode(&mut encoded);
    RunRef::decode(&mut Reader::new(&encoded)).unwrap()
}

fn reopened(run: &Run) -> Arc<Run> {
    Run::open(Arc::clone(run.data()), stored(run)).unwrap()
}

fn value_of(run: &Run, number: u64) -> Result<u8> {
    match run.get(&key(number), hash_key(&key(number)), Access::Blocking)? {
        Lookup::Found(Kind::Value, value, _) => Ok(value[0]),
        other => panic!("record {number} is {other:?}"),
    }
}

fn map_page_of(run: &Run) -> u64 {
    let reference = run.reference();
    reference.map_pages(reference.map().unwrap()).unwrap()[0]
}

fn page_bytes(run: &Run, page: u64) -> AlignedBuffer {
    let mut bytes = AlignedBuffer::zeroed(PAGE_SIZE);
    run.data().read_many(&mut [(page, &mut *bytes)]).into_iter().for_each(|read| read.unwrap());
    bytes
}

/// Every read of data of a run whose map is lost fails; none returns an older page.
fn assert_is_lost(run: &Run) {
    let lost = reopened(run);
    assert!(!lost.reference().has_known_places());
    let error = value_of(&lost, 0).unwrap_err();
    assert!(error.to_string().contains("the map of its replaced pages"), "{error}");
    for number in [1, 300, 599] {
        assert!(value_of(&lost, number).is_err());
    }
    let mut cursor = RunCursor::new(Arc::clone(&lost), ReadAhead::Pages(4));
    assert!(cursor.seek_first().is_err());
    assert!(cursor.seek_last().is_err());
    assert!(PageUpdate::begin(&lost).is_err());
    assert!(lost.check_pages().is_err() && lost.check_entries().is_err());
    let mut walk = crate::PageWalk::new(lost.reference(), lost.data().store(), 0);
    let mut read = |page: u32, buffer: &mut [u8]| lost.read_pages(page, buffer);
    let (mut pages, mut damaged) = (0, 0);
    while let Some(stretch) = walk.next_stretch(&mut read).unwrap() {
        pages += stretch.blocks.iter().map(|block| block.pages).sum::<u32>();
        let is_damaged = |block: &&crate::WalkedBlock| block.damage.is_some();
        damaged += stretch.blocks.iter().filter(is_damaged).map(|block| block.pages).sum::<u32>();
    }
    assert_eq!(pages, lost.reference().page_count(), "every page is visited");
    assert!(damaged >= lost.reference().data_pages, "data pages are reported");
}

#[test]
fn a_reopened_run_reads_its_map() {
    let bed = TestBed::with_cache(4 << 20);
    let mut run = run_in(&bed);
    for round in 0..40 {
        run = overwrite(&run, round * 13, 1, 100 + round);
    }
    let before = bed.data.io_stats().read_rounds;
    let again = Run::open_all(&bed.data, vec![stored(&run), stored(&run), stored(&run)]).unwrap();
    assert_eq!(bed.data.io_stats().read_rounds - before, 1, "maps are read in one batch");
    assert!(again.iter().all(|again| again.reference() == run.reference()));
    assert_eq!((value_of(&again[0], 13).unwrap(), value_of(&again[0], 14).unwrap()), (1, 7));
    let mut found = stored(&run);
    let file = open_file(&bed);
    found.read_map(&*file, bed.data.store()).unwrap();
    assert_eq!(&found, run.reference(), "salvage reads it from the file");
}

fn open_file(bed: &TestBed) -> Arc<dyn File> {
    bed.env.open(Path::new("/data"), OpenOptions { mode: OpenMode::Read, direct: false }).unwrap()
}

#[test]
fn the_reference_has_the_same_size_for_any_number_of_replaced_pages() {
    let bed = TestBed::with_cache(4 << 20);
    let first = overwrite(&run_in(&bed), 0, 1, 100);
    let mut last = Arc::clone(&first);
    for number in (0..600).step_by(20) {
        last = overwrite(&last, number, 2, 101 + number);
    }
    assert!(last.reference().replaced.as_ref().unwrap().page_count() > 15);
    let bytes = |run: &Run| {
        let mut out = Vec::new();
        run.reference().encode(&mut out);
        out.len() - run.reference().spans.len() * 12
    };
    assert_eq!(bytes(&last), bytes(&first));
    assert!(bytes(&last) < 200, "{} bytes", bytes(&last));
}

#[test]
fn a_map_torn_at_any_sector_is_refused() {
    let bed = TestBed::with_cache(4 << 20);
    let mut run = run_in(&bed);
    // Enough replaced pages that no sector of the map is equal in two versions by chance.
    for number in 0..600 {
        run = overwrite(&run, number, 1, 100 + number);
    }
    let before = overwrite(&run, 3, 2, 900);
    let page = map_page_of(&before);
    let older = page_bytes(&run, map_page_of(&run));
    let whole = page_bytes(&before, page);
    let sectors = PAGE_SIZE / SECTOR;
    for torn in 1..sectors {
        for is_start in [true, false] {
            let mut bytes = AlignedBuffer::zeroed(PAGE_SIZE);
            let range = if is_start { 0..torn * SECTOR } else { torn * SECTOR..PAGE_SIZE };
            bytes.copy_from_slice(&older);
            bytes[range.clone()].copy_from_slice(&whole[range]);
            if bytes[..] == whole[..] {
                continue;
            }
            bed.data.write_pages(page, &bytes).unwrap();
            // Sectors after the payload are zeros in both.
            let end = testudo_storage::PAGE_HEADER_BYTES + payload_of(&whole).len();
            if bytes[..end] != whole[..end] {
                assert_is_lost(&before);
            }
        }
    }
    bed.data.write_pages(page, &whole).unwrap();
    assert_eq!(value_of(&reopened(&before), 3).unwrap(), 2);
}

#[test]
fn an_older_map_of_the_same_run_is_refused() {
    let bed = TestBed::with_cache(4 << 20);
    let older = overwrite(&run_in(&bed), 0, 1, 100);
    let newer = overwrite(&older, 300, 2, 101);
    // The device lost the write of the newer one, whose place had the older one before.
    let mut bytes = page_bytes(&older, map_page_of(&older));
    let page = map_page_of(&newer);
    let map = older.reference().map().unwrap();
    let identity = older.reference().map_identity(map, bed.data.store(), page);
    let length = payload_of(&bytes).len();
    testudo_storage::seal_pages(&mut bytes, &identity, length);
    bed.data.write_pages(page, &bytes).unwrap();
    assert_is_lost(&newer);
    assert_eq!(value_of(&reopened(&older), 0).unwrap(), 1, "the older version is intact");
}

#[test]
fn a_map_of_another_run_and_another_kind_of_page_are_refused() {
    let bed = TestBed::with_cache(4 << 20);
    let run = overwrite(&run_in(&bed), 0, 1, 100);
    let page = map_page_of(&run);
    let reference = run.reference();
    let identity = reference.map_identity(reference.map().unwrap(), bed.data.store(), page);
    let sealed = |identity: &PageIdentity, run_id: RunId| {
        let mut payload = Vec::new();
        let list = reference.replaced.as_ref().unwrap();
        crate::format::map_page::encode(run_id, reference.newest_seqno, list, &mut payload);
        let mut bytes = AlignedBuffer::zeroed(PAGE_SIZE);
        let start = testudo_storage::PAGE_HEADER_BYTES;
        bytes[start..start + payload.len()].copy_from_slice(&payload);
        testudo_storage::seal_pages(&mut bytes, identity, payload.len());
        bytes
    };
    for (identity, run_id) in [
        (identity, RunId(reference.id.0 + 1)),
        (PageIdentity { kind: PageKind::Replaced, ..identity }, reference.id),
        (PageIdentity { incarnation: identity.incarnation + 1, ..identity }, reference.id),
        (PageIdentity { page: page + 1, ..identity }, reference.id),
    ] {
        bed.data.write_pages(page, &sealed(&identity, run_id)).unwrap();
        assert_is_lost(&run);
    }
    bed.data.write_pages(page, &sealed(&identity, reference.id)).unwrap();
    assert_eq!(value_of(&reopened(&run), 0).unwrap(), 1);
}

#[test]
fn maps_of_versions_in_use_are_not_overwritten() {
    let bed = TestBed::with_cache(4 << 20);
    let mut run = run_in(&bed);
    let mut held: BTreeMap<u64, Arc<Run>> = BTreeMap::new();
    for round in 0..60 {
        run = overwrite(&run, round * 7 % 600, 1, 100 + round);
        held.insert(round, Arc::clone(&run));
        if round >= 5 {
            held.remove(&(round - 5));
        }
        for version in held.values() {
            assert_eq!(reopened(version).reference(), version.reference(), "its map is intact");
        }
    }
    drop(held);
    let pages = run.reference().stored_bytes();
    for round in 0..60 {
        run = overwrite(&run, round * 7 % 600, 1, 200 + round);
    }
    assert_eq!(run.reference().stored_bytes(), pages, "places of dropped maps are written again");
}

#[test]
fn the_map_of_a_version_that_was_not_written_leaves_the_one_before_intact() {
    let bed = TestBed::with_cache(4 << 20);
    let run = overwrite(&run_in(&bed), 0, 1, 100);
    // An edit that was lost: pages may be written, but nothing refers to them.
    let lost = PreparedVersion::write(vec![prepare(&run, 0, 2, 101)]).unwrap();
    assert_eq!(value_of(&reopened(&run), 0).unwrap(), 1);
    drop(lost);
    drop(prepare(&run, 0, 3, 102));
    assert_eq!(value_of(&reopened(&run), 0).unwrap(), 1);
}

#[test]
fn maps_longer_than_a_page_are_one_block() {
    let bed = TestBed::with_cache(8 << 20);
    let mut writer = bed.writer();
    // Borders of overflow pages are long.
    let long_key = |number: u64| [&[b'k'; 200][..], &key(number)].concat();
    for number in 0..1200 {
        writer.push(&Entry { key: &long_key(number * 10), kind: Kind::Value, value: &[7; 100] }).unwrap();
    }
    let run = writer.finish(None).unwrap();
    let mut update = PageUpdate::begin(&run).unwrap().unwrap();
    let sections: Vec<usize> = (0..update.sections()).collect();
    let lists = PageUpdate::read(&[(&update, &sections)]).unwrap().pop().unwrap();
    let mut last = 0;
    for (section, old) in sections.into_iter().zip(lists) {
        let mut all = BTreeMap::new();
        old.iter().for_each(|entry| drop(all.insert(entry.key.to_vec(), entry.value.to_vec())));
        let first: u64 = last;
        let more = (first..).map(|number| number * 10 + 1).take(old.len() / 2);
        more.filter(|number| update.section_of(&long_key(*number)) == section)
            .for_each(|number| drop(all.insert(long_key(number), vec![1; 100])));
        last += old.len() as u64;
        let mut new = EntryList::default();
        all.iter().for_each(|(key, value)| new.push(&Entry { key, kind: Kind::Value, value }));
        update.replace(section, &old, &long_key(first * 10 + 1), new);
    }
    let version = update.prepare(RunId(50), Seqno(50)).unwrap().unwrap();
    let run = PreparedVersion::write(vec![version]).unwrap().pop().unwrap();
    assert!(run.reference().map().unwrap().page_count() > 1, "{:?}", run.reference().map());
    let again = reopened(&run);
    assert_eq!(again.reference(), run.reference());
    again.check_pages().unwrap();
    again.check_entries().unwrap();
    let mut walk = crate::PageWalk::new(run.reference(), bed.data.store(), 0);
    let mut read = |page: u32, buffer: &mut [u8]| run.read_pages(page, buffer);
    let mut pages = 0;
    while let Some(stretch) = walk.next_stretch(&mut read).unwrap() {
        assert!(stretch.blocks.iter().all(|block| block.damage.is_none()), "every block is valid");
        pages += stretch.blocks.iter().map(|block| block.pages).sum::<u32>();
    }
    assert_eq!(pages, run.reference().page_count());
}
