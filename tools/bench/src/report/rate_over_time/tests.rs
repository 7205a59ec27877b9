use std::time::Duration;

use super::RateOverTime;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn rates_at_both_ends_and_by_second() {
    let mut rates = RateOverTime::default();
    // An unmeasured part with a rate of 10 per second, then a part with 100 per second.
    rates.begin(5 * SECOND);
    rates.note(7 * SECOND, || 20);
    rates.end(8 * SECOND, 30);
    rates.begin(8 * SECOND);
    rates.note(8 * SECOND + SECOND / 100, || panic!("no sample is due yet"));
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
fn zero_time_has_zero_rate() {
    let mut rates = RateOverTime::default();
    assert_eq!((rates.first(SECOND), rates.last(SECOND), rates.by_second()), (0.0, 0.0, vec![]));
    rates.begin(SECOND);
    rates.end(SECOND, 0);
    assert_eq!((rates.first(SECOND), rates.last(SECOND), rates.by_second()), (0.0, 0.0, vec![]));
}
