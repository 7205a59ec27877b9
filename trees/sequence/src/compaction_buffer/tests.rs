use super::*;

fn section(low: &str, high: &str) -> BufferSection {
    let high = (high != "-").then(|| high.as_bytes().into());
    BufferSection { low: low.as_bytes().into(), high, run: None, is_base: false, from_memory: None }
}

fn layer(sections: &[(&str, &str)]) -> BufferLayer {
    sections.iter().map(|(low, high)| section(low, high)).collect()
}

fn shown(layers: &[BufferLayer]) -> Vec<String> {
    let end = |fence: &Fence| String::from_utf8(fence.to_vec()).unwrap();
    let section = |section: &BufferSection| {
        format!("{}..{}", end(&section.low), section.high.as_ref().map_or_else(|| "-".to_owned(), end))
    };
    layers.iter().map(|layer| layer.iter().map(section).collect::<Vec<_>>().join(" ")).collect()
}

fn range(low: &str, high: &str) -> Bounds {
    section(low, high).bounds()
}

#[test]
fn new_sections_go_into_the_lowest_possible_layer() {
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
fn find_in_returns_the_section_that_covers_the_key() {
    let sections = layer(&[("b", "d"), ("d", "f"), ("k", "-")]);
    let low_of = |key: &str| find_in(&sections, key.as_bytes()).map(|section| section.low.to_vec());
    assert_eq!(low_of("a"), None);
    assert_eq!(low_of("b"), Some(b"b".to_vec()));
    assert_eq!(low_of("d"), Some(b"d".to_vec()));
    assert_eq!(low_of("g"), None);
    assert_eq!(low_of("z"), Some(b"k".to_vec()));
}

#[test]
fn barriers_with_no_run_below_are_removed() {
    assert!(tidied(vec![layer(&[("a", "b"), ("b", "c")]), layer(&[("a", "z")])]).is_empty());
}

fn bases(sections: &[(&str, &str)]) -> BufferLayer {
    sections.iter().map(|(low, high)| BufferSection { is_base: true, ..section(low, high) }).collect()
}

#[test]
fn a_range_is_complete_if_its_bases_are_above_barriers() {
    let layers = vec![layer(&[("k", "m")]), bases(&[("a", "f")]), bases(&[("d", "p")]), layer(&[("t", "z")])];
    let buffer = CompactionBuffer { id: ObjectId(1), layers };
    let has_all = |low: &str, high: &str| buffer.all_within(&range(low, high)).is_some();
    assert!(has_all("a", "f") && has_all("b", "c"), "one base");
    assert!(has_all("a", "k"), "the next base has the rest");
    assert!(!has_all("a", "l") && !has_all("k", "m") && !has_all("l", "n"), "a barrier is above");
    assert!(has_all("m", "p") && !has_all("m", "q") && !has_all("", "c"), "end of the bases");
    assert!(!has_all("a", "-") && !has_all("t", "u"));
}

#[test]
fn empty_bases_without_runs_around_them_are_removed() {
    assert!(tidied(vec![layer(&[("a", "c")]), bases(&[("a", "z")])]).is_empty());
}
