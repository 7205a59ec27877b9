//! Storage of pages: superblock, extents and their reference counts, page cache, manifest.
//!
//! Upper layers address the data file by pages and extents; the manifest records which of them belong to the
//! committed state. A change survives a crash exactly when its manifest edit is durable.
//!
//! **Invariants**
//! - An extent is free, live (referenced by the durable state) or held (by a handle in memory). It is reused
//!   only when it is neither live nor held.
//! - Pages are durable before the manifest edit that refers to them.
//! - A page read from the device is verified (checksum, store, location, generation) before it is returned.
//! - The newest valid superblock slot is never overwritten.

mod cache;
mod data_file;
mod inspect;
mod manifest;
mod space;

pub use cache::{
    Arrival, Awaited, CacheStats, HotPage, Keeping, Loading, Neighbours, PageCache, PageRef, Priority,
    Restoring,
};
pub use data_file::long_read::LongRead;
pub use data_file::page_format::{
    PAGE_HEADER_BYTES, PageHeader, PageIdentity, PageKind, payload_of, seal_pages, verify_pages,
};
pub use data_file::page_write::PageWrite;
pub use data_file::restore_pages::{Restored, WantedPage};
pub use data_file::stream_read::{StreamLease, StreamRead};
pub use data_file::{DataFile, IoStats, PageAddress};
pub use inspect::{ManifestSection, SlotContents, inspect_manifest, inspect_superblock, read_file};
pub use manifest::manifest_format::{Change, Edit};
pub use manifest::state::{KeyspaceRecord, ManifestState};
pub use manifest::superblock::{FORMAT_VERSION, Superblock, SuperblockFile, survey_superblock};
pub use manifest::survey::{ManifestSurvey, list_manifests, manifest_file_name, survey_manifest};
pub use manifest::watermark::{WATERMARK_FILE, Watermark, read_watermark};
pub use manifest::{Manifest, ManifestStats, check_superblock};
pub use space::{
    extents::{Extent, Extents, SpaceStats},
    place_users::PlaceSet,
};

/// Name of the file that holds all pages.
pub const DATA_FILE: &str = "data";
/// Name of the file that holds the two superblock slots.
pub const SUPERBLOCK_FILE: &str = "superblock";
