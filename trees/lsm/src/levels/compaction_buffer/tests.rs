use super::*;

fn piece(low: &str, high: &str) -> Kept {
    let high = (high != "-").then(|| high.as_bytes().into());
    Kept { low: low.as_bytes().into(), high, run: None, is_base: false }
}

fn layer(pieces: &[(&str, &str)]) -> Layer {
    pieces.iter().map(|(low, high)| piece(low, high)).collect()
}

fn shown(layers: &[Layer]) -> Vec<String> {
    let end = |fence: &Fence| String::from_utf8(fence.to_vec()).unwrap();
    let piece = |kept: &Kept| {
        format!("{}..{}", end(&kept.low), kept.high.as_ref().map_or_else(|| "-".to_owned(), end))
    };
    layers.iter().map(|layer| layer.iter().map(piece).collect::<Vec<_>>().join(" ")).collect()
}

fn range(low: &str, high: &str) -> Bounds {
    piece(low, high).bounds()
}

#[test]
fn what_comes_lands_upon_what_is_there_and_no_higher() {
    let old = [layer(&[("m", "p")]), layer(&[("a", "c"), ("m", "z")])];
    let above = stacked(&old, vec![layer(&[("n", "o")])], &range("n", "o"));
    assert_eq!(shown(&above), ["n..o", "m..p", "a..c m..z"]);
    let beside = stacked(&old, vec![layer(&[("d", "f")])], &range("d", "f"));
    assert_eq!(shown(&beside), ["m..p", "a..c d..f m..z"]);
    let two = stacked(&old, vec![layer(&[("a", "b")]), layer(&[("a", "d")])], &range("a", "d"));
    assert_eq!(shown(&two), ["a..b", "a..d m..p", "a..c m..z"]);
    let all = stacked(&old, vec![layer(&[("", "-")])], &range("", "-"));
    assert_eq!(shown(&all), ["..-", "m..p", "a..c m..z"]);
}

#[test]
fn a_key_is_in_the_piece_that_covers_it() {
    let pieces = layer(&[("b", "d"), ("d", "f"), ("k", "-")]);
    let low_of = |key: &str| find_in(&pieces, key.as_bytes()).map(|kept| kept.low.to_vec());
    assert_eq!(low_of("a"), None);
    assert_eq!(low_of("b"), Some(b"b".to_vec()));
    assert_eq!(low_of("d"), Some(b"d".to_vec()));
    assert_eq!(low_of("g"), None);
    assert_eq!(low_of("z"), Some(b"k".to_vec()));
}

#[test]
fn barriers_with_no_run_below_them_go() {
    assert!(tidied(vec![layer(&[("a", "b"), ("b", "c")]), layer(&[("a", "z")])]).is_empty());
}
