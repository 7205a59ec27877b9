use testudo_base::{ExtentSpan, KeyspaceId, RunId, Seqno};
use testudo_run::KeyEnds;

use super::*;

fn reference() -> RunRef {
    RunRef {
        id: RunId(7),
        keyspace: KeyspaceId(1),
        incarnation: 6,
        spans: vec![ExtentSpan { first_page: 3, page_count: 4 }],
        data_pages: 1,
        footer_page: 3,
        footer_pages: 1,
        entries: 5,
        tombstones: 1,
        newest_seqno: Seqno(40),
        user_bytes: 60,
        keys: KeyEnds::of(b"a", b"k"),
        spare_end: 0,
        has_continued_values: false,
        replaced: None,
    }
}

fn record() -> BackupRecord {
    let mut state = ManifestState::default();
    state.references.insert(3, (4, 1));
    BackupRecord {
        repository: RepositoryId(1 << 100),
        id: 4,
        store: StoreId(9),
        time_ms: 1_700_000_000_000,
        seqno: 88,
        new_runs: 1,
        new_bytes: 16_384,
        tail: TailSummary { bytes: 99, checksum: 5, operations: 2 },
        state,
        runs: vec![BackedRun { reference: reference(), page_bytes: 16_384, page_checksum: 11 }],
    }
}

/// Every byte of an encoding is covered by a check.
fn every_flip_is_found<T: PartialEq + std::fmt::Debug>(
    bytes: &[u8],
    decode: impl Fn(&[u8]) -> Result<T, Unreadable>,
) {
    let whole = decode(bytes).unwrap();
    for at in 0..bytes.len() {
        let mut flipped = bytes.to_vec();
        flipped[at] ^= 0x11;
        assert!(decode(&flipped).is_err(), "byte {at} of {whole:?}");
    }
    for length in 0..bytes.len() {
        assert!(decode(&bytes[..length]).is_err(), "cut to {length}");
    }
}

#[test]
fn encodings_round_trip_and_every_byte_flip_is_detected() {
    let id = RepositoryId(77);
    assert_eq!(decode_repository(&encode_repository(id)), Ok(id));
    every_flip_is_found(&encode_repository(id), decode_repository);
    let header =
        RunHeader { store: StoreId(9), page_bytes: 16_384, page_checksum: 3, reference: reference() };
    assert_eq!(RunHeader::encoded_bytes(&header.encode()), Ok(header.encode().len()));
    assert_eq!(RunHeader::decode(&header.encode()), Ok(header.clone()));
    every_flip_is_found(&header.encode(), RunHeader::decode);
    assert_eq!(BackupRecord::decode(&record().encode()), Ok(record()));
    every_flip_is_found(&record().encode(), BackupRecord::decode);
}

#[test]
fn previous_run_version_is_read_and_later_versions_are_refused() {
    let header =
        RunHeader { store: StoreId(9), page_bytes: 16_384, page_checksum: 3, reference: reference() };
    let of_version = |version: u32| {
        let mut bytes = header.encode();
        bytes.truncate(bytes.len() - 8);
        bytes[8..12].copy_from_slice(&version.to_le_bytes());
        seal(bytes)
    };
    assert_eq!(header.encode(), of_version(3));
    assert_eq!(RunHeader::encoded_bytes(&of_version(2)), Ok(header.encode().len()));
    assert_eq!(RunHeader::decode(&of_version(2)), Ok(header.clone()));
    assert_eq!(RunHeader::encoded_bytes(&of_version(4)), Ok(header.encode().len()), "with a map");
    assert_eq!(RunHeader::encoded_bytes(&of_version(5)), Ok(header.encode().len()), "with sections");
    assert_eq!(RunHeader::encoded_bytes(&of_version(6)), Err(Unreadable::OtherVersion(6)));
    assert_eq!(RunHeader::encoded_bytes(&of_version(0)), Err(Unreadable::Damaged("no such version")));
    let mut other = encode_repository(RepositoryId(77));
    other[8] = 3;
    assert_eq!(
        decode_repository(&other),
        Err(Unreadable::OtherVersion(3)),
        "only runs and backups have newer versions"
    );
}

#[test]
fn backup_whose_runs_do_not_match_its_state_is_refused() {
    let mut lost = record();
    lost.runs.clear();
    assert!(matches!(BackupRecord::decode(&lost.encode()), Err(Unreadable::Damaged(_))));
    let mut twice = record();
    twice.runs.push(twice.runs[0].clone());
    assert!(matches!(BackupRecord::decode(&twice.encode()), Err(Unreadable::Damaged(_))));
}

#[test]
fn other_version_is_distinguished_from_damage() {
    let mut bytes = encode_repository(RepositoryId(1));
    for version in [1, 3] {
        bytes[8] = version;
        assert_eq!(decode_repository(&bytes), Err(Unreadable::OtherVersion(version.into())));
    }
}

#[test]
fn frame_checksum_matches_only_its_payload() {
    let frame = encode_frame(b"payload", 3);
    let header = FrameHeader::decode(&frame[..FRAME_HEADER_BYTES]).unwrap();
    assert!(header.fits(b"payload"));
    assert!(!header.fits(b"paylaod") && !header.fits(b"payloa"));
    let other = FrameHeader { operations: 2, ..header };
    assert!(!other.fits(b"payload"));
}
