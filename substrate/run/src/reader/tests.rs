use std::{collections::BTreeMap, path::Path};

use testudo_base::{Cursor, Entry, Incarnation, KeyspaceId, Kind, RunId, Seqno, StoreId, checksum::hash_key};
use testudo_env::{Env, File, MemEnv, OpenMode, OpenOptions, SplitMix};

use super::*;
use crate::{
    BoundedCursor, KeyBounds, LenientCursor, PageWalk, ReadAhead, RunCursor, RunOrigin, RunWriter, Target,
    seek_together,
};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn data_file(cache_bytes: u64) -> (Arc<dyn File>, Arc<DataFile>) {
    let options = OpenOptions { mode: OpenMode::CreateNew, direct: true };
    let file = MemEnv::new(1).open(Path::new("/data"), options).unwrap();
    let writer = Some(Incarnation(1));
    let data = DataFile::new(Arc::clone(&file), StoreId(7), cache_bytes, std::iter::empty(), writer).unwrap();
    (file, data)
}

fn run_of(data: &Arc<DataFile>, model: &Model) -> Arc<Run> {
    let origin = RunOrigin {
        id: RunId(3),
        keyspace: KeyspaceId(1),
        keyspace_name: "tests".into(),
        newest_seqno: Seqno(1),
    };
    let mut writer = RunWriter::new(Arc::clone(data), origin, 1 << 20).unwrap();
    for (key, value) in model {
        writer.push(&Entry { key, kind: Kind::Value, value }).unwrap();
    }
    writer.finish(None).unwrap()
}

/// Entries of such sizes in turn, with even numbers in their keys.
fn model(count: u32, value_bytes: &[usize]) -> Model {
    let entry = |number: u32| {
        let length = value_bytes[usize_of(u64::from(number)) % value_bytes.len()];
        let mut random = SplitMix::new(u64::from(number));
        let value = (0..length).map(|_| random.next_u64().to_le_bytes()[0]).collect();
        (format!("key{:06}", 2 * number).into_bytes(), value)
    };
    (0..count).map(entry).collect()
}

fn models() -> Vec<Model> {
    vec![
        model(300, &[1050]),
        model(300, &[2150]),
        model(300, &[3050]),
        model(400, &[700, 20, 3500, 1200]),
        model(60, &[900, 70_000, 5000, 30_000]),
    ]
}

/// Positions of the data blocks.
fn blocks(run: &Run) -> Vec<BlockPosition> {
    let index = &run.footer().unwrap().index;
    let entries = index.iter().flat_map(|(_, at)| run.index_entries(*at).unwrap());
    entries.map(|(_, entry)| entry.position).collect()
}

fn get(run: &Run, key: &[u8]) -> Option<Vec<u8>> {
    match run.get(key, hash_key(key), Access::Blocking).unwrap() {
        Lookup::Found(_, value, _) => Some(value),
        _ => None,
    }
}

#[test]
fn look_ups_find_all_whether_the_cache_holds_much_or_little() {
    for model in models() {
        for cache_bytes in [64 << 10, 8 << 20] {
            let (_, data) = data_file(cache_bytes);
            let run = run_of(&data, &model);
            run.check_entries().unwrap();
            let keys: Vec<&Vec<u8>> = model.keys().collect();
            let mut random = SplitMix::new(5);
            for _ in 0..2000 {
                let key = keys[usize_of(random.below(u64_of(keys.len())))];
                assert!(get(&run, key).as_ref() == model.get(key));
                let absent = [key.as_slice(), b"x"].concat();
                assert_eq!(run.get_known(&absent, Access::Blocking).unwrap(), Lookup::Absent);
            }
        }
    }
}

#[test]
fn a_block_of_several_pages_is_read_once_and_again_when_a_page_of_it_has_gone() {
    let (_, data) = data_file(8 << 20);
    let model = model(300, &[1050]);
    let run = run_of(&data, &model);
    let block = blocks(&run)[3];
    assert!((2..=8).contains(&block.pages), "{block:?}");
    let place = run.cached_place(PageKind::Data, block).unwrap().unwrap();
    let key = run.first_key_of(block).unwrap();
    let reads = || data.io_stats().page_reads;
    let before = reads();
    for _ in 0..3 {
        assert_eq!(get(&run, &key).as_ref(), model.get(&key));
    }
    assert_eq!(reads(), before, "it came with the look at its first key");
    assert!(data.has_block(&place));
    for at in 0..u64::from(block.pages) {
        // What takes the place of a page.
        data.forget_page(place.page + at);
        assert!(!data.has_block(&place));
        let before = reads();
        for (key, value) in &model {
            assert_eq!(get(&run, key).as_ref(), Some(value));
        }
        assert!(reads() > before && data.has_block(&place));
        data.forget_page(place.page + at);
        let mut cursor = RunCursor::new(Arc::clone(&run), ReadAhead::Adaptive);
        cursor.seek(&key).unwrap();
        assert_eq!(cursor.entry().map(|entry| entry.value.to_vec()).as_ref(), model.get(&key));
        assert!(data.has_block(&place));
    }
}

#[test]
fn blocks_that_several_look_ups_miss_are_read_together() {
    let (_, data) = data_file(8 << 20);
    let model = model(300, &[1050]);
    let run = run_of(&data, &model);
    run.footer().unwrap();
    let progress: Vec<_> = (0..5).map(|_| Cell::new(LookupProgress::default())).collect();
    let keys: Vec<&Vec<u8>> = model.keys().step_by(60).collect();
    let rounds = data.io_stats().read_rounds;
    let mut open: Vec<usize> = (0..keys.len()).collect();
    while !open.is_empty() {
        let wanted = RefCell::new(Vec::new());
        open.retain(|&at| {
            let access = Access::Collecting(&wanted, &progress[at]);
            match run.get(keys[at], hash_key(keys[at]), access).unwrap() {
                Lookup::Waiting => true,
                Lookup::Found(_, value, _) => {
                    assert_eq!(Some(&value), model.get(keys[at]));
                    false
                }
                Lookup::Absent => panic!("it is there"),
            }
        });
        if !open.is_empty() {
            data.load_pages(&wanted.take()).unwrap();
        }
    }
    assert_eq!(data.io_stats().read_rounds - rounds, 1);
}

#[test]
fn cursors_go_both_ways_and_seek() {
    for model in models() {
        for read_ahead in [ReadAhead::Adaptive, ReadAhead::Pages(3), ReadAhead::Pages(64)] {
            let (_, data) = data_file(256 << 10);
            let run = run_of(&data, &model);
            let mut cursor = RunCursor::new(Arc::clone(&run), read_ahead);
            cursor.seek_first().unwrap();
            for (key, value) in &model {
                let entry = cursor.entry().unwrap();
                assert!(entry.key == key && entry.value == value);
                cursor.next().unwrap();
            }
            assert!(cursor.entry().is_none());
            cursor.seek_last().unwrap();
            for (key, value) in model.iter().rev() {
                let entry = cursor.entry().unwrap();
                assert!(entry.key == key && entry.value == value);
                cursor.prev().unwrap();
            }
            let mut random = SplitMix::new(9);
            for _ in 0..200 {
                let key = format!("key{:06}", random.below(900)).into_bytes();
                cursor.seek(&key).unwrap();
                for (key, value) in model.range(key.clone()..).take(20) {
                    let entry = cursor.entry().unwrap();
                    assert!(entry.key == key && entry.value == value);
                    cursor.next().unwrap();
                }
                cursor.seek_before(&key).unwrap();
                let before = model.range(..key).next_back();
                assert!(cursor.entry().map(|entry| entry.key) == before.map(|(key, _)| key.as_slice()));
            }
            let bounds = KeyBounds { low: Some(b"key000021".into()), high: Some(b"key000084".into()) };
            let range = model.range(b"key000021".to_vec()..b"key000084".to_vec());
            let mut bounded = BoundedCursor::new(RunCursor::new(run, read_ahead), bounds);
            bounded.seek_first().unwrap();
            for (key, _) in range {
                assert_eq!(bounded.entry().unwrap().key, key);
                bounded.next().unwrap();
            }
            assert!(bounded.entry().is_none());
        }
    }
}

#[test]
fn cursors_are_positioned_together() {
    let (_, data) = data_file(8 << 20);
    let model = model(300, &[1050]);
    let run = run_of(&data, &model);
    run.footer().unwrap();
    let targets: Vec<&Vec<u8>> = model.keys().step_by(70).collect();
    let mut cursors: Vec<RunCursor> =
        targets.iter().map(|_| RunCursor::new(Arc::clone(&run), ReadAhead::Adaptive)).collect();
    for (cursor, target) in cursors.iter_mut().zip(&targets) {
        cursor.begin(Target::From(target));
    }
    let rounds = data.io_stats().read_rounds;
    seek_together(&mut cursors, &data).unwrap();
    assert_eq!(data.io_stats().read_rounds - rounds, 1);
    for (cursor, target) in cursors.iter_mut().zip(targets) {
        for (key, value) in model.range(target.clone()..).take(40) {
            let entry = cursor.entry().unwrap();
            assert!(entry.key == key && entry.value == value);
            cursor.next().unwrap();
        }
    }
}

#[test]
fn damage_in_any_page_of_a_block_is_found_and_costs_that_block() {
    let model = model(100, &[1050]);
    let (file, data) = data_file(8 << 20);
    let run = run_of(&data, &model);
    let block = blocks(&run)[1];
    let first = run.cached_place(PageKind::Data, block).unwrap().unwrap().page;
    let inside = run.first_key_of(block).unwrap();
    let behind = run.first_key_of(blocks(&run)[2]).unwrap();
    let in_block = model.range(inside.clone()..behind).count();
    for at in 0..u64::from(block.pages) {
        let offset = (first + at) * PAGE_BYTES;
        let mut intact = testudo_env::AlignedBuffer::zeroed(PAGE_SIZE);
        file.read_at(offset, &mut intact).unwrap();
        let mut damaged = intact.clone();
        damaged[100] ^= 4;
        file.write_at(offset, &damaged).unwrap();
        (0..u64::from(block.pages)).for_each(|page| data.forget_page(first + page));
        let error = run.get(&inside, hash_key(&inside), Access::Blocking).unwrap_err();
        let place = format!("{}", first * PAGE_BYTES);
        assert!(error.to_string().contains(&place), "{error} names {place}");
        let mut walk = PageWalk::new(run.reference(), StoreId(7), 0);
        let mut bad = Vec::new();
        while let Some(stretch) =
            walk.next_stretch(&mut |page, buffer: &mut [u8]| run.read_pages(page, buffer)).unwrap()
        {
            bad.extend(stretch.blocks.iter().filter(|block| block.damage.is_some()).map(|block| block.page));
        }
        assert_eq!(bad.first(), Some(&block.page));
        assert!(bad.iter().all(|page| (block.page..block.page + block.pages).contains(page)), "{bad:?}");
        let mut lenient = LenientCursor::new(Arc::clone(&file), StoreId(7), run.reference());
        let (mut entries, mut lost) = (0, 0);
        loop {
            lost += lenient.advance().map_or(0, |lost| lost.pages);
            let Some(entry) = lenient.entry() else { break };
            assert_eq!(model.get(entry.key).map(Vec::as_slice), Some(entry.value));
            entries += 1;
        }
        assert_eq!((entries, lost), (model.len() - in_block, block.pages));
        file.write_at(offset, &intact).unwrap();
        assert_eq!(get(&run, &inside).as_ref(), model.get(&inside));
    }
}
