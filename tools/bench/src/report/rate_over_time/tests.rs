use std::time::Duration;

use super::RateOverTime;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_rate_that_grows_shows_at_both_ends_and_in_each_second() {
    let mut rates = RateOverTime::default();
    // A part that was not measured, 10 a second, then one with 100 a second.
    rates.begin(5 * SECOND);
    rates.note(7 * SECOND, || 20);
    rates.end(8 * SECOND, 30);
    rates.begin(8 * SECOND);
    rates.note(8 * SECOND + SECOND / 100, || panic!("it is too early to count again"));
    rates.note(9 * SECOND, || 100);
    rates.end(11 * SECOND + SECOND / 2, 350);
    let close = |seen: f64, expected: f64| assert!((seen - expected).abs() < 1e-6, "{seen} for {expected}");
    close(rates.first(2 * SECOND), 10.0);
    close(rates.first(4 * SECOND), 32.5);
    close(rates.last(3 * SECOND), 100.0);
    close(rates.first(60 * SECOND), 380.0 / 6.5);
    close(rates.last(60 * SECOND), 380.0 / 6.5);
    assert_eq!(rates.by_second(), [10.0, 10.0, 10.0, 100.0, 100.0, 100.0]);
}

#[test]
fn no_time_has_no_rate() {
    let mut rates = RateOverTime::default();
    assert_eq!((rates.first(SECOND), rates.last(SECOND), rates.by_second()), (0.0, 0.0, vec![]));
    rates.begin(SECOND);
    rates.end(SECOND, 0);
    assert_eq!((rates.first(SECOND), rates.last(SECOND), rates.by_second()), (0.0, 0.0, vec![]));
}
