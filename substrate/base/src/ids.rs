//! Newtypes for everything that is counted, so that an index never passes for a count or an id.

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
    /// Position of a write in the commit order of the whole store; the first write has 1.
    Seqno(u64)
);
id!(
    /// A keyspace of one store; never reused.
    KeyspaceId(u32)
);
id!(
    /// A metadata object of one tree (a node, say); never reused within its keyspace.
    ObjectId(u64)
);
id!(
    /// A run of one store; never reused, so that it serves as the generation of the run's pages.
    RunId(u64)
);
id!(
    /// 128 random bits that tell one store's files from another's.
    StoreId(u128)
);

impl StoreId {
    /// Thirty-two bits of the id, carried by every page and record.
    pub fn salt(self) -> u32 {
        let bytes = self.0.to_le_bytes();
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
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
    /// The page after the last one.
    pub fn end_page(self) -> u64 {
        self.first_page + u64::from(self.page_count)
    }

    /// Length in bytes.
    pub fn bytes(self) -> u64 {
        u64::from(self.page_count) * PAGE_BYTES
    }
}
