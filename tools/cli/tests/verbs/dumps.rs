//! Dumps of the raw files, valid or not.

use std::{fs, path::PathBuf};

use serde_json::Value;

use crate::program::{Answer, Place};

const PAGE: usize = 4096;

/// Store with flushed records, and some that are only in the log.
fn place() -> Place {
    let place = Place::with_records();
    place.run(&["compact", "STORE"]).fine();
    place.feed(b"late\tnew\\n\nlater\t\n", &["load", "STORE", "-", "--format", "tsv"]).fine();
    place.run(&["del", "STORE", "k07"]).fine();
    place
}

fn file(place: &Place, prefix: &str) -> PathBuf {
    let name = place.store_files().into_keys().rfind(|name| name.starts_with(prefix)).unwrap();
    place.store().join(name)
}

/// Page of the data file that contains the records.
fn page_of_records(place: &Place) -> usize {
    let bytes = fs::read(file(place, "data")).unwrap();
    bytes.chunks(PAGE).position(|page| page.windows(3).any(|bytes| bytes == b"v42")).unwrap()
}

#[track_caller]
fn lines(answer: &Answer, code: i32) -> Vec<Value> {
    assert_eq!((answer.code, answer.err.as_str()), (Some(code), ""));
    let text = String::from_utf8(answer.out.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn log_dump_lists_operations() {
    let place = place();
    let before = place.store_files();
    let pieces = lines(&place.run(&["wal", "dump", "STORE", "--json"]), 0);
    let operations: Vec<&Value> =
        pieces.iter().filter_map(|piece| piece["operations"].as_array()).flatten().collect();
    let find = |key: &str| operations.iter().rfind(|operation| operation["key"] == key).unwrap();
    assert_eq!((&find("late")["operation"], &find("late")["value"]), (&"put".into(), &"new\n".into()));
    assert_eq!(find("later")["value"], "");
    assert_eq!((&find("k07")["operation"], &find("k07")["value"]), (&"remove".into(), &Value::Null));
    let text = place.run(&["wal", "dump", "STORE"]).fine();
    assert!(text.contains("put late = new\\n") && text.contains("remove k07"), "{text}");
    assert_eq!(place.store_files(), before);
}

#[test]
fn manifest_dump_lists_changes() {
    let place = place();
    let pieces = lines(&place.run(&["manifest", "dump", "STORE", "--json"]), 0);
    let id = place.run(&["info", "STORE", "--json"]).json()["store_id"].clone();
    assert!(pieces.iter().any(|piece| piece["slot"] == 1 && piece["store_id"] == id));
    let changes: Vec<&Value> =
        pieces.iter().filter_map(|piece| piece["changes"].as_array()).flatten().collect();
    assert!(
        changes.iter().any(|change| change["change"] == "create_keyspace" && change["name"] == "default")
    );
    assert!(changes.iter().any(|change| change["change"] == "references" && change["count"] == 1));
    let text = place.run(&["manifest", "dump", "STORE"]).fine();
    assert!(text.contains("created as default") && text.contains("superblock slot 0"), "{text}");
}

#[test]
fn page_dump_lists_entries() {
    let place = place();
    let page = page_of_records(&place);
    let pieces = lines(&place.run(&["page", "dump", "STORE", &page.to_string(), "--json"]), 0);
    let entries = pieces[0]["contents"]["entries"].as_array().unwrap();
    assert!(entries.iter().any(|entry| entry["key"] == "k42" && entry["value"] == "v42"));
    assert_eq!((&pieces[0]["kind"], &pieces[0]["checksum_checked"]), (&"data".into(), &true.into()));
    let offset = format!("@{}", page * PAGE + 17);
    let text = place.run(&["page", "dump", "STORE", &offset]).fine();
    assert!(text.contains("put k42 = v42"), "{text}");
    // The whole run: data, and a footer that contains index and filter.
    let text = place.run(&["page", "dump", "STORE", &page.to_string(), "--count", "2"]).fine();
    for kind in ["data block", "footer block", "keyspace default", "contains index and filter", "page 0 of"] {
        assert!(text.contains(kind), "{kind}: {text}");
    }
    let pieces =
        lines(&place.run(&["page", "dump", "STORE", &page.to_string(), "--count", "2", "--json"]), 0);
    let enclosed = &pieces[1]["contents"]["enclosed"];
    assert_eq!(enclosed["blocks"].as_array().map(Vec::len), Some(1), "{enclosed}");
    assert!(enclosed["filter_bytes"].as_u64() > Some(50), "{enclosed}");
    place.run(&["page", "dump", "STORE", "99999999999"]).missing(&["no page 99999999999"]);
    place.run(&["page", "dump", "STORE", "first"]).not_understood(&["not a page"]);
    place.run(&["wal", "dump", "NOWHERE"]).missing(&["NOWHERE"]);
}

#[test]
fn page_dump_includes_indexes_and_filters_of_large_runs() {
    let place = place();
    let records: String = (0..4000).map(|n| format!("large{n:06}\tvalue\n")).collect();
    place.feed(records.as_bytes(), &["load", "STORE", "-", "--format", "tsv"]).fine();
    place.run(&["compact", "STORE"]).fine();
    let bytes = fs::read(file(&place, "data")).unwrap();
    let is_of_records = |page: &&[u8]| page.windows(5).any(|bytes| bytes == b"value");
    let first = bytes.chunks(PAGE).position(|page| is_of_records(&page)).unwrap();
    let count = (bytes.len() / PAGE - first).to_string();
    let answer = place.run(&["page", "dump", "STORE", &first.to_string(), "--count", &count, "--json"]);
    let pieces = lines(&answer, answer.code.unwrap());
    let of_kind = |kind: &str| pieces.iter().find(|piece| piece["kind"] == kind).unwrap()["contents"].clone();
    assert!(of_kind("index")["blocks"].as_array().unwrap().len() > 10);
    assert!(of_kind("filter")["filter_bytes"].as_u64() > Some(3000));
}

#[test]
fn damaged_page_is_explained_and_later_pages_are_dumped() {
    let place = place();
    let page = page_of_records(&place);
    let path = file(&place, "data");
    let mut bytes = fs::read(&path).unwrap();
    bytes[page * PAGE + 300] ^= 4;
    fs::write(&path, bytes).unwrap();
    let pieces =
        lines(&place.run(&["page", "dump", "STORE", &page.to_string(), "--count", "2", "--json"]), 1);
    assert_eq!(pieces[0]["damage"], "page checksum does not match");
    assert_eq!(pieces.len(), 2);
    assert!(pieces[1..].iter().all(|piece| piece["damage"] == Value::Null));
}

#[test]
fn damage_in_log_and_manifest_is_reported_and_skipped() {
    let place = place();
    // `k07` is removed after `late` is written, which adds new segments: damage the segment with `late`.
    let record_in = |bytes: &[u8]| bytes.windows(4).rposition(|bytes| bytes == b"late");
    let (name, mut bytes) =
        place.store_files().into_iter().find(|(_, bytes)| record_in(bytes).is_some()).unwrap();
    assert!(name.starts_with("wal-"));
    let record = record_in(&bytes).unwrap();
    bytes[record] ^= 1;
    fs::write(place.store().join(name), &bytes).unwrap();
    let pieces = lines(&place.run(&["wal", "dump", "STORE", "--json"]), 1);
    let damaged = pieces.iter().position(|piece| !piece["damage"].is_null()).unwrap();
    assert!(pieces[damaged + 1..].iter().any(|piece| piece["kind"] == "commit"), "{pieces:?}");
    let mut bytes = fs::read(file(&place, "manifest-")).unwrap();
    bytes[30] ^= 1;
    fs::write(file(&place, "manifest-"), &bytes).unwrap();
    fs::remove_file(file(&place, "superblock")).unwrap();
    let pieces = lines(&place.run(&["manifest", "dump", "STORE", "--json"]), 1);
    assert!(pieces[0]["damage"].as_str().unwrap().contains("superblock"), "{pieces:?}");
    assert!(pieces.iter().any(|piece| piece["edit"].as_u64() > Some(0)), "the id comes from the log");
}

#[test]
fn dumps_survive_arbitrary_bytes() {
    let place = place();
    let mut state = 7u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state >> 33
    };
    for (prefix, verb) in [
        ("data", &["page", "dump", "STORE", "0", "--count", "1000"][..]),
        ("wal-", &["wal", "dump", "STORE"]),
        ("manifest-", &["manifest", "dump", "STORE"]),
        ("superblock", &["manifest", "dump", "STORE"]),
    ] {
        let path = file(&place, prefix);
        let valid = fs::read(&path).unwrap();
        for round in 0..6 {
            let mut bytes = valid.clone();
            let content = bytes.len() - bytes.iter().rev().take_while(|&&byte| byte == 0).count();
            for _ in 0..1 << round {
                let at = usize::try_from(random()).unwrap() % content;
                bytes[at] = random().to_le_bytes()[0];
            }
            if round % 3 == 2 {
                bytes.truncate(usize::try_from(random()).unwrap() % content);
            }
            fs::write(&path, &bytes).unwrap();
            for json in [None, Some("--json")] {
                let arguments: Vec<&str> = verb.iter().copied().chain(json).collect();
                let answer = place.run(&arguments);
                assert!(matches!(answer.code, Some(0..=2)), "{prefix} round {round}: {}", answer.err);
            }
        }
        fs::write(&path, &valid).unwrap();
    }
}
