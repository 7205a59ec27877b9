//! Where a memtable lies that was written into, so that all of it that an insert looks at is loaded at once.
//!
//! Among thousands of memtables one is in no cache. Each pointer from one part of it to the next is then a
//! wait for memory; who knows the addresses from the time before waits once.

use std::ptr;

use testudo_base::prefetch::AddressHint;

use crate::memtable::Memtable;

/// Where a memtable lies, for loading it ahead of an insert; wrong hints cost only time.
#[derive(Debug, Default)]
pub struct MemtableHint {
    memtable: AddressHint,
    table: AddressHint,
    leaf: AddressHint,
}

impl MemtableHint {
    /// An insert into `memtable` has been made. Of a large one nothing is noted: much is written into it, so
    /// that what it has in common for all keys is in the caches, and in those of other processors, too.
    #[inline]
    pub fn note(&self, memtable: &Memtable) {
        let small = memtable.table().filter(|table| table.is_small());
        self.memtable.note(small.map_or(ptr::null(), |_| ptr::from_ref(memtable).cast()));
        self.table.note(small.map_or(ptr::null(), |table| ptr::from_ref(table).cast()));
        self.leaf.note(small.map_or(ptr::null(), |table| table.only_leaf()));
    }

    /// Starts loading what an insert looks at.
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
    fn a_hint_is_of_small_memtables_and_names_the_leaf_while_there_is_but_one() {
        let memtable = Memtable::new(ChunkPool::new(1 << 30));
        let hint = MemtableHint::default();
        hint.note(&memtable);
        hint.prefetch();
        assert!(hint.memtable.address().is_null(), "nothing was written yet");
        let mut insert = |number: u32| {
            memtable.insert(Seqno(u64::from(number) + 1), Kind::Value, &number.to_be_bytes(), b"value", None);
            hint.note(&memtable);
            hint.prefetch();
            [&hint.memtable, &hint.table, &hint.leaf].map(|part| !part.address().is_null())
        };
        assert_eq!(insert(0), [true, true, true]);
        let known: Vec<_> = (1..100_000).map(&mut insert).collect();
        let is_sorted = known.is_sorted_by_key(|known| known.map(|known| !known));
        assert!(is_sorted, "a memtable only grows");
        assert!(known.contains(&[true, true, false]), "several leaves");
        assert_eq!(known.last(), Some(&[false, false, false]), "a large one");
    }
}
