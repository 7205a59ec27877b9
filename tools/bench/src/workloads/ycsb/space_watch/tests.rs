use std::cell::Cell;

use super::*;

#[test]
fn peak_is_retained() {
    let (bytes, looks) = (Cell::new(5), Cell::new(0));
    let readings = || {
        looks.set(looks.get() + 1);
        Readings { disk_bytes: bytes.get(), ..Readings::default() }
    };
    let mut watch = SpaceWatch::new(&readings);
    for (millis, held) in [(1_000, 5), (1_001, 90), (1_150, 9), (1_300, 70), (1_500, 6)] {
        bytes.set(held);
        watch.look(Duration::from_millis(millis));
    }
    assert_eq!((watch.peak_bytes(), looks.get()), (70, 4), "no sample 1 ms after another");
}

#[test]
fn each_second_has_its_peak() {
    let bytes = Cell::new(0);
    let readings = || Readings { live_bytes: bytes.get(), ..Readings::default() };
    let mut watch = SpaceWatch::new(&readings);
    for (millis, held) in [(7_000, 5), (7_400, 8), (7_900, 3), (8_000, 4), (11_200, 9), (11_900, 2)] {
        bytes.set(held);
        watch.look(Duration::from_millis(millis));
    }
    assert_eq!(watch.live_bytes_by_second(), [8, 4, 4, 4, 9]);
}
