//! The target directory of a copy is moved during the copy.

#![expect(clippy::unwrap_used, reason = "the layer reports a panic as a failure")]

use std::{fs, ops::ControlFlow};

use testudo::{
    CheckpointOptions, SalvageOptions, WorkDone,
    backup::{CreateOptions, Repository},
};

use super::place::{Expected, Place};

/// An observer that moves the directory `name` away once it has a file, and puts a foreign directory in its
/// place.
fn mover<'p>(place: &'p Place, name: &'p str) -> impl FnMut(WorkDone) -> ControlFlow<()> + 'p {
    let mut is_moved = false;
    move |_| {
        let has_files = fs::read_dir(place.path(name)).is_ok_and(|mut entries| entries.next().is_some());
        if has_files && !is_moved {
            is_moved = true;
            place.rename(name, "moved");
            fs::create_dir(place.path(name)).unwrap();
            fs::write(place.path(name).join("stranger"), "not a store's").unwrap();
        }
        ControlFlow::Continue(())
    }
}

fn check_others(place: &Place, name: &str) {
    let others = place.contents(name);
    assert_eq!(
        others.into_values().collect::<Vec<_>>(),
        [b"not a store's"],
        "a foreign directory was changed"
    );
}

pub(super) fn moved_checkpoint(place: &Place) {
    let mut store = place.open("db", Expected::default());
    store.write("flushed", 500);
    store.db.flush().unwrap();
    store.write("in the log", 200);
    store.db.checkpoint(CheckpointOptions::new(place.path("copy")).observer(mover(place, "copy"))).unwrap();
    check_others(place, "copy");
    place.check("moved", &store.expected());
    let expected = store.close();
    place.check("db", &expected);
}

pub(super) fn moved_repository(place: &Place) {
    let mut store = place.open("db", Expected::default());
    store.write("flushed", 500);
    store.db.flush().unwrap();
    let repository = Repository::at(place.path("copy"));
    repository.create(CreateOptions::new(&store.db).observer(mover(place, "copy"))).unwrap();
    check_others(place, "copy");
    let report = Repository::at(place.path("moved")).verify(None).unwrap();
    assert!(report.is_valid(), "{report:?}");
    store.close();
}

pub(super) fn moved_salvage(place: &Place) {
    let mut store = place.open("db", Expected::default());
    store.write("flushed", 500);
    store.db.flush().unwrap();
    let expected = store.close();
    let options = SalvageOptions::new(place.path("db"), place.path("copy")).memory_bytes(4 << 20);
    testudo::salvage(options.observer(mover(place, "copy"))).unwrap();
    check_others(place, "copy");
    place.check("moved", &expected);
}
