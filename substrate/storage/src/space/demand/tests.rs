use super::*;

#[test]
fn what_the_last_rounds_took_on_average_is_kept() {
    let mut demand = Demand::default();
    for _ in 0..ROUNDS - 1 {
        demand.note(1000);
        assert_eq!(demand.kept_pages(100_000, 200_000), None, "nothing is known yet");
    }
    demand.note(9000);
    assert_eq!(demand.kept_pages(100_000, 200_000), Some(2000));
    for _ in 0..ROUNDS {
        demand.note(400);
    }
    assert_eq!(demand.kept_pages(100_000, 200_000), Some(400));
}

#[test]
fn a_small_surplus_stays() {
    let mut demand = Demand::default();
    for _ in 0..ROUNDS {
        demand.note(400);
    }
    assert_eq!(demand.kept_pages(400 + 99, 1600), None, "less than a megabyte");
    assert_eq!(demand.kept_pages(400 + 499, 16_000), None);
    assert_eq!(demand.kept_pages(400 + 500, 16_000), Some(400));
}
