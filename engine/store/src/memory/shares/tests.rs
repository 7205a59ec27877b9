//! Shares add up to the budget for all inputs.
//!
//! **Invariants**
//! - Every accepted budget and share is divided without loss.

use super::{MIN_CACHE_BYTES, MIN_WRITE_BYTES, MemoryShares, Share};

#[test]
fn shares_add_up_and_respect_minimums() {
    for total in [1 << 20, (1 << 20) + 7, 10 << 20, 256 << 20, 1 << 40] {
        MemoryShares::check_total(total).unwrap();
        for share in [0.0, 0.01, 0.45, 0.7, 0.9] {
            for metadata in [0, total / 16, total / 4, total, u64::MAX] {
                let shares = MemoryShares::of(total, Share::of(share).unwrap(), metadata, total / 21);
                let of_caches = shares.chunks() + shares.page_cache() + shares.page_tables();
                assert_eq!(of_caches + shares.reserve + shares.metadata, total, "{share} {metadata}");
                assert!(shares.chunks() > shares.write_buffers, "{total} {share} {metadata}");
                assert!(shares.write_buffers >= MIN_WRITE_BYTES && shares.caches >= MIN_CACHE_BYTES);
            }
        }
    }
}

#[test]
fn metadata_shrinks_caches_before_write_buffers() {
    let of = |metadata: u64| MemoryShares::of(96 << 20, Share::DEFAULT, metadata, 0);
    assert_eq!(of(4 << 20), of(0), "a little metadata is covered by the reserve");
    assert_eq!(of(14 << 20).caches, of(0).caches - (7 << 20));
    assert_eq!(of(14 << 20).write_buffers, of(0).write_buffers);
    assert_eq!(of(1 << 30).caches, MIN_CACHE_BYTES);
    let with_log = MemoryShares::of(96 << 20, Share::DEFAULT, 0, 3 << 20);
    assert_eq!(with_log.caches, of(0).caches - (3 << 20), "all extra log buffers shrink the caches");
    let most = of(1 << 30);
    assert_eq!(most.metadata, (most.total - most.reserve) / 2, "metadata never has more than half");
    assert!(most.write_buffers > of(0).write_buffers / 5 * 4);
}

#[test]
fn write_buffers_grow_with_their_share() {
    let of = |share: f64| MemoryShares::of(256 << 20, Share::of(share).unwrap(), 0, 0).write_buffers;
    assert!([0.0, 0.1, 0.45, 0.8].windows(2).all(|pair| of(pair[0]) < of(pair[1])));
    assert_eq!(of(0.5), 128 << 20);
}

#[test]
fn log_buffers_use_at_most_a_sixteenth() {
    for total in [1 << 20, 10 << 20, 64 << 20, 256 << 20, 1 << 30] {
        let shares = MemoryShares::of(total, Share::DEFAULT, 0, 0);
        let bytes = |is_plenty| (shares.wal_buffer_count(is_plenty) * shares.wal_buffer_bytes) as u64;
        assert!(bytes(true) <= total / 16, "{total}");
        assert!(bytes(false) <= shares.reserve_bytes_max() / 2 || total < 8 << 20, "{total}");
    }
    let count = |total| MemoryShares::of(total, Share::DEFAULT, 0, 0).wal_buffer_count(true);
    assert_eq!([1 << 20, 256 << 20].map(count), [4, 16]);
}

#[test]
fn shares_and_budgets_out_of_bounds_are_invalid() {
    for share in [-0.1, 0.91, 1.0, f64::NAN, f64::INFINITY] {
        assert!(Share::of(share).is_err(), "{share}");
    }
    assert!(MemoryShares::check_total((1 << 20) - 1).is_err());
}
