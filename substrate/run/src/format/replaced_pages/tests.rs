use super::*;

fn place(at: u32, generation: u64) -> PagePlace {
    PagePlace { at, writing: Writing { generation: RunId(generation), incarnation: 5 } }
}

fn some() -> ReplacedPages {
    let pages = vec![(0, place(21, 9)), (3, place(0, 11)), (9, place(22, 9))];
    let border = b"border".to_vec();
    ReplacedPages::new(pages, vec![OverflowPage { of: 3, border, place: place(25, 11) }])
}

fn decoded(bytes: &[u8]) -> Result<ReplacedPages, Damage> {
    let mut reader = Reader::new(bytes);
    let replaced = ReplacedPages::decode(&mut reader, 10, 20, 30)?;
    reader.finish()?;
    Ok(replaced)
}

fn encoded(replaced: &ReplacedPages) -> Vec<u8> {
    let mut bytes = Vec::new();
    replaced.encode(&mut bytes);
    bytes
}

#[test]
fn replaced_pages_round_trip() {
    assert_eq!(decoded(&encoded(&some())), Ok(some()));
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
    let bytes = encoded(&some());
    for at in 0..bytes.len() {
        assert!(decoded(&bytes[..at]).is_err(), "cut at {at}");
        for mask in [0x01, 0x80, 0xff] {
            let mut bytes = bytes.clone();
            bytes[at] ^= mask;
            if let Ok(other) = decoded(&bytes) {
                assert_eq!(encoded(&other), bytes, "decoding and encoding are inverse");
            }
        }
    }
}

#[test]
fn impossible_places_are_refused() {
    let with =
        |pages: Vec<(u32, PagePlace)>| decoded(&encoded(&ReplacedPages { pages, overflow: Vec::new() }));
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
    let overflow = vec![OverflowPage { of: 1, border: Vec::new(), place: place(20, 9) }];
    assert!(decoded(&encoded(&ReplacedPages { pages: vec![(2, place(21, 9))], overflow })).is_err());
}
