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
        spare_end: 0,
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

fn decode(bytes: &[u8]) -> Result<Vec<StoredRun>, Damage> {
    decode_segment(bytes, |_| None)
}

/// Encodes a segment whose second run is in object 5, and that object.
fn segment_with_object() -> (Vec<u8>, Vec<u8>) {
    let mut out = vec![FORMAT_WITH_RUN_OBJECTS];
    codec::put_u32(&mut out, 2);
    let mut fences = FenceWriter::default();
    fences.put(&mut out, &Fence::default());
    codec::put_u64(&mut out, 0);
    reference(1).encode(&mut out);
    codec::put_u64(&mut out, 20);
    codec::put_u8(&mut out, 0);
    fences.put(&mut out, &Fence::from(&b"k"[..]));
    codec::put_u64(&mut out, 5);
    codec::put_u8(&mut out, 0);
    let mut object = vec![RUN_TAG];
    reference(2).encode(&mut object);
    codec::put_u64(&mut object, 30);
    (out, object)
}

#[test]
fn a_run_in_an_object_of_its_own_round_trips() {
    let (segment, object) = segment_with_object();
    let with = |segment: &[u8], object: &[u8]| {
        decode_segment(segment, |id| (id == ObjectId(5)).then(|| object.into()))
    };
    let runs = with(&segment, &object).unwrap();
    let shown: Vec<_> = runs.iter().map(|run| (run.reference.id, run.bytes, run.object)).collect();
    assert_eq!(shown, [(RunId(1), 20, None), (RunId(2), 30, Some(ObjectId(5)))]);
    assert!(decode(&segment).is_err(), "the object is missing");
    assert!((0..segment.len()).all(|length| with(&segment[..length], &object).is_err()));
    assert!((0..object.len()).all(|length| with(&segment, &object[..length]).is_err()));
    let of_segment = with(&segment, &segment);
    assert!(of_segment.is_err(), "an object of another kind");
}

#[test]
fn a_segment_round_trips() {
    let runs = decode(&segment(&[b"", b"k", b"key"])).unwrap();
    let lows: Vec<Vec<u8>> = runs.iter().map(|run| run.low.to_vec()).collect();
    assert_eq!(lows, [b"".to_vec(), b"k".to_vec(), b"key".to_vec()]);
    assert_eq!((runs[1].reference.id, runs[1].bytes), (RunId(2), 20));
    assert_eq!(runs[2].cover, Some(Bounds { low: None, high: Some(Fence::from(&b"zz"[..])) }));
}

#[test]
fn damaged_objects_do_not_decode() {
    assert!(decode(&segment(&[])).is_err(), "no run");
    assert!(decode(&segment(&[b"b", b"a"])).is_err(), "descending fences");
    let whole = segment(&[b"", b"k"]);
    assert!((0..whole.len()).all(|length| decode(&whole[..length]).is_err()), "a truncated segment");
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
