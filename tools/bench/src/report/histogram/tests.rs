use std::time::Duration;

use super::{Histogram, Percentiles};

#[test]
fn percentiles_are_within_two_per_mille() {
    let mut histogram = Histogram::new();
    for micros in 1..=10_000 {
        histogram.record(Duration::from_micros(micros));
    }
    let Percentiles { mean, p50, p95, p99, p999, max } = histogram.percentiles();
    let pairs =
        [(mean, 5_000.5), (p50, 5_000.0), (p95, 9_500.0), (p99, 9_900.0), (p999, 9_990.0), (max, 10_000.0)];
    for (measured, expected) in pairs {
        assert!((measured / expected - 1.0f64).abs() < 0.002, "{measured} for {expected}");
    }
}

#[test]
fn merge_adds_counts_and_latencies_saturate_at_a_minute() {
    let mut first = Histogram::new();
    let mut second = Histogram::new();
    first.record(Duration::from_nanos(100));
    second.record(Duration::from_hours(1));
    first.merge(&second);
    assert_eq!(first.count(), 2);
    let Percentiles { p50, max, .. } = first.percentiles();
    assert!((p50 - 0.1).abs() < 0.001);
    assert!((max / 60e6 - 1.0).abs() < 0.01, "{max}");
}

#[test]
fn empty_histogram_is_all_zero() {
    assert_eq!(Histogram::new().percentiles(), Percentiles::default());
}
