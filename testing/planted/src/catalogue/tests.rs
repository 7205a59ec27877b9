use std::{collections::BTreeSet, path::Path};

use testudo_sim::layers::find;
use testudo_testkit::planted_names;

use super::BUGS;
use crate::test_file::TestFile;

#[test]
fn the_catalogue_and_the_code_name_the_same_bugs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let planted = planted_names(&root).unwrap();
    let listed: BTreeSet<String> = BUGS.iter().map(|bug| bug.name.to_owned()).collect();
    assert_eq!(listed.len(), BUGS.len(), "a name is listed twice");
    assert_eq!(planted, listed);
}

#[test]
fn every_bug_names_layers_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let is_there = |layer: &str| match TestFile::at(layer) {
        Some(file) => root.join(file.package).join("Cargo.toml").is_file() && root.join(layer).is_file(),
        None => layer.starts_with("schedules/") || find(layer).is_some(),
    };
    for bug in BUGS {
        assert!(!bug.seen_by.is_empty(), "{} has no layer", bug.name);
        let layers = bug.seen_by.iter();
        layers.for_each(|layer| assert!(is_there(layer), "{}: unknown layer {layer}", bug.name));
    }
}
