use super::*;

fn identity() -> PageIdentity {
    PageIdentity {
        store: StoreId(77 << 64 | 5),
        kind: PageKind::Data,
        page: 12,
        generation: RunId(9),
        keyspace: KeyspaceId(3),
        incarnation: 6,
    }
}

#[test]
fn every_single_byte_change_of_a_sealed_page_is_detected() {
    let mut page = vec![0u8; 4096];
    page[40..140].fill(7);
    seal_pages(&mut page, &identity(), 100);
    assert_eq!(verify_pages(&page, &identity()), Ok(()));
    assert_eq!(payload_of(&page), &[7u8; 100]);
    for at in 0..140 {
        for mask in [1u8, 0xff] {
            page[at] ^= mask;
            assert!(verify_pages(&page, &identity()).is_err(), "byte {at}");
            page[at] ^= mask;
        }
    }
}

#[test]
fn a_page_with_any_wrong_identity_field_is_refused() {
    let mut page = vec![0u8; 4096];
    seal_pages(&mut page, &identity(), 10);
    for other in [
        PageIdentity { page: 13, ..identity() },
        PageIdentity { generation: RunId(8), ..identity() },
        PageIdentity { keyspace: KeyspaceId(4), ..identity() },
        PageIdentity { incarnation: 7, ..identity() },
        PageIdentity { store: StoreId(1), ..identity() },
        PageIdentity { store: StoreId(78 << 64 | 5), ..identity() },
        PageIdentity { kind: PageKind::Index, ..identity() },
    ] {
        assert!(verify_pages(&page, &other).is_err());
    }
}
