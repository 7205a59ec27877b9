//! Newtypes for all ids and positions, so that an index cannot be mistaken for a count or an id.

use std::fmt;

/// Bytes of a page, the unit of caching and of allocation.
pub const PAGE_BYTES: u64 = 4096;
/// [`PAGE_BYTES`] as a `usize`, for buffers.
pub const PAGE_SIZE: usize = 4096;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(
    /// Position of a write in the commit order of the whole store; the first write has seqno 1.
    Seqno(u64)
);
id!(
    /// Id of a keyspace of one store; never reused.
    KeyspaceId(u32)
);
id!(
    /// Id of a metadata object of one tree (such as a node); never reused within its keyspace.
    ObjectId(u64)
);
id!(
    /// Id of a run of one store; never reused, so that it also serves as the generation of the run's pages.
    RunId(u64)
);
id!(
    /// 128 random bits that distinguish the files of one store from another's.
    StoreId(u128)
);

id!(
    /// One opening of a store for writing: random, never 0. It distinguishes the writes of copies of a store
    /// after they diverged.
    Incarnation(u64)
);

impl KeyspaceId {
    /// The id of pages in the data file for readers of this process only; no keyspace gets it.
    pub const SPILLED: Self = Self(u32::MAX);
}

impl Incarnation {
    /// The low 32 bits, carried by every page and by references to runs.
    pub fn low(self) -> u32 {
        crate::num::low32(self.0)
    }
}

/// An opening of a store for writing, as stored in the manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Number of the first log segment that it may have created.
    pub first_segment: u64,
}

impl Opening {
    /// Returns the incarnation that wrote log segment `segment`, given openings in order; `None` if none of
    /// them did.
    pub fn writer_of(openings: &[Self], segment: u64) -> Option<Incarnation> {
        let opening = openings.iter().rev().find(|opening| opening.first_segment <= segment)?;
        Some(opening.incarnation)
    }
}

/// A range of consecutive pages of the data file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtentSpan {
    /// Number of the first page, counted from the start of the data file.
    pub first_page: u64,
    /// Number of pages, at least one.
    pub page_count: u32,
}

impl ExtentSpan {
    /// Number of the page after the last one.
    pub fn end_page(self) -> u64 {
        self.first_page + u64::from(self.page_count)
    }

    /// Length in bytes.
    pub fn bytes(self) -> u64 {
        u64::from(self.page_count) * PAGE_BYTES
    }
}
