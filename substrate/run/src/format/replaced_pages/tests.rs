use super::*;

fn place(at: u32, generation: u64) -> PagePlace {
    PagePlace { at, writing: Writing { generation: RunId(generation), incarnation: 5 } }
}

fn some() -> ReplacedPages {
    let pages = vec![(0, place(21, 9)), (3, place(0, 11)), (9, place(22, 9))];
    let border = b"border"[..].into();
    ReplacedPages::new(pages, vec![OverflowPage { of: 3, border, place: place(25, 11) }])
}

const ENCODINGS: [ListEncoding; 2] = [ListEncoding::InReference, ListEncoding::InMap];

fn decoded(encoding: ListEncoding, bytes: &[u8]) -> Result<ReplacedPages, Damage> {
    let mut reader = Reader::new(bytes);
    let replaced = ReplacedPages::decode(encoding, RunId(3), &mut reader)?;
    reader.finish()?;
    replaced.check(10, 20, 30)?;
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
}

#[test]
fn pages_are_found_by_their_numbers() {
    let replaced = some();
    assert_eq!(replaced.place_of(3), Some(place(0, 11)));
    assert_eq!(replaced.place_of(4), None);
    assert_eq!((replaced.next_from(4), replaced.next_from(10)), (Some(9), None));
    assert_eq!(replaced.overflow_of(3).map(|(number, page)| (number, page.place)), Some((0, place(25, 11))));
    assert_eq!(replaced.overflow_of(0), None);
}

#[test]
fn damaged_bytes_are_refused_or_decode_consistently() {
    for encoding in ENCODINGS {
        let bytes = encoded(encoding, &some());
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
    let in_reference = |list| decoded(ListEncoding::InReference, &encoded(ListEncoding::InReference, &list));
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
    assert!(in_reference(ReplacedPages::new(vec![(2, place(21, 9))], overflow)).is_err());
}

#[test]
fn maps_are_in_places_of_their_own() {
    let in_places = |places: &[u32]| {
        let map = MapRef { writing: place(0, 11).writing, places: places.into() };
        some().in_map(Some(map)).check(10, 20, 30)
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
