//! Addresses of a memtable's parts, recorded by an insert, so that everything the next insert accesses is
//! prefetched at once.
//!
//! Among thousands of memtables, none is in a cache. Each pointer from one part to the next then costs a
//! memory latency; with known addresses there is only one.

use std::ptr;

use testudo_base::prefetch::AddressHint;

use crate::memtable::Memtable;

/// Addresses of a memtable's parts, for prefetching before an insert; wrong hints only cost time.
#[derive(Debug, Default)]
pub struct MemtableHint {
    memtable: AddressHint,
    table: AddressHint,
    leaf: AddressHint,
}

impl MemtableHint {
    /// Records the addresses after an insert into `memtable`. A large memtable is not recorded: it is written
    /// so often that its shared parts are in the caches, including those of other processors.
    #[inline]
    pub fn note(&self, memtable: &Memtable) {
        let small = memtable.table().filter(|table| table.is_small());
        self.memtable.note(small.map_or(ptr::null(), |_| ptr::from_ref(memtable).cast()));
        self.table.note(small.map_or(ptr::null(), |table| ptr::from_ref(table).cast()));
        self.leaf.note(small.map_or(ptr::null(), |table| table.only_leaf()));
    }

    /// Prefetches everything that an insert accesses.
    #[inline]
    pub fn prefetch(&self) {
        self.memtable.prefetch::<1>();
        self.table.prefetch_to_write::<{ crate::table::INSERT_LINES }>();
        self.leaf.prefetch_to_write::<{ crate::top::LEAF_LINES }>();
    }
}

#[cfg(test)]
mod tests {
    use testudo_base::{Kind, Seqno, chunks::ChunkPool};

    use super::*;

    #[test]
    fn hint_covers_small_memtables_and_a_single_leaf() {
        let memtable = Memtable::new(ChunkPool::new(1 << 30));
        let hint = MemtableHint::default();
        hint.note(&memtable);
        hint.prefetch();
        assert!(hint.memtable.address().is_null(), "nothing has been written yet");
        let mut insert = |number: u32| {
            memtable.insert(Seqno(u64::from(number) + 1), Kind::Value, &number.to_be_bytes(), b"value", None);
            hint.note(&memtable);
            hint.prefetch();
            [&hint.memtable, &hint.table, &hint.leaf].map(|part| !part.address().is_null())
        };
        assert_eq!(insert(0), [true, true, true]);
        let known: Vec<_> = (1..100_000).map(&mut insert).collect();
        let is_sorted = known.is_sorted_by_key(|known| known.map(|known| !known));
        assert!(is_sorted, "a memtable never shrinks");
        assert!(known.contains(&[true, true, false]), "several leaves");
        assert_eq!(known.last(), Some(&[false, false, false]), "a large one");
    }
}
