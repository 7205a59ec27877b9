//! The index of a table together with the arena that contains its leaves and records.
//!
//! **Invariants**
//! - The top level contains only parts and records of this arena, and is dropped before it: the order of the
//!   fields.
//! - Both are lent only to functions that are generic over the arena's brand ([`Index::with`]). Such a
//!   function cannot take a part of the index out, nor put one of another arena in.
#![expect(unsafe_code, reason = "chooses the brand of an arena")]

use std::mem;

use testudo_base::{chunks::ChunkPool, sync::Arc};

use crate::{arena::Arena, top::Top, top_lock::TopLock};

/// Top, leaves, groups and records.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Index {
    top: TopLock<'static>,
    arena: Arena<'static>,
}

impl Index {
    /// Bytes at its start that inserts access: up to the first windows of the arena.
    pub(crate) const INSERT_BYTES: usize = mem::offset_of!(Index, arena) + Arena::<'static>::INSERT_BYTES;

    /// An index with one empty leaf.
    pub(crate) fn new(pool: Arc<ChunkPool>) -> Self {
        // SAFETY: `Top::new` and `with` are generic over the brand and get no other arena. The top level,
        // which alone keeps what carries the brand, is dropped before the arena.
        let arena = unsafe { Arena::with_brand(pool) };
        let top = TopLock::new(Top::new(&arena));
        Self { top, arena }
    }

    /// Lends the top level and its arena to `f`.
    #[inline]
    pub(crate) fn with<R>(&self, f: impl for<'id> FnOnce(&TopLock<'id>, &Arena<'id>) -> R) -> R {
        f(&self.top, &self.arena)
    }

    /// The pool that owns the arena's chunks.
    pub(crate) fn pool(&self) -> &ChunkPool {
        self.arena.pool()
    }

    /// Bytes of the arena.
    pub(crate) fn arena_bytes(&self) -> u64 {
        self.arena.bytes()
    }

    /// Whether half of the arena's window ids are in use.
    pub(crate) fn is_half_named(&self) -> bool {
        self.arena.is_half_named()
    }

    /// For tests: acts as if `count` more window ids were in use.
    pub(crate) fn use_up_names(&self, count: u32) {
        self.arena.use_up_names(count);
    }

    /// Whether the top level has not moved into shards.
    #[inline]
    pub(crate) fn is_small(&self) -> bool {
        self.top.is_single()
    }
}
