//! Conveniences of the command line: `--json` anywhere, `TESTUDO_DIR`, creation of parent directories,
//! completions, manual pages.

use std::{fs, os::unix::fs::symlink};

use crate::program::{Answer, Place, program};

#[test]
fn json_flag_works_before_and_after_the_verb() {
    let place = Place::with_records();
    place.run(&["backup", "create", "STORE", "REPO"]).fine();
    for (before, verb) in [
        (&["--json", "ls", "STORE"][..], &["ls", "STORE", "--json"][..]),
        (&["--json", "count", "STORE"], &["count", "--json", "STORE"]),
        (&["--json", "backup", "list", "REPO"], &["backup", "list", "REPO", "--json"]),
        (&["backup", "--json", "list", "REPO"], &["backup", "list", "--json", "REPO"]),
        (&["--json", "tree", "STORE", "--full"], &["tree", "STORE", "--json", "--full"]),
    ] {
        let answer = place.run(before).json_lines();
        assert!(!answer.is_empty() && answer == place.run(verb).json_lines(), "{before:?}");
    }
    place.run(&["--json", "man"]).not_understood(&["--json"]);
}

fn run_in(place: &Place, dir: &str, arguments: &[&str]) -> Answer {
    let mut command = program();
    command.args(arguments).env("TESTUDO_DIR", dir).current_dir(place.path("."));
    Answer::of(command.output().unwrap())
}

#[test]
fn testudo_dir_is_the_default_directory() {
    let place = Place::with_records();
    place.run(&["put", "OTHER", "k00", "other", "--create"]).fine();
    let run = |arguments: &[&str]| run_in(&place, "STORE", arguments);
    assert_eq!(run(&["get", "k00"]).fine(), "v00\n");
    assert_eq!(run(&["get", "OTHER", "k00"]).fine(), "other\n", "the typed directory takes precedence");
    run(&["put", "new", "1"]).fine();
    assert_eq!(run(&["--json", "count", "--prefix", "k1"]).fine(), "{\"count\":10}\n");
    assert_eq!(run(&["scan", "--limit", "1", "--keys-only"]).fine(), "k00\n");
    run(&["keyspace", "create", "more"]).fine();
    assert!(run(&["wal", "dump"]).fine().contains("put new = 1"));
    run(&["del", "new"]).fine();
    assert_eq!(run(&["del", "--prefix", "k9"]).fine(), "10 keys removed\n");
    run(&["checkpoint", "COPY"]).fine();
    run(&["get"]).not_understood(&["KEY"]);
    // With two arguments, the first is the directory.
    run(&["del", "k00", "k01"]).missing(&["k00: there is no such directory"]);
    run_in(&place, "", &["get", "k00"]).not_understood(&["KEY"]);
    run_in(&place, "NOWHERE", &["ls"]).missing(&["NOWHERE"]);
    assert_eq!(place.run(&["count", "COPY"]).fine(), "90\n");
}

#[test]
fn create_makes_parent_directories() {
    let place = Place::new();
    place.write("words", b"a\n");
    place.run(&["put", "a/b/c", "k", "v", "--create"]).fine();
    assert_eq!(place.run(&["get", "a/b/c", "k"]).fine(), "v\n");
    place.run(&["load", "./d/e", "words", "--create", "--format", "lines"]).fine();
    assert_eq!(place.run(&["get", "d/e", "a"]).fine(), "1\n");
    place.run(&["keyspace", "create", "f/g", "names", "--tree", "splinter", "--create"]).fine();
    assert!(place.run(&["ls", "f/g"]).fine().contains("splinter"));
    place.run(&["put", "words/x/y", "k", "v", "--create"]).refused(&["words/x/y"]);
    assert_eq!(fs::read(place.path("words")).unwrap(), b"a\n");
}

#[test]
fn symlink_to_a_store_works_like_its_directory() {
    let place = Place::with_records();
    place.run(&["compact", "STORE"]).fine();
    symlink("STORE", place.path("LINK")).unwrap();
    for verb in [
        &["get", "LINK", "k00"][..],
        &["put", "LINK", "k00", "v"],
        &["info", "LINK"],
        &["space", "LINK"],
        &["ls", "LINK"],
        &["verify", "LINK"],
        &["repair", "LINK", "--dry-run"],
        &["wal", "dump", "LINK"],
        &["manifest", "dump", "LINK"],
        &["page", "dump", "LINK", "0"],
        &["salvage", "LINK", "NEW"],
    ] {
        place.run(verb).fine();
    }
    symlink("NOWHERE", place.path("LOOSE")).unwrap();
    for verb in [&["ls", "LOOSE"][..], &["wal", "dump", "LOOSE"]] {
        place.run(verb).missing(&["LOOSE"]);
    }
    // Monitoring must distinguish this from damage.
    place.run(&["repair", "LOOSE"]).refused(&["LOOSE"]);
}

#[test]
fn offset_selects_the_page_that_contains_it() {
    let place = Place::with_records();
    place.run(&["compact", "STORE"]).fine();
    let dump = |page: &str| place.run(&["page", "dump", "STORE", page]);
    assert_eq!(dump("@4096").fine(), dump("1").fine());
    let page = dump("1").fine();
    assert_eq!(dump("@5000").fine(), format!("offset 5000 is in page 1, which begins at @4096\n{page}"));
    let json = |page: &str| place.run(&["page", "dump", "STORE", page, "--json"]).json();
    assert_eq!(json("@5000"), json("1"));
    dump("@").not_understood(&["@4096"]);
}

#[test]
fn completions_and_manual_pages_name_every_verb() {
    let place = Place::new();
    let help = place.run(&["--help"]).fine();
    for shell in ["bash", "zsh", "fish"] {
        let script = place.run(&["completions", shell]).fine();
        assert!(script.contains("checkpoint") && script.contains("key-format"), "{shell}");
    }
    place.run(&["completions", "abacus"]).not_understood(&["abacus", "bash"]);
    let page = place.run(&["man"]).fine();
    assert!(page.starts_with(".ie") || page.contains(".TH"), "{page}");
    for verb in ["info", "count", "salvage"] {
        assert!(help.contains(verb) && page.contains(verb), "{verb}");
    }
    assert!(place.run(&["man", "keyspace", "create"]).fine().contains("merge\\-operator"));
    place.run(&["man", "frobnicate"]).refused(&["frobnicate"]);
}

#[test]
fn help_and_guide_list_the_same_exit_codes() {
    let help = Place::new().run(&["--help"]).fine();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/command-line.md");
    let guide = fs::read_to_string(path).unwrap();
    for code in ["0", "1", "2"] {
        assert!(help.contains(&format!("\n  {code}  ")), "{help}");
        assert!(guide.contains(&format!("\n| {code} | ")), "{code}");
    }
    for thing in ["TESTUDO_DIR", "--key-format", "\\xNN"] {
        assert!(help.contains(thing) && guide.contains(thing), "{thing}");
    }
}

#[test]
fn help_fits_the_width_of_a_terminal() {
    let place = Place::new();
    let top = place.run(&["--help"]).fine();
    let verbs = top.lines().skip_while(|line| *line != "Commands:").skip(1);
    let verbs = verbs.take_while(|line| !line.is_empty()).filter_map(|line| line.strip_prefix("  "));
    let mut verbs: Vec<Vec<&str>> =
        verbs.filter(|line| !line.starts_with(' ')).map(|line| line.split(' ').take(1).collect()).collect();
    assert!(verbs.len() > 25, "{top}");
    verbs.push(vec!["bench", "ycsb"]);
    verbs.extend(["create", "convert", "drop", "list"].map(|action| vec!["keyspace", action]));
    verbs.extend(["create", "verify", "restore"].map(|action| vec!["backup", action]));
    verbs.push(Vec::new());
    for verb in verbs.iter().filter(|verb| **verb != ["help"]) {
        for flag in ["-h", "--help"] {
            let help = place.run(&[&verb[..], &[flag]].concat()).fine();
            for line in help.lines() {
                assert!(line.chars().count() <= 80, "{verb:?} {flag}: {line}");
            }
        }
    }
}
