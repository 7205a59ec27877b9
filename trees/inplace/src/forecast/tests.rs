use super::*;

fn options() -> ForecastOptions {
    ForecastOptions { epoch_inserts: 1_000, parts: 50, epochs_ahead: 10 }
}

#[test]
fn inserts_are_expected_where_they_were_before() {
    let mut forecast = InsertForecast::new(options());
    assert_eq!(forecast.expected(b"", None), None);
    // Nine of ten inserts are in the upper half.
    let key = |at: u64| if at.is_multiple_of(10) { at % 500 } else { 500 + at * 7 % 500 };
    for at in 0..2_000 {
        forecast.note_insert(&key(at).to_be_bytes());
    }
    let all = forecast.expected(b"", None).unwrap();
    assert!((all - 10_000.0).abs() < 1.0, "{all}");
    let lower = forecast.expected(&0u64.to_be_bytes(), Some(&500u64.to_be_bytes())).unwrap();
    assert!((500.0..=1_600.0).contains(&lower), "{lower}");
    let narrow = forecast.expected(&600u64.to_be_bytes(), Some(&700u64.to_be_bytes())).unwrap();
    assert!((1_200.0..=2_400.0).contains(&narrow), "{narrow}");
}

#[test]
fn only_the_last_epoch_counts() {
    let mut forecast = InsertForecast::new(options());
    let low = |at: u64| (at % 100).to_be_bytes();
    let high = |at: u64| ((1 << 40) | (at % 100)).to_be_bytes();
    (0..2_000).for_each(|at| forecast.note_insert(&low(at)));
    (0..1_000).for_each(|at| forecast.note_insert(&high(at)));
    let border = 1_000u64.to_be_bytes();
    assert!(forecast.expected(b"", Some(&border)).unwrap() < 300.0);
}

#[test]
fn space_is_left_for_expected_inserts_but_pages_are_not_empty() {
    let fill = PageFill::new(3_000, 300, 3_996);
    assert_eq!(fill_for(&fill, 100.0, 0.0, 400).goal_bytes, 3_000);
    assert_eq!(fill_for(&fill, 100.0, 100.0, 400).goal_bytes, 1_500);
    assert_eq!(fill_for(&fill, 100.0, 1e9, 400).goal_bytes, 400);
}
