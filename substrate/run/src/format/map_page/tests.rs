use testudo_base::num::usize_of;

use super::*;
use crate::{OverflowPage, PagePlace, Writing};

fn list() -> ReplacedPages {
    let place =
        |at, generation| PagePlace { at, writing: Writing { generation: RunId(generation), incarnation: 2 } };
    let overflow = OverflowPage { of: 3, border: b"border"[..].into(), place: place(25, 11) };
    ReplacedPages::new(vec![(0, place(21, 9)), (3, place(0, 11))], vec![overflow])
}

fn encoded() -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(RunId(7), Seqno(90), &list(), &mut bytes);
    bytes
}

#[test]
fn maps_round_trip() {
    let map = MapPage::read(&encoded()).unwrap();
    assert_eq!((&map.low, &map.high, map.latest_expiry), (&None, &None, None));
    assert_eq!(map.into_list_of(RunId(7), Seqno(90)), Ok(list()));
}

#[test]
fn the_encoding_is_stable() {
    let expected = [
        &[2][..],
        &[7, 0, 0, 0, 0, 0, 0, 0],
        &[90, 0, 0, 0, 0, 0, 0, 0],
        &[0],
        &[2, 0, 0, 0, 2, 2, 2, 0],
        &[2, 0, 0, 0, 0, 21, 0, 2, 0, 1],
        &[1, 0, 0, 0, 3, 25, 1, 6, 0, 0, 0],
        b"border",
    ];
    assert_eq!(encoded(), expected.concat());
}

#[test]
fn maps_of_the_first_format_are_read() {
    let mut first = encoded();
    first[0] = 1;
    // A single overflow page is encoded alike.
    assert_eq!(MapPage::read(&first).unwrap().replaced, list());
    first[0] = 3;
    assert!(MapPage::read(&first).is_err());
}

#[test]
fn a_map_of_another_run_or_version_is_refused() {
    let map = MapPage::read(&encoded()).unwrap();
    assert!(map.clone().into_list_of(RunId(8), Seqno(90)).is_err());
    assert!(map.clone().into_list_of(RunId(7), Seqno(91)).is_err());
    assert!(map.into_list_of(RunId(7), Seqno(89)).is_err());
}

#[test]
fn bounds_are_decoded_and_refused_and_an_expiry_is_accepted() {
    let bytes = encoded();
    let with = |flags: u8, fields: &[u8]| {
        let bytes = [&bytes[..17], &[flags], fields, &bytes[18..]].concat();
        MapPage::read(&bytes)
    };
    let key = [&3u32.to_le_bytes()[..], b"key"].concat();
    let low = with(HAS_LOW, &key).unwrap();
    assert_eq!(low.low.as_deref(), Some(&b"key"[..]));
    assert!(low.into_list_of(RunId(7), Seqno(90)).is_err());
    let both = with(HAS_LOW | HAS_HIGH, &[&key[..], &key].concat()).unwrap();
    assert!(both.high.is_some() && both.into_list_of(RunId(7), Seqno(90)).is_err());
    let expiry = with(HAS_EXPIRY, &5u64.to_le_bytes()).unwrap();
    assert_eq!(expiry.latest_expiry, Some(5));
    assert!(expiry.into_list_of(RunId(7), Seqno(90)).is_ok());
    assert!(with(8, &[]).is_err(), "an unknown field");
}

#[test]
fn damaged_maps_are_refused_or_decode_consistently() {
    let bytes = encoded();
    for at in 0..bytes.len() {
        assert!(MapPage::read(&bytes[..at]).is_err(), "cut at {at}");
        for mask in [1, 0x80, 0xff] {
            let mut bytes = bytes.clone();
            bytes[at] ^= mask;
            let _ = MapPage::read(&bytes);
        }
    }
    let many = [&bytes[..18], &u32::MAX.to_le_bytes()].concat();
    assert!(MapPage::read(&many).is_err(), "a count is compared before memory is allocated");
    assert!(bytes.len() < usize_of(100));
}
