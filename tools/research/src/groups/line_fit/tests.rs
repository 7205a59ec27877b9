use super::*;

/// Whether any line intersects all ranges, found by trying every pair of ends.
fn is_any_line(ranges: &[(i128, i128, i128)]) -> bool {
    if ranges.len() < 2 {
        return true;
    }
    let ends = ranges.iter().flat_map(|(at, bottom, top)| [(*at, *bottom), (*at, *top)]);
    let ends: Vec<Place> = ends.collect();
    let meets = |from: Place, to: Place| {
        ranges
            .iter()
            .all(|&(at, bottom, top)| turn(from, to, (at, bottom)) <= 0 && turn(from, to, (at, top)) >= 0)
    };
    ends.iter().any(|from| ends.iter().any(|to| from.0 < to.0 && meets(*from, *to)))
}

#[test]
fn finds_a_line_if_and_only_if_one_exists() {
    let mut state = 11u64;
    let mut random = |below: i128| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        i128::from(state >> 33) % below
    };
    let (mut ended, mut longest) = (0, 0);
    for _ in 0..400 {
        let (mut fit, mut ranges) = (LineFit::default(), Vec::new());
        let (mut at, mut offset) = (0, 0);
        for _ in 0..40 {
            at += 1 + random(9);
            offset += random(12);
            let range = (at, offset - 6, offset + 6);
            let mut longer = ranges.clone();
            longer.push(range);
            let fits = fit.add(range.0, range.1, range.2);
            assert_eq!(fits, is_any_line(&longer), "{longer:?}");
            if !fits {
                ended += 1;
                break;
            }
            ranges = longer;
            longest = longest.max(ranges.len());
            check(&fit.line().unwrap(), &ranges);
        }
    }
    assert!(ended > 100 && longest > 10, "{ended} ended, the longest with {longest}");
}

fn check(line: &Line, ranges: &[(i128, i128, i128)]) {
    for &(at, bottom, top) in ranges {
        let there = line.offset + line.slope * (at as f64 - line.position);
        let is_met = there >= bottom as f64 - 1e-6 && there <= top as f64 + 1e-6;
        assert!(is_met, "{line:?} has {there} at {at}, of {bottom}..={top}");
    }
}
