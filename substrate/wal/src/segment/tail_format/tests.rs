use super::*;

const HEADER: TailHeader =
    TailHeader { store_id: StoreId(1), incarnation: Incarnation(2), boot: 3, buffer_bytes: 8192 };

fn page() -> Vec<u8> {
    let mut page = vec![0; TAIL_HEADER_BYTES];
    page[..FIXED_BYTES].copy_from_slice(&HEADER.encode());
    page
}

#[test]
fn header_and_turn_round_trip() {
    let mut page = page();
    page[128..136].copy_from_slice(&9u64.to_le_bytes());
    let (header, turn) = TailHeader::decode(&page, "log-tail-0").unwrap().unwrap();
    assert_eq!(header, HEADER);
    assert_eq!(turn, TurnState { turn: 9, first_seqno: Seqno(0), record_bytes: 0, value_bytes: 0 });
}

#[test]
fn flipped_header_byte_invalidates_the_header() {
    for at in 0..FIXED_BYTES {
        let mut page = page();
        page[at] ^= 1;
        assert_eq!(TailHeader::decode(&page, "log-tail-0").unwrap(), None, "byte {at}");
    }
    assert_eq!(TailHeader::decode(&[0; TAIL_HEADER_BYTES], "log-tail-0").unwrap(), None);
    assert_eq!(TailHeader::decode(&HEADER.encode(), "log-tail-0").unwrap(), None, "a file cut short");
}

#[test]
fn entries_are_read_backwards_from_the_last() {
    let mut values = vec![0; entry_bytes(5) + entry_bytes(16)];
    let (second, first) = values.split_at_mut(entry_bytes(16));
    stamp_entry(first, Seqno(1), 5);
    entry_content(first).copy_from_slice(b"first");
    seal_entry(first, 5, 77);
    stamp_entry(second, Seqno(2), 16);
    let (seqno, content, rest) = last_entry(&values, 77).unwrap();
    assert_eq!((seqno, content), (Seqno(1), Some(&b"first"[..])));
    let (seqno, content, rest) = last_entry(rest, 77).unwrap();
    assert_eq!((seqno, content), (Seqno(2), None), "stamped, and never filled");
    assert!(last_entry(rest, 77).is_none());
}

#[test]
fn only_exact_names_are_tail_files() {
    assert_eq!(tail_file_number(&tail_file_name(17)), Some(17));
    assert!(["log-tail-", "log-tail-x", "log-tail--1", "log-tail-1.copy"].map(tail_file_number) == [None; 4]);
}
