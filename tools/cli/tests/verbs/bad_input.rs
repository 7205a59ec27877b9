//! Wrong directories, arguments and sizes: a clear message, exit code 2, nothing written.

use std::{collections::BTreeMap, fs, process::Command};

use testudo::Db;
use testudo_env::SplitMix;

use crate::program::{Answer, Place, files_of, program};

/// Verbs that need a store, with otherwise valid arguments.
const VERBS: [&[&str]; 15] = [
    &["info", "STORE"],
    &["stat", "STORE"],
    &["tree", "STORE"],
    &["space", "STORE"],
    &["ls", "STORE"],
    &["get", "STORE", "k"],
    &["scan", "STORE"],
    &["put", "STORE", "k", "v"],
    &["del", "STORE", "k"],
    &["load", "STORE", "words", "--format", "lines"],
    &["dump", "STORE"],
    &["verify", "STORE"],
    &["compact", "STORE"],
    &["keyspace", "create", "STORE", "new"],
    &["keyspace", "convert", "STORE", "default", "--tree", "splinter"],
];

/// Verbs that inspect a store while another process writes it.
const BESIDE_A_WRITER: [&str; 5] = ["info", "stat", "tree", "space", "ls"];

/// Asserts that the verb reports a missing store.
#[track_caller]
fn none_there(place: &Place, verb: &[&str]) {
    match verb[0] {
        "verify" => place.run(verb).refused(&["STORE"]),
        _ => place.run(verb).missing(&["STORE"]),
    }
}

#[test]
fn missing_directory_is_named_and_not_created() {
    let place = Place::new();
    place.write("words", b"a\n");
    for verb in VERBS {
        none_there(&place, verb);
        assert!(!place.store().exists(), "{verb:?} created the directory");
    }
}

#[test]
fn file_instead_of_directory_is_rejected_and_kept() {
    let place = Place::new();
    place.write("words", b"a\n");
    place.write("STORE", b"precious");
    let create: [&[&str]; 2] = [
        &["put", "STORE", "k", "v", "--create"],
        &["load", "STORE", "words", "--create", "--format", "lines"],
    ];
    for verb in VERBS.into_iter().chain(create) {
        place.run(verb).refused(&["STORE"]);
        assert_eq!(fs::read(place.store()).unwrap(), b"precious");
    }
}

#[test]
fn directory_with_foreign_files_is_rejected_and_kept() {
    let place = Place::new();
    place.write("words", b"a\n");
    fs::create_dir(place.store()).unwrap();
    place.write("STORE/letter.txt", b"precious");
    place.write("STORE/data", b"not of a store");
    let before = place.store_files();
    let create: [&[&str]; 2] = [
        &["put", "STORE", "k", "v", "--create"],
        &["load", "STORE", "words", "--create", "--format", "lines"],
    ];
    for verb in VERBS {
        none_there(&place, verb);
        assert_eq!(place.store_files(), before, "{verb:?} wrote");
    }
    for verb in create {
        place.run(verb).refused(&["STORE"]);
        assert_eq!(place.store_files(), before, "{verb:?} wrote");
    }
}

#[test]
fn store_open_in_another_process_is_rejected() {
    let place = Place::with_records();
    place.write("words", b"a\n");
    let db = Db::open(place.store()).unwrap();
    let before = place.store_files();
    for verb in VERBS {
        if !BESIDE_A_WRITER.contains(&verb[0]) {
            place.run(verb).refused(&["STORE", &std::process::id().to_string()]);
        }
    }
    let without_status = |files: BTreeMap<String, Vec<u8>>| {
        files.into_iter().filter(|(name, _)| name != "status").collect::<BTreeMap<_, _>>()
    };
    assert_eq!(without_status(place.store_files()), without_status(before));
    db.close().unwrap();
    place.run(&["get", "STORE", "k00"]).fine();
}

#[test]
fn concurrent_readers_are_allowed() {
    let place = Place::with_records();
    let db = Db::builder(place.store()).read_only().open().unwrap();
    assert_eq!(place.run(&["get", "STORE", "k00"]).fine(), "v00\n");
    place.run(&["put", "STORE", "k00", "v"]).refused(&["STORE"]);
    drop(db);
}

#[test]
fn unwritable_directory_is_named() {
    let place = Place::new();
    let answer = place.run(&["put", "/proc/testudo-store", "k", "v", "--create"]);
    answer.refused(&["/proc/testudo-store"]);
    let answer = place.run(&["demo", "--dir", "/proc/testudo-store"]);
    answer.refused(&["/proc/testudo-store"]);
}

#[test]
fn oversized_keys_and_values_are_rejected() {
    let place = Place::with_records();
    let before = place.run(&["dump", "STORE"]).fine();
    let key = "k".repeat(65_537);
    place.run(&["put", "STORE", &key, "v"]).refused(&["key"]);
    place.run(&["put", "STORE", &key[1..], "v"]).fine();
    assert_eq!(place.run(&["get", "STORE", &key[1..]]).fine(), "v\n");
    place.run(&["del", "STORE", &key[1..]]).fine();
    let value = vec![b'v'; 40 << 20];
    let answer = place.feed(&value, &["put", "STORE", "k", "--stdin", "--memory", "64MiB"]);
    answer.refused(&["value"]);
    assert_eq!(place.run(&["dump", "STORE"]).fine(), before);
}

#[test]
fn invalid_arguments_are_named() {
    let place = Place::with_records();
    let before = place.store_files();
    place.run(&[]).not_understood(&["Usage"]);
    place.run(&["frobnicate", "STORE"]).not_understood(&["frobnicate"]);
    place.run(&["get", "STORE"]).not_understood(&["KEY"]);
    place.run(&["get", "STORE", "k", "--frob"]).not_understood(&["--frob"]);
    place.run(&["put", "STORE", "k"]).not_understood(&["VALUE"]);
    place.run(&["put", "STORE", "k", "v", "--stdin"]).not_understood(&["--stdin"]);
    place.run(&["put", "STORE", "k", "v", "--memory", "lots"]).not_understood(&["--memory", "lots"]);
    place.run(&["put", "STORE", "k", "v", "--memory", "1"]).refused(&["memory"]);
    for arguments in [
        &["scan", "STORE", "--limit", "-1"][..],
        &["put", "STORE", "k", "v", "--memory", "-1"],
        &["scrub", "STORE", "--rate", "-1"],
        &["page", "dump", "STORE", "-1"],
        &["backup", "restore", "REPO", "NEW", "--id", "-1"],
    ] {
        let answer = place.run(arguments);
        answer.not_understood(&["'-1'"]);
        assert!(!answer.err.contains("-- -1"), "{}", answer.err);
    }
    place.run(&["scan", "STORE", "--limit", "few"]).not_understood(&["--limit", "few"]);
    place.run(&["scan", "STORE", "--prefix", "a", "--from", "b"]).not_understood(&["--prefix", "--from"]);
    place.run(&["scan", "STORE", "--from", "b", "--to", "a"]).refused(&["--from", "--to"]);
    place.run(&["get", "STORE", "--hex", "zz"]).refused(&["zz", "hex"]);
    place.run(&["get", "STORE", "--hex", "abc"]).refused(&["abc", "odd"]);
    place.run(&["get", "STORE", "k", "--keyspace", "nope"]).missing(&["STORE", "nope"]);
    place.run(&["put", "STORE", "k", "v", "--keyspace", "nope"]).missing(&["STORE", "nope"]);
    place.run(&["keyspace", "create", "STORE", "x", "--tree", "oak"]).not_understood(&["oak", "turtle"]);
    place.run(&["load", "STORE", "absent-file"]).refused(&["absent-file"]);
    place.run(&["load", "STORE", "."]).refused(&["directory"]);
    place.run(&["dump", "STORE", "--output", "no/such/dir"]).refused(&["no/such/dir"]);
    assert_eq!(place.run(&["keyspace", "create", "STORE", ""]).code, Some(2));
    assert_eq!(place.run(&["scan", "STORE", "--count"]).fine(), "100\n");
    // Opening for writing rewrites the superblock; the store id stays the same.
    let store_id = |files: &BTreeMap<String, Vec<u8>>| files["superblock"][32..48].to_vec();
    assert_eq!(store_id(&place.store_files()), store_id(&before));
}

#[test]
fn full_output_device_is_an_error() {
    let place = Place::with_records();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output =
        program().args(["scan", "STORE"]).current_dir(place.path(".")).stdout(full).output().unwrap();
    Answer::of(output).refused(&["standard output"]);
}

/// Needs permission to mount in a mount namespace; does nothing without it.
#[test]
fn full_disk_rejects_writes_and_keeps_records() {
    let place = Place::new();
    fs::create_dir(place.path("disk")).unwrap();
    let mut random = SplitMix::new(1);
    let mut line =
        || format!("{:016x}{:016x}{:016x}\n", random.next_u64(), random.next_u64(), random.next_u64());
    let lines: String = (0..500_000).map(|_| line()).collect();
    place.write("many", lines.as_bytes());
    let script = r#"
        mount -t tmpfs -o size=16m none disk || exit 77
        "$0" put disk/STORE first kept --create --memory 8MiB || exit 3
        timeout 60 "$0" load disk/STORE many --format lines --memory 8MiB
        code=$?
        "$0" get disk/STORE first --memory 8MiB || exit 4
        "$0" verify disk/STORE --memory 8MiB >/dev/null || exit 5
        exit $code
    "#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_testudo")]).current_dir(place.path("."));
    let Ok(output) = command.output() else { return };
    let answer = Answer::of(output);
    if answer.code == Some(77) || answer.err.starts_with("unshare:") {
        return;
    }
    assert_eq!((answer.code, answer.out.as_slice()), (Some(2), &b"kept\n"[..]), "{}", answer.err);
    assert!(answer.err.contains("testudo: ") && answer.err.contains("space"), "{}", answer.err);
}

#[test]
fn nonempty_demo_directory_is_rejected() {
    let place = Place::with_records();
    let before = place.store_files();
    place.run(&["demo", "--dir", "STORE"]).refused(&["STORE", "empty"]);
    assert_eq!(files_of(&place.store()), before);
}

#[test]
fn unusable_arguments_are_named() {
    let place = Place::new();
    std::fs::create_dir(place.path("folder")).unwrap();
    place.run(&["put", "STORE", "k", "--file", "folder", "--create"]).refused(&["folder", "--stdin"]);
    assert!(!place.store().exists(), "nothing was created");

    place.run(&["put", "STORE", "k", "v"]).missing(&["STORE", "--create"]);
    place.run(&["put", "STORE", "k", "v", "--create", "--keyspace", "words"]).fine();
    place
        .run(&["put", "STORE", "k", "v", "--keyspace", "verbs"])
        .missing(&["'verbs'", "'words'", "--create"]);
    place.run(&["get", "STORE", "k"]).missing(&["'default'", "'words'"]);
    place.run(&["stat", "STORE", "--keyspace", "none"]).missing(&["'none'", "'words'"]);
    place.write("there", b"precious");
    for verb in [&["dump", "STORE", "--keyspace", "words"][..], &["get", "STORE", "k", "--keyspace", "words"]]
    {
        place.run(&[verb, &["--output", "there"]].concat()).refused(&["there", "never overwritten"]);
    }
    assert_eq!(std::fs::read(place.path("there")).unwrap(), b"precious");
    place.run(&["compact", "STORE", "--memory", "1.5MiB"]).fine();
    place.run(&["compact", "STORE", "--memory", "1.5parsec"]).not_understood(&["parsec"]);
}
