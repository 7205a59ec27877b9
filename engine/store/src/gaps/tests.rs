use super::*;

fn gaps() -> Gaps {
    Gaps::new(&Arc::default())
}

fn stretch(low: &str, high: &str) -> Stretch {
    let high = Some(high).filter(|high| !high.is_empty()).map(|high| high.as_bytes().to_vec());
    Stretch { low: low.as_bytes().to_vec(), high }
}

/// Records a gap that a scan at `since` has found, with snapshots at `live`.
fn find(gaps: &Gaps, (low, high): (&str, &str), since: u64, live: &[u64]) {
    let is_free = |from: Seqno, to: Seqno| !live.iter().any(|live| (from.0..to.0).contains(live));
    let proposal = gaps.propose(vec![stretch(low, high)]);
    gaps.confirm(&proposal, &[], &Terms { since: Seqno(since), is_free: &is_free, limit_bytes: 1 << 20 });
}

/// All gaps, as text.
fn shown(gaps: &Gaps) -> String {
    let list = gaps.list.read();
    let text = |key: &[u8]| String::from_utf8_lossy(key).replace('\0', "+");
    let show = |low: &[u8], gap: &Gap| {
        format!("{}..{}@{}", text(low), gap.high.as_deref().map_or_else(String::new, text), gap.since.0)
    };
    assert_eq!(list.bytes, list.known.iter().map(|(low, gap)| gap.bytes(low)).sum::<u64>());
    assert_eq!(list.bytes, gaps.total_bytes.load(Relaxed));
    list.known.iter().map(|(low, gap)| show(low, gap)).collect::<Vec<_>>().join(" ")
}

fn key(edge: &str) -> Option<Edge> {
    Some(Edge::Key(edge.replace('+', "\0").into_bytes()))
}

#[test]
fn adjacent_gaps_are_joined() {
    let gaps = gaps();
    find(&gaps, ("b", "d"), 5, &[]);
    find(&gaps, ("f", "h"), 7, &[]);
    assert_eq!(shown(&gaps), "b..d@5 f..h@7");
    find(&gaps, ("d", "f"), 6, &[]);
    assert_eq!(shown(&gaps), "b..h@7");
    find(&gaps, ("a", "z"), 9, &[]);
    assert_eq!(shown(&gaps), "a..z@9");
    find(&gaps, ("c", ""), 10, &[]);
    assert_eq!(shown(&gaps), "a..@10");
}

/// A growing stack.
#[test]
fn covering_gap_replaces_many_parts_between_cuts() {
    let gaps = gaps();
    find(&gaps, ("b", "z"), 5, &[]);
    let write = |key: &[u8]| {
        assert!(gaps.begin_of(Some(b"z"), Seqno(5)).is_some());
        gaps.end_at(key);
    };
    ["d", "f"].iter().for_each(|key| write(key.as_bytes()));
    find(&gaps, ("a", "z"), 9, &[6]);
    assert_eq!(shown(&gaps), "a..b@9 b..d@5 d..d+@9 d+..f@5 f..f+@9 f+..z@5", "they are few");
    let gaps = self::gaps();
    find(&gaps, ("b", "z"), 5, &[]);
    let write = |key: &[u8]| {
        assert!(gaps.begin_of(Some(b"z"), Seqno(5)).is_some());
        gaps.end_at(key);
    };
    (b'd'..b'p').for_each(|key| write(&[key]));
    find(&gaps, ("a", "z"), 9, &[6]);
    assert_eq!(shown(&gaps), "a..b@9 b..d@5 d..o+@9 o+..z@5");
}

#[test]
fn live_snapshot_between_two_gaps_keeps_them_apart() {
    let gaps = gaps();
    find(&gaps, ("a", "c"), 5, &[]);
    find(&gaps, ("c", "e"), 8, &[6]);
    assert_eq!(shown(&gaps), "a..c@5 c..e@8");
    assert_eq!(gaps.end_of(b"a", Seqno(6)), key("c"));
    assert_eq!(gaps.end_of(b"a", Seqno(8)), key("e"));
    assert_eq!(gaps.begin_of(Some(b"e"), Seqno(6)), None);
    assert_eq!(gaps.begin_of(Some(b"e"), Seqno(8)), key("a"));
    find(&gaps, ("e", "f"), 9, &[]);
    assert_eq!(shown(&gaps), "a..f@9");
    assert_eq!(gaps.end_of(b"a", Seqno(6)), None);
}

#[test]
fn scan_finds_the_gap_at_its_position() {
    let gaps = gaps();
    find(&gaps, ("b", "d"), 5, &[]);
    assert_eq!(gaps.end_of(b"a", Seqno(5)), None);
    assert_eq!(gaps.end_of(b"b", Seqno(5)), key("d"));
    assert_eq!(gaps.end_of(b"c", Seqno(5)), key("d"));
    assert_eq!(gaps.end_of(b"d", Seqno(5)), None);
    assert_eq!(gaps.end_of(b"c", Seqno(4)), None);
    assert_eq!(gaps.begin_of(None, Seqno(5)), None);
    assert_eq!(gaps.begin_of(Some(b"e"), Seqno(5)), None);
    assert_eq!(gaps.begin_of(Some(b"d"), Seqno(5)), key("b"));
    assert_eq!(gaps.begin_of(Some(b"b"), Seqno(5)), None);
    find(&gaps, ("x", ""), 6, &[]);
    assert_eq!(gaps.begin_of(None, Seqno(6)), key("x"));
    assert_eq!(gaps.end_of(b"y", Seqno(6)), Some(Edge::End));
    find(&gaps, ("", "b"), 6, &[]);
    assert_eq!(gaps.begin_of(Some(b"c"), Seqno(6)), Some(Edge::End));
}

#[test]
fn write_cuts_its_gap() {
    let gaps = gaps();
    find(&gaps, ("b", "h"), 5, &[]);
    gaps.end_at(b"a");
    gaps.end_at(b"h");
    assert_eq!(shown(&gaps), "b..h@5");
    gaps.end_at(b"d");
    assert_eq!(shown(&gaps), "b..d@5 d+..h@5");
    gaps.end_at(b"b");
    assert_eq!(shown(&gaps), "d+..h@5", "no part is kept between two writes");
    assert_eq!(gaps.end_of(b"d", Seqno(9)), None);
}

/// Rewriting a removed range in order, in either direction, does not leave many small gaps.
#[test]
fn refilling_a_gap_in_order_leaves_no_parts() {
    let gaps = gaps();
    find(&gaps, ("a", ""), 5, &[]);
    for number in 0..100 {
        gaps.end_at(format!("k{number:03}").as_bytes());
    }
    assert_eq!(shown(&gaps), "a..k000@5 k099+..@5");
    let gaps = self::gaps();
    find(&gaps, ("a", ""), 5, &[]);
    for number in (0..100).rev() {
        gaps.end_at(format!("k{number:03}").as_bytes());
    }
    assert_eq!(shown(&gaps), "a..k000@5 k099+..@5");
}

#[test]
fn writes_before_confirmation_are_cut_from_the_gap() {
    let gaps = gaps();
    let proposal = gaps.propose(vec![stretch("a", "m"), stretch("p", "z")]);
    assert_eq!(gaps.end_of(b"b", Seqno(9)), None);
    gaps.end_at(b"f");
    let terms = Terms { since: Seqno(5), is_free: &|_, _| true, limit_bytes: 1 << 20 };
    gaps.confirm(&proposal, &[b"q".to_vec(), b"d".to_vec()], &terms);
    assert_eq!(shown(&gaps), "a..d@5 p..q@5");
    let proposal = gaps.propose(vec![stretch("d", "m")]);
    gaps.withdraw(&proposal);
    assert_eq!(shown(&gaps), "a..d@5 p..q@5");
    assert!(!gaps.is_empty());
}

#[test]
fn used_gaps_survive_eviction() {
    let gaps = gaps();
    for number in 0..100 {
        let (low, high) = (format!("k{number:03}"), format!("k{number:03}x"));
        let proposal = gaps.propose(vec![stretch(&low, &high)]);
        let terms = Terms { since: Seqno(5), is_free: &|_, _| true, limit_bytes: 20 * (GAP_BYTES + 9) };
        gaps.confirm(&proposal, &[], &terms);
        assert_eq!(gaps.end_of(b"k000", Seqno(9)), key("k000x"), "after {number}");
    }
    assert_eq!(gaps.list.read().known.len(), 20);
}
