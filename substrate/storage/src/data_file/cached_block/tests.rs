use std::path::Path;

use testudo_base::{Incarnation, KeyspaceId, RunId, StoreId, sync::Arc};
use testudo_env::{Env, MemEnv, OpenMode, OpenOptions};

use super::*;
use crate::{PageKind, seal_pages};

const PAGES: u32 = 3;
const PAYLOAD_BYTES: usize = 2 * PAGE_SIZE + 1000;

/// A data file with one block of three pages, and what is in it.
fn data_with_block() -> (Arc<DataFile>, PageAddress, Vec<u8>) {
    let options = OpenOptions { mode: OpenMode::CreateNew, direct: true };
    let file = MemEnv::new(1).open(Path::new("/data"), options).unwrap();
    let writer = Some(Incarnation(1));
    let data = DataFile::new(file, StoreId(7), 1 << 20, std::iter::empty(), writer).unwrap();
    let page = data.allocate(PAGES).unwrap()[0].span().first_page;
    let (generation, keyspace) = (RunId(3), KeyspaceId(1));
    let address =
        PageAddress { page, pages: PAGES, generation, keyspace, incarnation: 1, kind: PageKind::Data };
    let payload: Vec<u8> = (0..PAYLOAD_BYTES).map(|at| (at * 31 / 7).to_le_bytes()[0]).collect();
    let mut bytes = AlignedBuffer::zeroed(usize_of(u64::from(PAGES)) * PAGE_SIZE);
    bytes[PAGE_HEADER_BYTES..PAGE_HEADER_BYTES + PAYLOAD_BYTES].copy_from_slice(&payload);
    seal_pages(&mut bytes, &data.identity(&address), PAYLOAD_BYTES);
    data.write_pages(page, &bytes).unwrap();
    (data, address, payload)
}

fn copied(data: &DataFile, address: &PageAddress) -> Option<Vec<u8>> {
    let mut payload = Vec::new();
    data.cached_block(address).copy_payload(&mut payload).then_some(payload)
}

#[test]
fn a_block_is_there_after_it_was_read_alone_or_with_others() {
    for is_alone in [true, false] {
        let (data, address, payload) = data_with_block();
        assert!(copied(&data, &address).is_none() && !data.has_block(&address));
        if is_alone {
            let is_right = |read: &[u8], first: Option<&PageRef<'_>>| read == payload && first.is_some();
            assert!(data.load_block(&address, is_right).unwrap());
        } else {
            data.load_pages(&[address]).unwrap();
        }
        assert_eq!(copied(&data, &address).as_ref(), Some(&payload));
        assert_eq!(data.io_stats().page_reads, 1);
    }
}

#[test]
fn a_part_needs_the_pages_in_which_it_lies_and_no_others() {
    let (data, address, payload) = data_with_block();
    data.load_pages(&[address]).unwrap();
    for gone in 0..u64::from(PAGES) {
        data.forget_page(address.page + gone);
        let block = data.cached_block(&address);
        for (from, length) in [(0, 10), (4000, 200), (5000, 3000), (8000, 400), (100, PAYLOAD_BYTES - 100)] {
            let pages =
                (PAGE_HEADER_BYTES + from) / PAGE_SIZE..=(PAGE_HEADER_BYTES + from + length - 1) / PAGE_SIZE;
            let part = block.part(from, length);
            assert_eq!(part.is_some(), !pages.contains(&usize_of(gone)), "{from} {length} without {gone}");
            assert!(part.is_none_or(|part| *part == payload[from..from + length]));
        }
        assert!(copied(&data, &address).is_none());
        drop(block);
        data.load_pages(&[address]).unwrap();
        assert_eq!(copied(&data, &address).as_ref(), Some(&payload));
    }
}

#[test]
fn damage_in_any_page_keeps_the_block_out() {
    for page in 0..u64::from(PAGES) {
        let (data, address, _) = data_with_block();
        let mut bytes = AlignedBuffer::zeroed(PAGE_SIZE);
        data.read_stream(address.page + page, &mut bytes).unwrap();
        bytes[500] ^= 1;
        data.write_pages(address.page + page, &bytes).unwrap();
        data.load_pages(&[address]).unwrap_err();
        data.load_block(&address, |_, _| ()).unwrap_err();
        assert!((0..u64::from(PAGES)).all(|at| !data.has_page(address.page + at)));
    }
}

#[test]
fn threads_that_miss_a_block_together_all_get_it() {
    let (data, address, payload) = data_with_block();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..200 {
                    assert!(data.load_block(&address, |read, _| read == payload).unwrap());
                    data.forget_page(address.page + round % u64::from(PAGES));
                }
            });
        }
    });
}
