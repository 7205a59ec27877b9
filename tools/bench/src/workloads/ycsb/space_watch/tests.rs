use std::cell::Cell;

use super::*;

#[test]
fn the_most_that_was_seen_stays() {
    let (bytes, looks) = (Cell::new(5), Cell::new(0));
    let disk_bytes = || {
        looks.set(looks.get() + 1);
        bytes.get()
    };
    let mut watch = SpaceWatch::new(&disk_bytes);
    for (millis, held) in [(1_000, 5), (1_001, 90), (1_150, 9), (1_300, 70), (1_500, 6)] {
        bytes.set(held);
        watch.look(Duration::from_millis(millis));
    }
    assert_eq!((watch.peak_bytes(), looks.get()), (70, 4), "1 ms after a look there is none");
}
