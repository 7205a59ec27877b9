//! Copies of a store: checkpoints and backups.

use std::fs;

use crate::program::Place;

#[test]
fn checkpoint_is_a_store_with_the_same_records() {
    let place = Place::with_records();
    let before = place.store_files();
    let answer = place.run(&["checkpoint", "STORE", "COPY", "--json"]).json();
    assert_eq!((&answer["keyspaces"], &answer["tail_operations"]), (&1.into(), &100.into()));
    assert_eq!(place.store_files(), before, "the store itself is only read");
    assert_eq!(place.run(&["dump", "COPY"]).fine(), place.run(&["dump", "STORE"]).fine());
    place.run(&["verify", "COPY", "--full"]).fine();
    let id = |dir: &str| place.run(&["info", dir, "--json"]).json()["store_id"].clone();
    assert_ne!(id("STORE"), id("COPY"));
    place.run(&["put", "COPY", "new", "1"]).fine();
    place.run(&["compact", "COPY"]).fine();
    let text = place.run(&["checkpoint", "COPY", "AGAIN"]).fine();
    assert!(text.contains("1 keyspaces") && text.contains("AGAIN"), "{text}");
    assert_eq!(place.run(&["get", "AGAIN", "new"]).fine(), "1\n");
}

#[test]
fn checkpoint_rejects_nonempty_target_and_unfinished_one_is_no_store() {
    let place = Place::with_records();
    fs::create_dir(place.path("COPY")).unwrap();
    place.write("COPY/mine", b"keep");
    place.run(&["checkpoint", "STORE", "COPY"]).refused(&["COPY", "not empty"]);
    assert_eq!(fs::read(place.path("COPY/mine")).unwrap(), b"keep");
    place.run(&["checkpoint", "STORE", "HALF"]).fine();
    place.write("HALF/UNFINISHED", b"");
    for verb in [&["get", "HALF", "k00"][..], &["put", "HALF", "k00", "v", "--create"]] {
        place.run(verb).refused(&["HALF", "unfinished"]);
    }
    // A second checkpoint completes it.
    place.run(&["checkpoint", "STORE", "HALF"]).fine();
    assert_eq!(place.run(&["get", "HALF", "k07"]).fine(), "v07\n");
}

fn dump(place: &Place, dir: &str) -> String {
    place.run(&["dump", dir]).fine()
}

#[test]
fn backups_are_created_listed_verified_restored_and_deleted() {
    let place = Place::with_records();
    place.run(&["compact", "STORE"]).fine();
    let first = place.run(&["backup", "create", "STORE", "REPO", "--json"]).json();
    assert_eq!((&first["id"], &first["new_runs"]), (&1.into(), &first["runs"]));
    let before = dump(&place, "STORE");
    place.run(&["put", "STORE", "later", "1"]).fine();
    let text = place.run(&["backup", "create", "STORE", "REPO"]).fine();
    assert!(text.starts_with("backup 2 of 1 keyspaces"), "{text}");
    let listed = place.run(&["backup", "list", "REPO", "--json"]).json_lines();
    assert_eq!(listed.len(), 2);
    assert_eq!((&listed[1]["new_runs"], &listed[1]["tail_operations"]), (&0.into(), &1.into()));
    let table = place.run(&["backup", "list", "REPO"]).fine();
    assert!(table.contains("time (UTC)") && table.contains("default"), "{table}");
    assert!(place.run(&["backup", "verify", "REPO"]).fine().starts_with("valid (2 backups"));
    place.run(&["backup", "restore", "REPO", "OLD", "--id", "1"]).fine();
    assert_eq!(dump(&place, "OLD"), before);
    let restored = place.run(&["backup", "restore", "REPO", "NEW", "--json"]).json();
    assert_eq!(restored["id"], 2);
    assert_eq!(dump(&place, "NEW"), dump(&place, "STORE"));
    place.run(&["verify", "NEW", "--full"]).fine();
    place.run(&["backup", "restore", "REPO", "NEW"]).refused(&["NEW", "not empty"]);
    place.run(&["backup", "delete", "REPO", "1"]).fine();
    assert_eq!(place.run(&["backup", "verify", "REPO", "--json"]).json()["backups"], 1);
    place.run(&["backup", "restore", "REPO", "THIRD"]).fine();
    assert_eq!(dump(&place, "THIRD"), dump(&place, "STORE"));
}

#[test]
fn damaged_backup_is_detected_and_not_restored() {
    let place = Place::with_records();
    place.run(&["compact", "STORE"]).fine();
    place.run(&["backup", "create", "STORE", "REPO"]).fine();
    let run = crate::program::files_of(&place.path("REPO"))
        .into_keys()
        .find(|name| name.starts_with("run-"))
        .unwrap();
    let path = place.path("REPO").join(&run);
    let mut bytes = fs::read(&path).unwrap();
    let record = bytes.windows(3).position(|bytes| bytes == b"v42").unwrap();
    bytes[record] ^= 8;
    fs::write(&path, bytes).unwrap();
    let answer = place.run(&["backup", "verify", "REPO"]);
    assert_eq!(answer.code, Some(1), "{}", answer.err);
    let text = String::from_utf8(answer.out).unwrap();
    assert!(text.contains(&format!("damaged: {run} at offset")) && text.contains("(backup 1)"), "{text}");
    let answer = place.run(&["backup", "restore", "REPO", "NEW"]);
    assert_eq!(answer.code, Some(1), "{}", answer.err);
    assert!(answer.err.contains(run.as_str()) && answer.err.contains("offset"), "{}", answer.err);
    assert!(!place.path("NEW").exists(), "nothing is left");
}

#[test]
fn invalid_backups_are_rejected() {
    let place = Place::with_records();
    place.run(&["backup", "create", "NOWHERE", "REPO"]).missing(&["NOWHERE"]);
    assert!(!place.path("REPO").exists());
    place.run(&["backup", "list", "REPO"]).missing(&["REPO", "no such directory"]);
    place.run(&["backup", "create", "STORE", "STORE"]).refused(&["STORE", "not a backup repository"]);
    place.run(&["backup", "create", "STORE", "REPO"]).fine();
    place.run(&["backup", "restore", "REPO", "NEW", "--id", "7"]).missing(&["REPO", "no backup 7"]);
    place.run(&["backup", "delete", "REPO", "7"]).missing(&["no backup 7"]);
}
