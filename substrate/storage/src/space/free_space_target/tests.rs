use super::*;

#[test]
fn the_average_of_recent_rounds_is_kept() {
    let mut target = FreeSpaceTarget::default();
    for _ in 0..ROUNDS - 1 {
        target.note(1000);
        assert_eq!(target.kept_pages(100_000, 200_000), None, "too few rounds");
    }
    target.note(9000);
    assert_eq!(target.kept_pages(100_000, 200_000), Some(2000));
    for _ in 0..ROUNDS {
        target.note(400);
    }
    assert_eq!(target.kept_pages(100_000, 200_000), Some(400));
}

#[test]
fn a_small_surplus_is_not_released() {
    let mut target = FreeSpaceTarget::default();
    for _ in 0..ROUNDS {
        target.note(400);
    }
    assert_eq!(target.kept_pages(400 + 99, 1600), None, "less than a megabyte");
    assert_eq!(target.kept_pages(400 + 499, 16_000), None);
    assert_eq!(target.kept_pages(400 + 500, 16_000), Some(400));
}
