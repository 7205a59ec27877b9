//! What users get holds no trace of the bugs that are planted to test the tests.

use std::{collections::BTreeSet, fs, path::Path};

use testudo_testkit::planted_names;

#[test]
fn the_program_holds_no_planted_bug() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut names = planted_names(&root).unwrap();
    names.insert("TESTUDO_PLANTED".to_owned());
    assert!(names.len() > 22, "the bugs were not found");
    let program = fs::read(env!("CARGO_BIN_EXE_testudo")).unwrap();
    let known = "for reading in another process or handle";
    let found = texts_in(&program, names.iter().map(String::as_str).chain([known]));
    assert_eq!(found, BTreeSet::from([known]), "the known text, and no bug, is in the program");
}

/// Which of the texts stand in `bytes`; in one pass, for the program is large.
fn texts_in<'a>(bytes: &[u8], texts: impl Iterator<Item = &'a str>) -> BTreeSet<&'a str> {
    let mut by_first = vec![Vec::new(); 256];
    texts.for_each(|text| by_first[usize::from(text.as_bytes()[0])].push(text));
    let mut found = BTreeSet::new();
    for (offset, byte) in bytes.iter().enumerate() {
        let here = by_first[usize::from(*byte)].iter();
        found.extend(here.filter(|text| bytes[offset..].starts_with(text.as_bytes())));
    }
    found
}
