use super::*;

#[test]
fn what_the_last_rounds_took_on_average_is_kept() {
    let mut target = FreeSpaceTarget::default();
    for _ in 0..ROUNDS - 1 {
        target.note(1000);
        assert_eq!(target.kept_pages(100_000, 200_000), None, "nothing is known yet");
    }
    target.note(9000);
    assert_eq!(target.kept_pages(100_000, 200_000), Some(2000));
    for _ in 0..ROUNDS {
        target.note(400);
    }
    assert_eq!(target.kept_pages(100_000, 200_000), Some(400));
}

#[test]
fn a_small_surplus_stays() {
    let mut target = FreeSpaceTarget::default();
    for _ in 0..ROUNDS {
        target.note(400);
    }
    assert_eq!(target.kept_pages(400 + 99, 1600), None, "less than a megabyte");
    assert_eq!(target.kept_pages(400 + 499, 16_000), None);
    assert_eq!(target.kept_pages(400 + 500, 16_000), Some(400));
}
