use super::*;

fn header() -> SegmentHeader {
    SegmentHeader {
        store_id: StoreId(7),
        number: 3,
        incarnation: Incarnation(11),
        first_seqno: Seqno(40),
        durable_seqno: Seqno(39),
        recovered_seqno: Seqno(12),
        segment_bytes: 65536,
        newest_edit: 17,
    }
}

fn record() -> RecordHeader {
    RecordHeader {
        kind: RecordKind::Commit,
        payload_bytes: 100,
        payload_checksum: 5,
        first_seqno: Seqno(9),
        seqno_count: 2,
        durable_seqno: Seqno(8),
    }
}

#[test]
fn segment_header_round_trips_and_flipped_bytes_are_detected() {
    let mut page = vec![0xaa; PAGE_SIZE];
    header().encode(&mut page);
    assert_eq!(SegmentHeader::decode(&page, "f").unwrap(), Some(header()));
    for at in 0..PAGE_SIZE {
        page[at] ^= 0x10;
        assert_eq!(SegmentHeader::decode(&page, "f").unwrap(), None, "byte {at}");
        page[at] ^= 0x10;
    }
    assert_eq!(SegmentHeader::decode(&page[..512], "f").unwrap(), None);
}

#[test]
fn valid_header_of_a_newer_format_is_unsupported() {
    for at in [8, 12] {
        let mut page = vec![0; PAGE_SIZE];
        header().encode(&mut page);
        page[at] ^= 2;
        page[CHECKSUM_AT..CHECKSUM_AT + 8].fill(0);
        let checksum = checksum64(&page, 0);
        page[CHECKSUM_AT..CHECKSUM_AT + 8].copy_from_slice(&checksum.to_le_bytes());
        let error = SegmentHeader::decode(&page, "f").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}

#[test]
fn record_header_round_trips_under_its_salt_only() {
    let mut bytes = [0; RECORD_HEADER_BYTES];
    record().encode(&mut bytes, 77);
    assert_eq!(RecordHeader::decode(&bytes, 77), Some(record()));
    assert_eq!(RecordHeader::decode(&bytes, 78), None);
    for at in 0..RECORD_HEADER_BYTES {
        bytes[at] ^= 1;
        assert_eq!(RecordHeader::decode(&bytes, 77), None, "byte {at}");
        bytes[at] ^= 1;
    }
}

#[test]
fn impossible_record_headers_with_valid_checksums_are_refused() {
    let impossible = [
        RecordHeader { seqno_count: 0, ..record() },
        RecordHeader { first_seqno: Seqno(u64::MAX), ..record() },
        RecordHeader { durable_seqno: Seqno(9), ..record() },
        RecordHeader { payload_bytes: u32::MAX, ..record() },
        RecordHeader { kind: RecordKind::Marker, ..record() },
    ];
    for header in impossible {
        let mut bytes = [0; RECORD_HEADER_BYTES];
        header.encode(&mut bytes, 1);
        assert_eq!(RecordHeader::decode(&bytes, 1), None, "{header:?}");
    }
}

#[test]
fn only_exact_file_names_are_segments() {
    assert_eq!(segment_number(&segment_file_name(42)), Some(42));
    assert_eq!(segment_number(&segment_file_name(u64::MAX)), Some(u64::MAX));
    for name in ["wal-1.log", "wal-0000000000000000001x.log", "wal-99999999999999999999.log", "wal-.log", "x"]
    {
        assert_eq!(segment_number(name), None, "{name}");
    }
}
