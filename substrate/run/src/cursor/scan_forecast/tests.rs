use super::*;

fn progress(entries: u64) -> Arc<ScanProgress> {
    ScanProgress::new(&ScanLimits { entries: Some(entries), end: None })
}

#[test]
fn an_unlimited_scan_is_forecast_only_from_its_progress() {
    let progress = ScanProgress::new(&ScanLimits::default());
    assert!(!progress.is_limited());
    (0..30_000).for_each(|_| progress.count_entry());
    let forecast = ScanForecast::new(&progress, 500, 15_000, true);
    assert_eq!((forecast.pages_left(0), forecast.end(), forecast.pages_alike()), (None, None, 1_000));
    let anew = progress.begun_anew();
    assert_eq!(ScanForecast::new(&anew, 500, 15_000, true).pages_alike(), 0);
}

#[test]
fn a_new_seek_keeps_the_remaining_limits_of_a_scan() {
    let limits = ScanLimits { entries: Some(10), end: Some(b"m".as_slice().into()) };
    let progress = ScanProgress::new(&limits);
    (0..4).for_each(|_| progress.count_entry());
    let anew = progress.begun_anew();
    assert_eq!((anew.entries_left(), anew.end(), anew.is_limited()), (Some(6), Some(b"m".as_slice()), true));
}

#[test]
fn the_main_run_of_a_scan_is_forecast_with_one_page_more() {
    let progress = progress(1_000);
    // A page has 30 entries, and 9 of 10 are in the leaf.
    let leaf = ScanForecast::new(&progress, 450, 15_000, true);
    assert_eq!(leaf.pages_left(0), Some(31));
    assert_eq!(ScanForecast::new(&progress, 50, 15_000, false).pages_left(0), Some(4));
    assert_eq!(ScanForecast::new(&progress, 0, 15_000, false).pages_left(0), Some(1));
    assert_eq!(ScanForecast::new(&progress, 0, 0, false).pages_left(0), Some(1));
}

#[test]
fn the_measured_share_of_a_run_replaces_the_estimate() {
    let progress = progress(1_000);
    let forecast = ScanForecast::new(&progress, 450, 15_000, true);
    (0..500).for_each(|_| progress.count_entry());
    // It provided five pages for half of the scan, not fifteen.
    assert_eq!(forecast.pages_left(5), Some(5));
    (0..500).for_each(|_| progress.count_entry());
    assert_eq!((progress.entries_left(), forecast.pages_left(10)), (Some(0), None));
    progress.count_entry();
    assert_eq!(progress.entries_left(), Some(0), "more entries than requested");
}

#[test]
fn a_run_opened_before_is_measured_from_its_passed_pages() {
    let progress = progress(100);
    let mut forecast = ScanForecast::new(&progress, 10, 100, true);
    forecast.begin_after(40);
    (0..50).for_each(|_| progress.count_entry());
    assert_eq!(forecast.pages_left(45), Some(5));
}

#[test]
fn chunks_grow_as_a_fraction_of_the_passed_pages() {
    let mut passed = 4;
    let mut chunks = Vec::new();
    while passed < 400 {
        let chunk = chunk_after(passed);
        assert!(chunk <= (passed / 3).max(8), "{chunk} after {passed}");
        chunks.push(chunk);
        passed += chunk;
    }
    assert_eq!(chunks, [8, 8, 8, 9, 12, 16, 21, 28, 38, 50, 64, 64, 64, 64][..chunks.len()]);
}
