use testudo_base::{ExtentSpan, KeyspaceId, RunId, Seqno};

use super::*;

fn record() -> RunRecord {
    RunRecord {
        store: StoreId(0x1234_5678_9abc_def0_1122_3344_5566_7788),
        reference: RunRef {
            id: RunId(9),
            keyspace: KeyspaceId(3),
            newest_seqno: Seqno(77),
            spans: vec![ExtentSpan { first_page: 4, page_count: 5 }],
            data_pages: 2,
            footer_page: 4,
            footer_pages: 1,
            entries: 12,
            tombstones: 1,
            user_bytes: 300,
            first_key: b"a".to_vec(),
            last_key: b"m".to_vec(),
        },
        keyspace_name: "städte".to_owned(),
        authority: Some(KeyBounds { low: None, high: Some(b"n".to_vec()) }),
    }
}

fn footer() -> Footer {
    let index = vec![(Vec::new(), BlockPosition { page: 2, pages: 1 })];
    Footer { filter_page: 3, filter_pages: 1, index }
}

#[test]
fn a_footer_reads_back_as_it_was_written() {
    let bounds = [
        None,
        Some(KeyBounds::default()),
        Some(KeyBounds { low: Some(b"k".to_vec()), high: None }),
        Some(KeyBounds { low: Some(b"k".to_vec()), high: Some(b"n".to_vec()) }),
    ];
    for authority in bounds {
        let record = RunRecord { authority, ..record() };
        let payload = footer().encode(&record);
        assert_eq!(Footer::decode(&payload), Ok((record, footer())));
    }
}

#[test]
fn a_cut_footer_is_damage() {
    let payload = footer().encode(&record());
    for cut in 0..payload.len() {
        assert!(Footer::decode(&payload[..cut]).is_err(), "cut to {cut}");
    }
}

#[test]
fn no_flipped_byte_of_a_footer_makes_decoding_panic() {
    let payload = footer().encode(&record());
    for at in 0..payload.len() {
        for bit in 0..8 {
            let mut damaged = payload.clone();
            damaged[at] ^= 1 << bit;
            let _ = Footer::decode(&damaged);
        }
    }
}
