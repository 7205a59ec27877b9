use super::*;

fn page(page: u64, run: u64) -> HotPage {
    HotPage { page, generation: RunId(run), keeping: Keeping::Main }
}

#[test]
fn all_parts_round_trip() {
    let header = HotSetHeader {
        store: StoreId(1 << 99),
        incarnation: Incarnation(7),
        number: 8,
        border: 9,
        file_bytes: 10,
    };
    let bytes = header.encode();
    assert_eq!((bytes.len(), HotSetHeader::decode(&bytes)), (HEADER_BYTES, Ok(header)));
    let states = [(KeyspaceId(1), Seqno(2)), (KeyspaceId(u32::MAX), Seqno(u64::MAX))];
    assert_eq!(decode_states(&encode_states(states.into_iter())), Ok(states.to_vec()));
    let pages = [page(5, 1), page(6, 1), page(1 << 40, 1), page(3, 2)];
    let places = pages.map(|hot| [hot.generation.0, hot.page]);
    assert_eq!(decode_pages(&encode_pages(Keeping::Main, &places)), Ok(pages.to_vec()));
    let record =
        HotRecord { keyspace: KeyspaceId(3), priority: 2, key: b"key".to_vec(), value: vec![5; 300] };
    let mut bytes = Vec::new();
    put_record(&mut bytes, &record);
    assert_eq!(take_record(&mut Reader::new(&bytes)), Ok(record));
}

#[test]
fn any_changed_byte_invalidates_header_or_block() {
    let header =
        HotSetHeader { store: StoreId(1), incarnation: Incarnation(7), number: 8, border: 9, file_bytes: 10 };
    let bytes = header.encode();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert!(HotSetHeader::decode(&damaged).is_err(), "byte {at}");
        assert!(HotSetHeader::decode(&bytes[..at]).is_err(), "{at} bytes");
    }
    let block = encode_block(BlockKind::Records, b"payload", 8, 64);
    let is_valid = |bytes: &[u8], number, offset| {
        let (start, payload) = bytes.split_at(BLOCK_HEADER_BYTES);
        BlockHeader::decode(start)
            .is_ok_and(|header| header.payload_bytes == 7 && header.is_of(payload, number, offset))
    };
    assert!(is_valid(&block, 8, 64) && !is_valid(&block, 9, 64) && !is_valid(&block, 8, 65));
    for at in 0..block.len() {
        let mut damaged = block.clone();
        damaged[at] ^= 2;
        assert!(!is_valid(&damaged, 8, 64), "byte {at}");
    }
}

#[test]
fn invalid_payloads_fail_without_allocating() {
    let mut endless = vec![1];
    put_varint(&mut endless, 1);
    put_varint(&mut endless, u64::MAX);
    endless.push(1);
    assert!(decode_pages(&endless).is_err());
    assert!(decode_pages(&[3]).is_err() && decode_pages(&[]).is_err() && decode_states(&[0x80]).is_err());
    let mut record = vec![0, 0];
    put_varint(&mut record, u64::MAX);
    put_varint(&mut record, u64::MAX);
    assert!(take_record(&mut Reader::new(&record)).is_err());
}
