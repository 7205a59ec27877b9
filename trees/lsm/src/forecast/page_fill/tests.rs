use super::*;

const GOAL: u16 = 3_800;

/// Writes `count` entries as a run writer does; returns the data of each page.
fn pages(densities: Vec<Density>, count: u64, bytes: impl Fn(u64) -> usize) -> Vec<u64> {
    let mut fill = PageFill::new(densities, GOAL);
    let (mut pages, mut open, mut limit) = (Vec::new(), 0, u64::from(GOAL));
    for at in 0..count {
        let size = u64_of(bytes(at)) + ENTRY_OVERHEAD_BYTES;
        if open + size > limit && open > 0 {
            pages.push(open);
            open = 0;
        }
        open += size;
        if let Some(next) = fill.after(&at.to_be_bytes(), bytes(at), u64_of(pages.len()) * 4_096) {
            limit = u64::from(next);
        }
    }
    pages.push(open);
    pages
}

fn density(high: u64, expected: f64) -> Density {
    Density { high: Box::new(high.to_be_bytes()), expected }
}

#[test]
fn pages_are_filled_by_their_share_of_data_now() {
    for (expected, fill) in [(0.0, 1.0), (0.15, 0.87), (0.5, 0.67), (1.0, 0.5), (20.0, 0.5)] {
        let pages = pages(vec![density(u64::MAX, expected)], 20_000, |_| 118);
        let mean = pages.iter().sum::<u64>() as f64 / u64_of(pages.len()) as f64 / f64::from(GOAL);
        assert!((mean / fill - 1.0).abs() < 0.05, "{expected} expected: {mean:.2}");
    }
}

/// Free space below the goal is not more than what is expected, whatever the sizes are.
#[test]
fn free_space_is_at_most_what_is_expected() {
    for expected in [0.02, 0.15, 0.4, 0.9] {
        for bytes in [20, 118, 700, 1_200] {
            let varied = |at: u64| bytes + usize_of(at * 7 % 13);
            let with = pages(vec![density(u64::MAX, expected)], 20_000, varied);
            let without = pages(Vec::new(), 20_000, varied);
            let more = u64_of(with.len()) as f64 / u64_of(without.len()) as f64;
            assert!(more <= 1.0 + expected + 0.01, "{bytes} bytes, {expected} expected: {more:.3}");
            let is_used = more > 1.0 + expected * 0.4 || expected < 0.1;
            assert!(is_used, "{bytes} bytes, {expected} expected: {more:.3}");
            let free = |pages: &[u64]| pages.iter().map(|data| u64::from(GOAL) - data).sum::<u64>() as f64;
            let data = with.iter().sum::<u64>() as f64;
            let free = free(&with) - free(&without) * more;
            assert!(free <= data * expected + 8_000.0, "{bytes} bytes: {free} free of {data}, {expected}");
        }
    }
}

#[test]
fn space_is_left_only_in_ranges_with_expected_inserts() {
    let ranges = vec![density(4_000, 0.0), density(8_000, 0.5), density(16_000, 0.0)];
    let pages = pages(ranges, 16_000, |_| 118);
    let mut keys = 0;
    for data in &pages[..pages.len() - 1] {
        let is_within = (4_100..8_000).contains(&keys);
        let is_near = (3_900..8_200).contains(&keys);
        assert!(is_near || *data > 3_600, "{data} at {keys}");
        assert!(!is_within || *data < 2_900, "{data} at {keys}");
        keys += data / 124;
    }
}
