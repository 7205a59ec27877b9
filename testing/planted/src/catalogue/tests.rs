use std::{collections::BTreeSet, fs, path::Path};

use testudo_sim::layers::find;

use super::BUGS;

/// All names that Rust files below `folder` ask for.
fn planted_below(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            planted_below(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let found = text.split("planted!(\"").skip(1).filter_map(|rest| rest.split('"').next());
            names.extend(found.map(str::to_owned));
        }
    }
}

#[test]
fn the_catalogue_and_the_code_name_the_same_bugs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut planted = BTreeSet::new();
    ["substrate", "trees", "engine"]
        .iter()
        .for_each(|folder| planted_below(&root.join(folder), &mut planted));
    let listed: BTreeSet<String> = BUGS.iter().map(|bug| bug.name.to_owned()).collect();
    assert_eq!(listed.len(), BUGS.len(), "a name is listed twice");
    assert_eq!(planted, listed);
}

#[test]
fn every_bug_is_for_layers_that_exist() {
    for bug in BUGS {
        assert!(!bug.seen_by.is_empty(), "{} is for nobody", bug.name);
        let layers = bug.seen_by.iter().filter(|layer| !layer.starts_with("schedules/"));
        layers.for_each(|layer| assert!(find(layer).is_some(), "{}: there is no layer {layer}", bug.name));
    }
}
