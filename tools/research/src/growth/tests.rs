use super::*;

const RECORD_BYTES: u64 = 74;

fn fill() -> PageFill {
    PageFill::new(44 * RECORD_BYTES, 5 * RECORD_BYTES, 54 * RECORD_BYTES)
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 32
}

/// Returns all keys, in order, page by page.
fn keys_of(pages: &GrowingPages) -> Vec<Vec<u8>> {
    pages.groups.values().flat_map(|group| group.pages.iter().flatten()).cloned().collect()
}

fn grown(keys: &[u64], expected: Expected) -> GrowingPages {
    let mut pages = GrowingPages::new(fill(), RECORD_BYTES, expected);
    keys.iter().for_each(|key| pages.insert(&key.to_be_bytes()));
    let mut sorted: Vec<Vec<u8>> = keys.iter().map(|key| key.to_be_bytes().to_vec()).collect();
    sorted.sort_unstable();
    sorted.dedup();
    assert!(keys_of(&pages) == sorted, "every key is there, in order");
    pages
}

#[test]
fn grows_from_nothing_in_any_order() {
    let mut state = 9;
    let random_keys: Vec<u64> = (0..20_000).map(|_| random(&mut state)).collect();
    let sorted: Vec<u64> = (0..20_000).collect();
    let reversed: Vec<u64> = (0..20_000).rev().collect();
    for keys in [random_keys, sorted, reversed] {
        let counts = grown(&keys, Expected::Nothing).counts();
        assert!(counts.reorganisations > 10 && counts.pages >= 20_000 / 108, "{counts:?}");
        assert!(counts.pages + counts.overflow_pages < 20_000 / 20, "{counts:?}");
    }
}

#[test]
fn forecasts_save_reorganizations_and_perfect_ones_save_more() {
    let mut state = 21;
    // Most inserts are at a few places, which move.
    let key = |at: u64, state: &mut u64| {
        let place = at / 20_000 * 3 + random(state) % 4;
        (place << 40) | (random(state) % (1 << 30))
    };
    let keys: Vec<u64> = (0..60_000).map(|at| key(at, &mut state)).collect();
    let size = EpochSize { inserts: 2_000, parts: 400 };
    let future = keys.iter().map(|key| key.to_be_bytes().to_vec()).collect();
    let of = |expected| grown(&keys, expected).counts().reorganisations;
    let without = of(Expected::Nothing);
    let with = of(Expected::Forecast(Box::new(Forecast::new(size, 4))));
    let perfect = of(Expected::Future(future));
    assert!(with < without && perfect < with, "{without} without, {with} with, {perfect} with perfect ones");
}

#[test]
fn space_is_left_for_expected_inserts_but_pages_are_not_empty() {
    let fill = PageFill::new(3_000, 300, 3_996);
    assert_eq!(fill_for(&fill, 100.0, 0.0, 400).goal_bytes, 3_000);
    assert_eq!(fill_for(&fill, 100.0, 100.0, 400).goal_bytes, 1_500);
    assert_eq!(fill_for(&fill, 100.0, 1e9, 400).goal_bytes, 400);
}
