use testudo_base::{ExtentSpan, KeyspaceId, RunId, Seqno};

use super::*;
use crate::KeyEnds;

fn record() -> RunRecord {
    RunRecord {
        store: StoreId(0x1234_5678_9abc_def0_1122_3344_5566_7788),
        reference: RunRef {
            id: RunId(9),
            keyspace: KeyspaceId(3),
            incarnation: 6,
            newest_seqno: Seqno(77),
            spans: vec![ExtentSpan { first_page: 4, page_count: 5 }],
            data_pages: 2,
            footer_page: 4,
            footer_pages: 1,
            entries: 12,
            tombstones: 1,
            user_bytes: 300,
            keys: KeyEnds::of(b"a", b"m"),
            spare_end: 0,
            has_continued_values: false,
            replaced: None,
        },
        keyspace_name: "städte".to_owned(),
        covered_range: Some(KeyBounds { low: None, high: Some(b"n".to_vec()) }),
        is_value_segment: false,
    }
}

fn footer() -> Footer {
    let position = BlockPosition { page: 2, pages: 1 };
    let fork = Some(Fork { shared: 300, byte: 7 });
    let cut = Separator { bytes: vec![b'c'; MAX_SEPARATOR_BYTES], fork };
    let index = IndexBlocks::of(vec![(Separator::default(), position), (cut, position)]);
    Footer { filter_page: 3, filter_pages: 1, index }
}

#[test]
fn a_footer_round_trips() {
    let bounds = [
        None,
        Some(KeyBounds::default()),
        Some(KeyBounds { low: Some(b"k".to_vec()), high: None }),
        Some(KeyBounds { low: Some(b"k".to_vec()), high: Some(b"n".to_vec()) }),
        Some(KeyBounds { low: Some(b"long a".to_vec()), high: Some(b"long b".to_vec()) }),
    ];
    for covered_range in bounds {
        let record = RunRecord { covered_range, ..record() };
        let payload = footer().encode(&record);
        assert_eq!(Footer::decode(&payload), Ok((record, footer())));
    }
}

#[test]
fn a_truncated_footer_is_damage() {
    let payload = footer().encode(&record());
    for cut in 0..payload.len() {
        assert!(Footer::decode(&payload[..cut]).is_err(), "cut to {cut}");
    }
}

#[test]
fn decoding_a_footer_with_a_flipped_byte_never_panics() {
    let payload = footer().encode(&record());
    for at in 0..payload.len() {
        for bit in 0..8 {
            let mut damaged = payload.clone();
            damaged[at] ^= 1 << bit;
            let _ = Footer::decode(&damaged);
        }
    }
}

#[test]
fn cut_separators_leave_several_candidate_index_blocks() {
    let cut = |byte: u8, fork| Separator { bytes: vec![byte; MAX_SEPARATOR_BYTES], fork };
    let fork = Some(Fork { shared: 300, byte: 7 });
    let separators =
        [Separator::default(), cut(b'c', None), cut(b'c', fork), cut(b'c', fork), cut(b'd', fork)];
    let position = BlockPosition { page: 2, pages: 1 };
    let index = IndexBlocks::of(separators.into_iter().map(|separator| (separator, position)).collect());
    let footer = Footer { filter_page: 3, filter_pages: 1, index };
    let long = |byte: u8| vec![byte; MAX_SEPARATOR_BYTES + 9];
    assert_eq!(footer.index_blocks_for(b"a"), 0..=0);
    assert_eq!(footer.index_blocks_for(&[b'c'; MAX_SEPARATOR_BYTES - 1]), 0..=0);
    assert_eq!(footer.index_blocks_for(&long(b'c')), 1..=3);
    assert_eq!(footer.index_blocks_for(&long(b'd')), 3..=4);
    assert_eq!(footer.index_blocks_for(b"cd"), 3..=3);
    assert_eq!(footer.index_blocks_for(b"e"), 4..=4);
}

fn enclosing(index: &[u8], filter: &[u8]) -> (RunRecord, Footer, Vec<u8>) {
    let mut record = record();
    record.reference.data_pages = record.reference.footer_page;
    let (footer, payload) = Footer::enclosing(record.reference.footer_page, &record, index, filter);
    (record, footer, payload)
}

#[test]
fn an_enclosing_footer_round_trips() {
    for (index_bytes, filter_bytes) in [(1, 0), (40, 87), (440, 72), (440, 73), (2_000, 1_500)] {
        let (index, filter) = (vec![b'i'; index_bytes], vec![b'f'; filter_bytes]);
        let (record, footer, payload) = enclosing(&index, &filter);
        assert_eq!(Footer::decode(&payload), Ok((record, footer.clone())));
        assert_eq!(footer.filter_pages, u32::from(filter_bytes > 0));
        assert_eq!(footer.keeps_structure(), index_bytes + filter_bytes <= KEPT_BYTES_MAX);
        let enclosed = footer.enclosed().unwrap();
        assert_eq!((enclosed.index_in(&payload), enclosed.filter_in(&payload)), (&*index, &*filter));
        assert_eq!(enclosed.index_in(&payload[..index_bytes.min(filter_bytes)]), []);
    }
}

#[test]
fn a_truncated_or_inconsistent_enclosing_footer_is_damage() {
    let (record, _, payload) = enclosing(&[b'i'; 40], &[b'f'; 87]);
    for cut in 0..payload.len() {
        assert!(Footer::decode(&payload[..cut]).is_err(), "cut to {cut}");
    }
    assert!(Footer::decode(&[&*payload, b"more"].concat()).is_err());
    for at in 0..payload.len() {
        for bit in 0..8 {
            let mut damaged = payload.clone();
            damaged[at] ^= 1 << bit;
            let _ = Footer::decode(&damaged);
        }
    }
    let decode = |change: fn(&mut RunRef)| {
        let mut record = record.clone();
        change(&mut record.reference);
        Footer::decode(&Footer::enclosing(4, &record, b"index", b"filter").1)
    };
    assert!(decode(|_| ()).is_ok());
    assert!(decode(|run| run.data_pages -= 1).is_err());
    assert!(decode(|run| run.footer_page -= 1).is_err());
    assert!(Footer::decode(&Footer::enclosing(4, &record, b"", b"filter").1).is_err());
}
