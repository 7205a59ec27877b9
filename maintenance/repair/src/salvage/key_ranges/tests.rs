use super::*;

fn bounds(low: &str, high: &str) -> KeyBounds {
    let part = |text: &str| (!text.is_empty()).then(|| text.as_bytes().to_vec());
    KeyBounds { low: part(low), high: part(high) }
}

fn left(range: KeyBounds, covered: &[(&str, &str)]) -> Vec<KeyBounds> {
    let covered_range =
        |&(low, high): &(&str, &str)| CoveredRange { bounds: bounds(low, high), age: Age::default() };
    uncovered(&range, &covered.iter().map(covered_range).collect::<Vec<_>>(), |_| true)
}

#[test]
fn uncovered_parts_of_a_range_are_returned() {
    assert_eq!(left(bounds("b", "m"), &[]), [bounds("b", "m")]);
    assert_eq!(left(bounds("b", "m"), &[("", "c"), ("d", "e")]), [bounds("c", "d"), bounds("e", "m")]);
    assert_eq!(left(bounds("b", "m"), &[("", "c"), ("c", "k"), ("k", "")]), []);
    assert_eq!(left(bounds("", ""), &[("d", "")]), [bounds("", "d")]);
    assert_eq!(left(bounds("", ""), &[("", "d")]), [bounds("d", "")]);
    assert_eq!(left(bounds("b", "m"), &[("a", "z"), ("c", "d")]), []);
    assert_eq!(left(bounds("b", "m"), &[("c", "k"), ("d", "e")]), [bounds("b", "c"), bounds("k", "m")]);
    assert_eq!(left(bounds("b", "m"), &[("m", "z"), ("", "b")]), [bounds("b", "m")]);
}
