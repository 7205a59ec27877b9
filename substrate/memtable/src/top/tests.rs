use testudo_base::chunks::ChunkPool;

use super::*;

#[test]
fn leaf_fields_changed_by_inserts_share_the_lock_cache_line() {
    Arena::scope(ChunkPool::new(0), |arena| {
        let top = Top::new(arena);
        let leaf = &top.branches[0].leaves[0];
        let start = ptr::from_ref(&**leaf).addr();
        assert_eq!(start % LINE_BYTES, 0);
        let changed = leaf.0.read().changed_by_inserts();
        assert!(changed.start >= start && changed.end <= start + LINE_BYTES, "{start:x}: {changed:x?}");
    });
}
