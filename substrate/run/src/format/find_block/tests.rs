use std::collections::BTreeMap;

use testudo_base::{Entry, Kind, PAGE_SIZE, checksum::hash_key};

use super::*;
use crate::{Lookup, test_bed::TestBed};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Keys with shared prefixes of this length, and suffixes that branch at every length.
fn model(starts: &[usize], ends: u32, value_bytes: usize) -> Model {
    let mut model = Model::new();
    for &start in starts {
        for number in 0..ends {
            let end = format!("{:o}", number * 7);
            let key = [&vec![b'p'; start][..], end.as_bytes()].concat();
            model.insert(key, vec![number.to_le_bytes()[0]; value_bytes]);
        }
    }
    model
}

fn run_of(model: &Model) -> Arc<Run> {
    let mut writer = TestBed::with_cache(4 << 20).writer();
    for (key, value) in model {
        writer.push(&Entry { key, kind: Kind::Value, value }).unwrap();
    }
    writer.finish(None).unwrap()
}

/// The keys of a model, and others between and around them.
fn probes(model: &Model) -> impl Iterator<Item = Vec<u8>> + '_ {
    model.keys().flat_map(|key| {
        let mut last_lowered = key.clone();
        if let Some(last) = last_lowered.last_mut() {
            *last = last.wrapping_sub(1);
        }
        let shortened = key[..key.len().saturating_sub(1)].to_vec();
        [
            key.clone(),
            [key.as_slice(), b"\0"].concat(),
            [key.as_slice(), b"8"].concat(),
            last_lowered,
            shortened,
        ]
    })
}

fn check(model: &Model) -> Arc<Run> {
    let run = run_of(model);
    run.check_entries().unwrap();
    let mut cursor = RunCursor::new(Arc::clone(&run), ReadAhead::Adaptive);
    for key in probes(model) {
        let found = run.get(&key, hash_key(&key), Access::Blocking).unwrap();
        let value_of =
            |found| if let Lookup::Found(Kind::Value, value, _) = found { Some(value) } else { None };
        assert!(
            value_of(found).as_ref() == model.get(&key),
            "get {} bytes, {:?}",
            key.len(),
            key.last_chunk::<8>()
        );
        cursor.seek(&key).unwrap();
        let next = model.range(key.clone()..).next().map(|(key, _)| key.as_slice());
        assert!(cursor.entry().map(|entry| entry.key) == next, "seek {} bytes", key.len());
        cursor.seek_before(&key).unwrap();
        let before = model.range(..key.clone()).next_back().map(|(key, _)| key.as_slice());
        assert!(cursor.entry().map(|entry| entry.key) == before, "seek before {} bytes", key.len());
    }
    run
}

#[test]
fn keys_with_long_shared_prefixes_are_found_in_many_index_blocks() {
    let run = check(&model(&[3, 255, 256, 257, 300, 1000], 400, 1900));
    assert!(run.footer().unwrap().index.len() > 5);
}

#[test]
fn keys_longer_than_a_page_are_found() {
    check(&model(&[0, 4000, 9000, 65_500], 90, 3));
}

#[test]
fn random_long_keys_are_found() {
    let key = |seed: u8| -> Vec<u8> {
        (0..5000u32).map(|at| (at.wrapping_mul(31) >> 3).to_le_bytes()[0] ^ seed).collect()
    };
    check(&(1..200).map(|seed| (key(seed), vec![seed])).collect());
}

#[test]
fn index_and_reference_of_long_keys_are_small() {
    let run = run_of(&model(&[60_000], 200, 10));
    let mut reference = Vec::new();
    run.reference().encode(&mut reference);
    let spans = 12 * run.reference().spans.len();
    assert!(reference.len() - spans < 700, "{} bytes", reference.len());
    let other_pages = run.reference().page_count() - run.reference().data_pages;
    assert!(other_pages <= 5, "{other_pages} pages of index, filter and footer");
    assert!(run.reference().stored_bytes() < 200 * (60_000 + 2 * PAGE_SIZE as u64));
    let (first, last) = run.exact_ends().unwrap();
    assert!(first.len() > 60_000 && last.len() > 60_000 && first < last);
}

#[test]
fn range_estimates_distinguish_long_keys() {
    let model = model(&[5000], 300, 100);
    let run = run_of(&model);
    let keys: Vec<&Vec<u8>> = model.keys().collect();
    let whole = run.reference().user_bytes;
    for part in [0, 75, 150, 225, 299] {
        let bytes = run.bytes_between(None, Some(keys[part])).unwrap();
        let expected = whole * part as u64 / 300;
        assert!(bytes.abs_diff(expected) <= whole / 50, "{part}: {bytes}, not {expected}");
    }
}
