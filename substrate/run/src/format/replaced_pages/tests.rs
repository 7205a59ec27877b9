use super::*;

fn place(at: u32, generation: u64) -> PagePlace {
    PagePlace { at, writing: Writing { generation: RunId(generation), incarnation: 5 } }
}

fn some() -> ReplacedPages {
    let pages = vec![(0, place(21, 9)), (3, place(0, 11)), (9, place(22, 9))];
    let border = b"border"[..].into();
    ReplacedPages::new(pages, vec![OverflowPage { of: 3, border, place: place(25, 11) }])
}

const ENCODINGS: [ListEncoding; 4] = [
    ListEncoding::Reference,
    ListEncoding::ReferenceWithSections,
    ListEncoding::FirstMaps,
    ListEncoding::Map,
];

/// Several sections of a page, and one of a page that was not replaced.
fn sections() -> ReplacedPages {
    let overflow = [(1, "c", 20), (3, "f", 25), (3, "m", 26), (3, "x", 24), (9, "z", 27)];
    let overflow = overflow.map(|(of, border, at)| OverflowPage {
        of,
        border: border.as_bytes().into(),
        place: place(at, 11),
    });
    let pages = vec![(0, place(21, 9)), (3, place(0, 11)), (9, place(22, 9))];
    ReplacedPages::new(pages, overflow.into())
}

const WITH_SECTIONS: [ListEncoding; 2] = [ListEncoding::ReferenceWithSections, ListEncoding::Map];

fn decoded(encoding: ListEncoding, bytes: &[u8]) -> Result<ReplacedPages, Damage> {
    let mut reader = Reader::new(bytes);
    let replaced = ReplacedPages::decode(encoding, RunId(3), &mut reader)?;
    reader.finish()?;
    replaced.check((10, 20, 30), |_| false)?;
    Ok(replaced)
}

fn encoded(encoding: ListEncoding, replaced: &ReplacedPages) -> Vec<u8> {
    let mut bytes = Vec::new();
    replaced.encode(encoding, RunId(3), &mut bytes);
    bytes
}

#[test]
fn replaced_pages_round_trip() {
    for encoding in ENCODINGS {
        assert_eq!(decoded(encoding, &encoded(encoding, &some())), Ok(some()));
    }
    for encoding in WITH_SECTIONS {
        assert_eq!(decoded(encoding, &encoded(encoding, &sections())), Ok(sections()));
    }
    let appended = OverflowPage { of: 4, border: b"k"[..].into(), place: place(22, 9) };
    let appended = ReplacedPages::new(Vec::new(), vec![appended]);
    assert_eq!(decoded(ListEncoding::Map, &encoded(ListEncoding::Map, &appended)), Ok(appended));
}

#[test]
fn pages_are_found_by_their_numbers() {
    let replaced = some();
    assert_eq!(replaced.place_of(3), Some(place(0, 11)));
    assert_eq!(replaced.place_of(4), None);
    assert_eq!((replaced.next_from(4), replaced.next_from(10)), (Some(9), None));
    assert_eq!(replaced.overflow_from(3)..replaced.overflow_from(4), 0..1);
    assert_eq!((replaced.section_with(3, b"border"), replaced.section_with(3, b"bore")), (Some(0), Some(0)));
    assert_eq!((replaced.section_with(3, b"bo"), replaced.section_with(0, b"x")), (None, None));
}

#[test]
fn sections_are_found_by_their_borders() {
    let list = sections();
    assert!(list.has_sections() && !some().has_sections());
    for (page, key, expected) in [
        (0, "d", None),
        (1, "b", None),
        (1, "c", Some(0)),
        (1, "cc", Some(0)),
        (2, "zz", None),
        (3, "ez", None),
        (3, "f", Some(1)),
        (3, "lz", Some(1)),
        (3, "m", Some(2)),
        (3, "wz", Some(2)),
        (3, "x", Some(3)),
        (3, "zz", Some(3)),
        (9, "y", None),
        (9, "z", Some(4)),
    ] {
        assert_eq!(list.section_with(page, key.as_bytes()), expected, "{key} of page {page}");
    }
}

#[test]
fn self_descriptions_round_trip() {
    let border = |text: &str| Some(Box::from(text.as_bytes()));
    let section = |low, high| PagePart::Section { low, high };
    let parts = [
        PagePart::All,
        PagePart::BeforeBorder,
        PagePart::Overflow,
        section(None, border("high")),
        section(border("low"), None),
        section(border("hi"), border("high")),
        section(border(""), border("high")),
    ];
    for part in parts {
        let record =
            ReplacedPageRecord { run: RunId(3), page: 7, part, newest_seqno: Seqno(9), writing_pages: 2 };
        let mut payload = b"block".to_vec();
        record.encode(&mut payload);
        if let PagePart::Section { low, high } = &record.part {
            let bytes = ReplacedPageRecord::bytes_between(low.as_deref(), high.as_deref());
            assert_eq!(payload.len(), 5 + bytes);
        }
        assert_eq!(ReplacedPageRecord::read(&payload), Ok(record.clone()));
        for at in 0..payload.len() {
            let _ = ReplacedPageRecord::read(&payload[at..]);
            let mut damaged = payload.clone();
            damaged[at] ^= 0xff;
            let _ = ReplacedPageRecord::read(&damaged);
        }
    }
    let reversed = section(border("low"), border("high"));
    let mut payload = Vec::new();
    ReplacedPageRecord { run: RunId(3), page: 7, part: reversed, newest_seqno: Seqno(9), writing_pages: 2 }
        .encode(&mut payload);
    assert!(ReplacedPageRecord::read(&payload).is_err());
}

#[test]
fn damaged_bytes_are_refused_or_decode_consistently() {
    for encoding in ENCODINGS {
        let list = if WITH_SECTIONS.contains(&encoding) { sections() } else { some() };
        let bytes = encoded(encoding, &list);
        for at in 0..bytes.len() {
            assert!(decoded(encoding, &bytes[..at]).is_err(), "cut at {at}");
            for mask in [0x01, 0x80, 0xff] {
                let mut bytes = bytes.clone();
                bytes[at] ^= mask;
                if let Ok(other) = decoded(encoding, &bytes) {
                    assert_eq!(encoded(encoding, &other), bytes, "decoding and encoding are inverse");
                }
            }
        }
    }
}

#[test]
fn impossible_places_are_refused() {
    let in_reference = |list| decoded(ListEncoding::Reference, &encoded(ListEncoding::Reference, &list));
    let in_map = |list| decoded(ListEncoding::Map, &encoded(ListEncoding::Map, &list));
    let with = |pages: Vec<(u32, PagePlace)>| in_reference(ReplacedPages::new(pages, Vec::new()));
    assert!(with(vec![(1, place(20, 9))]).is_ok());
    for (pages, why) in [
        (vec![], "no pages"),
        (vec![(10, place(20, 9))], "not a data page"),
        (vec![(1, place(12, 9))], "a place of an index page"),
        (vec![(1, place(30, 9))], "a place beyond the spans"),
        (vec![(1, place(20, 9)), (2, place(20, 9))], "one place for two pages"),
        (vec![(1, place(2, 9))], "the place of a page that was not replaced"),
    ] {
        assert!(with(pages).is_err(), "{why}");
    }
    let overflow = vec![OverflowPage { of: 1, border: Box::default(), place: place(20, 9) }];
    assert!(in_map(ReplacedPages::new(vec![(2, place(21, 9))], overflow)).is_ok(), "page 1 has a section");
    let overflow =
        |of, border: &str| OverflowPage { of, border: border.as_bytes().into(), place: place(20, 9) };
    assert!(in_map(ReplacedPages::new(Vec::new(), vec![overflow(10, "b")])).is_err(), "not a data page");
    let twice = |place_of_second| {
        let second = OverflowPage { place: place(place_of_second, 9), ..overflow(1, "c") };
        in_map(ReplacedPages::new(Vec::new(), vec![overflow(1, "b"), second]))
    };
    assert!(twice(21).is_ok());
    assert!(twice(20).is_err(), "one place for two sections");
    assert!(twice(1).is_err(), "the place of the page itself");
}

#[test]
fn maps_are_in_places_of_their_own() {
    let in_places = |places: &[u32]| {
        let map = MapRef { writing: place(0, 11).writing, places: places.into() };
        some().in_map(Some(map)).check((10, 20, 30), |_| false)
    };
    assert!(in_places(&[24, 23]).is_ok());
    assert!(in_places(&[3]).is_ok(), "the place of a page that was replaced");
    for (places, why) in [
        (&[21][..], "the place of a replaced page"),
        (&[25], "the place of an overflow page"),
        (&[24, 24], "one place for two pages"),
        (&[4], "the place of a page that was not replaced"),
        (&[12], "a place of an index page"),
        (&[30], "a place beyond the spans"),
    ] {
        assert!(in_places(places).is_err(), "{why}");
    }
}

#[test]
fn a_replaced_page_takes_twelve_bytes() {
    let list = |count: u32| {
        let page = |page: u32| (page, place(1000 + page, 9 + u64::from(page)));
        ReplacedPages::new((0..count).map(page).collect(), Vec::new())
    };
    assert_eq!(list(500).memory_bytes() - list(100).memory_bytes(), 400 * 12);
}
