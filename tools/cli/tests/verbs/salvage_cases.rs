//! Salvage after a destroyed manifest, a destroyed data page and a truncated data file, on real files: every
//! record outside the reported lost ranges is recovered with its right value, and nothing else is.

use std::{collections::BTreeMap, fs, fs::OpenOptions};

use serde_json::Value;

use crate::program::Place;

const PAGE: usize = 4096;
const RECORDS: u32 = 3000;

type Records = BTreeMap<String, String>;

fn lines(numbers: impl Iterator<Item = u32>, round: u32) -> Vec<u8> {
    let line = |n: u32| {
        let hash = u64::from(n * 8 + round).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!("user{n:06}\t{round} {hash:016x} {:>80}\n", n)
    };
    numbers.map(line).collect::<String>().into_bytes()
}

/// Store whose trees contain two generations of records and tombstones, and whose log contains a third.
fn place() -> Place {
    let place = Place::new();
    let load = ["load", "STORE", "-", "--format", "tsv", "--create"];
    place.feed(&lines(0..RECORDS, 1), &load).fine();
    place.run(&["compact", "STORE"]).fine();
    place.feed(&lines((0..RECORDS).step_by(3), 2), &load).fine();
    place.run(&["del", "STORE", "user000010"]).fine();
    place.run(&["compact", "STORE"]).fine();
    place.feed(&lines((5..RECORDS).step_by(100), 3), &load).fine();
    place.run(&["del", "STORE", "user000011"]).fine();
    place
}

fn records(place: &Place, store: &str, keyspace: &str) -> Records {
    let text = place.run(&["dump", store, "--keyspace", keyspace]).fine();
    let pair =
        |line: &str| line.split_once('\t').map(|(key, value)| (key.to_owned(), value.to_owned())).unwrap();
    text.lines().map(pair).collect()
}

fn hex(key: &str) -> String {
    key.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// Salvages and compares the recovered records with the expected ones; returns the report and the number of
/// lost records.
#[track_caller]
fn salvaged(place: &Place, expected: &Records, what: &str) -> (Value, usize) {
    let before = place.store_files();
    let answer = place.run(&["salvage", "STORE", "NEW", "--json"]);
    assert_eq!((answer.code, answer.err.as_str()), (Some(1), ""), "{what}");
    assert!(place.store_files() == before, "{what}: the damaged store was written");
    let report: Value = serde_json::from_slice(&answer.out).unwrap();
    let ranges = report["keyspaces"][0]["lost_ranges"].as_array().unwrap();
    let is_lost = |key: &str| {
        let key = hex(key);
        let contains = |range: &Value| {
            range["low_hex"].as_str().unwrap() <= key.as_str()
                && range["high_hex"].as_str().is_none_or(|high| key.as_str() < high)
        };
        ranges.iter().any(contains)
    };
    let found = records(place, "NEW", "default");
    for (key, value) in &found {
        assert_eq!(expected.get(key), Some(value), "{what}: {key} is wrong");
    }
    for key in expected.keys().filter(|key| !found.contains_key(*key)) {
        assert!(is_lost(key), "{what}: {key} is lost and not reported");
    }
    assert_eq!(report["keyspaces"][0]["records"], found.len(), "{what}");
    if let Some(beside) = report["keyspaces"][0]["older_keyspace"].as_str() {
        let older = records(place, "NEW", beside);
        assert_eq!(report["keyspaces"][0]["older_records"], older.len(), "{what}");
        assert!(older.keys().all(|key| is_lost(key) && !found.contains_key(key)), "{what}");
    }
    place.run(&["verify", "NEW", "--full"]).fine();
    fs::remove_dir_all(place.path("NEW")).unwrap();
    (report, expected.len() - found.len())
}

fn manifest_of(place: &Place) -> String {
    place.store_files().into_keys().rfind(|name| name.starts_with("manifest-")).unwrap()
}

#[test]
fn destroyed_manifest_loses_no_record() {
    let place = place();
    let expected = records(&place, "STORE", "default");
    let path = place.store().join(manifest_of(&place));
    let bytes = fs::read(&path).unwrap();
    let damages: [(&str, Vec<u8>); 4] = [
        ("zeroed", vec![0; bytes.len()]),
        ("overwritten", vec![0xa5; bytes.len()]),
        ("cut to half", bytes[..bytes.len() / 2].to_vec()),
        ("empty", Vec::new()),
    ];
    for (what, damaged) in damages {
        fs::write(&path, damaged).unwrap();
        let (report, lost) = salvaged(&place, &expected, what);
        assert_eq!((&report["method"], lost), (&"scan".into(), 0), "{what}: {report}");
        assert!(
            !report["findings"].as_array().unwrap().is_empty() && report["unproven"].is_string(),
            "{what}"
        );
    }
    fs::remove_file(&path).unwrap();
    assert_eq!(salvaged(&place, &expected, "removed").1, 0);
}

#[test]
fn destroyed_data_pages_lose_only_their_keys_and_are_reported() {
    let place = place();
    let expected = records(&place, "STORE", "default");
    let path = place.store().join("data");
    let valid = fs::read(&path).unwrap();
    let holds_records = |page: &&[u8]| page.windows(6).any(|bytes| bytes == b"user00");
    let pages: Vec<usize> = valid
        .chunks(PAGE)
        .enumerate()
        .filter_map(|(number, page)| holds_records(&page).then_some(number))
        .collect();
    assert!(pages.len() > 60, "{}", pages.len());
    let mut reports = 0;
    // One page after the other from several places, until three of them were live and their loss lost
    // records.
    for page in (0..17).flat_map(|start| pages.iter().skip(start).step_by(17)) {
        if reports == 3 {
            break;
        }
        let mut damaged = valid.clone();
        damaged[page * PAGE..(page + 1) * PAGE].fill(0x5a);
        fs::write(&path, damaged).unwrap();
        let what = format!("page {page}");
        if place.run(&["verify", "STORE", "--full"]).code == Some(0) {
            // No live run refers to the page.
            continue;
        }
        // Keys that the filter of the damaged run excludes are known to be current in older runs.
        let (report, lost) = salvaged(&place, &expected, &what);
        let ranges = report["keyspaces"][0]["lost_ranges"].as_array().unwrap();
        let about: u64 = ranges.iter().map(|range| range["records_about"].as_u64().unwrap()).sum();
        assert_eq!(ranges.len().min(1), lost.min(1), "{what}: {report}");
        assert!(lost <= 45 && about <= 90, "{what}: {lost} of {about} records: {report}");
        assert!(ranges.iter().all(|range| range["file"] == "data"), "{what}: {report}");
        reports += usize::from(lost > 0);
    }
    assert_eq!(reports, 3);
}

#[test]
fn truncated_data_file_is_salvaged_up_to_the_cut() {
    let place = place();
    let expected = records(&place, "STORE", "default");
    let path = place.store().join("data");
    let valid = fs::read(&path).unwrap();
    let used = valid.chunks(PAGE).rposition(|page| page.iter().any(|&byte| byte != 0)).unwrap() + 1;
    let manifest = place.store().join(manifest_of(&place));
    let manifest_bytes = fs::read(&manifest).unwrap();
    let (mut recovered, mut older) = (Vec::new(), 0);
    for part in [0, 2, 5, 7] {
        for has_manifest in [true, false] {
            fs::write(&path, &valid).unwrap();
            let length = (used * PAGE * part / 8) as u64 + 100;
            OpenOptions::new().write(true).open(&path).unwrap().set_len(length).unwrap();
            fs::write(&manifest, if has_manifest { manifest_bytes.as_slice() } else { &[] }).unwrap();
            let what = format!("{part} eighths, manifest {has_manifest}");
            if has_manifest {
                let (report, lost) = salvaged(&place, &expected, &what);
                recovered.push(expected.len() - lost);
                older += report["keyspaces"][0]["older_records"].as_u64().unwrap();
            } else {
                only_values_that_were_written(&place, &what);
            }
        }
    }
    assert!(recovered.windows(2).all(|pair| pair[0] <= pair[1]), "{recovered:?}");
    assert!(older > 100, "{older}");
    assert!(recovered[0] >= 30 && recovered[3] > expected.len() / 2, "{recovered:?}");
}

/// Without the manifest and the end of the file, nothing proves that newer versions existed. The report says
/// so, and every recovered value is one that its key had.
#[track_caller]
fn only_values_that_were_written(place: &Place, what: &str) {
    let answer = place.run(&["salvage", "STORE", "NEW", "--json"]);
    assert_eq!(answer.code, Some(1), "{what}: {}", answer.err);
    let report: Value = serde_json::from_slice(&answer.out).unwrap();
    assert!(report["unproven"].as_str().unwrap().contains("older versions may appear"), "{what}");
    for (key, value) in records(place, "NEW", report["keyspaces"][0]["name"].as_str().unwrap()) {
        let (number, round) = (key["user".len()..].parse().unwrap(), value[..1].parse().unwrap());
        let line = format!("{key}\t{value}\n");
        assert_eq!(lines(std::iter::once(number), round), line.as_bytes(), "{what}");
    }
    fs::remove_dir_all(place.path("NEW")).unwrap();
}
