use testudo_base::{KeyspaceId, RunId, Seqno};
use testudo_run::KeyEnds;

use super::*;

fn reference(id: u64) -> RunRef {
    RunRef {
        id: RunId(id),
        keyspace: KeyspaceId(1),
        incarnation: 1,
        newest_seqno: Seqno(9),
        spans: vec![testudo_base::ExtentSpan { first_page: id * 10, page_count: 4 }],
        data_pages: 1,
        footer_page: 3,
        footer_pages: 1,
        entries: 2,
        tombstones: 0,
        user_bytes: 20,
        keys: KeyEnds::of(b"a", b"b"),
        has_continued_values: false,
        replaced: None,
    }
}

/// Encodes a segment with these fences.
fn segment(lows: &[&[u8]]) -> Vec<u8> {
    let mut out = vec![FORMAT];
    codec::put_u32(&mut out, u32_of(lows.len()));
    let mut fences = FenceWriter::default();
    for (id, low) in (1..).zip(lows) {
        fences.put(&mut out, &Fence::from(*low));
        reference(id).encode(&mut out);
        codec::put_u64(&mut out, 20);
        codec::put_u8(&mut out, COVERS | COVER_HAS_HIGH);
        FenceWriter::after(&Fence::from(*low)).put(&mut out, &Fence::from(&b"zz"[..]));
    }
    out
}

#[test]
fn a_segment_round_trips() {
    let runs = decode_segment(&segment(&[b"", b"k", b"key"])).unwrap();
    let lows: Vec<Vec<u8>> = runs.iter().map(|run| run.low.to_vec()).collect();
    assert_eq!(lows, [b"".to_vec(), b"k".to_vec(), b"key".to_vec()]);
    assert_eq!((runs[1].reference.id, runs[1].bytes), (RunId(2), 20));
    assert_eq!(runs[2].cover, Some(Bounds { low: None, high: Some(Fence::from(&b"zz"[..])) }));
}

#[test]
fn damaged_objects_do_not_decode() {
    assert!(decode_segment(&segment(&[])).is_err(), "no run");
    assert!(decode_segment(&segment(&[b"b", b"a"])).is_err(), "descending fences");
    let whole = segment(&[b"", b"k"]);
    assert!((0..whole.len()).all(|length| decode_segment(&whole[..length]).is_err()), "a truncated segment");
    let root = encode_root(&Levels { next_object: 7, ..Levels::default() });
    assert_eq!(decode_root(&root).unwrap().next_object, 7);
    assert!((0..root.len()).all(|length| decode_root(&root[..length]).is_err()), "a truncated root");
    assert!(decode_root(&[2, 0, 0]).is_err(), "a root of another family");
}

#[test]
fn a_root_round_trips_repeats_and_without_them_has_an_older_format() {
    let shown = |entries, repeated, is_frozen| Repeats { seen: Inflow { entries, repeated }, is_frozen };
    let of = |repeats, bottom_repeats| {
        let levels = vec![Level { repeats, ..Level::default() }];
        encode_root(&Levels { levels, bottom_repeats, next_object: 7, ..Levels::default() })
    };
    assert_eq!(of(Repeats::default(), Repeats::default())[1], FORMAT);
    let root = of(shown(90, 10, false), shown(8, 8, true));
    let stored = decode_root(&root).unwrap();
    assert_eq!((stored.levels[0].repeats, stored.bottom_repeats), (shown(90, 10, false), shown(8, 8, true)));
    assert!((0..root.len()).all(|length| decode_root(&root[..length]).is_err()), "a truncated root");
    let no_flag = [&root[..root.len() - 1], &[2]].concat();
    assert!(decode_root(&no_flag).is_err());
    for repeats in [shown(8, 9, false), shown(ENTRIES_MAX + 1, 0, false)] {
        assert!(decode_root(&of(Repeats::default(), repeats)).is_err(), "{repeats:?}");
    }
}
