//! The part of a run reference that names the map of the run's replaced pages: its size is the same however
//! many pages were replaced.
//!
//! Encoded (little-endian): generation u64 · incarnation u32 · count u32 of pages · their places u32 each.
//! The pages form one block of kind 6, see `map_page.rs`, with this generation in its header.
//!
//! **Invariants**
//! - Every version of a run has a map of its own, written together with its new pages.

use testudo_base::{
    RunId,
    codec::{self, Damage, Reader},
    num::{u32_of, usize_of},
};

use super::writing::Writing;

/// Maximum pages of a map: of a run of 64 MiB with an overflow border of 256 bytes for each page.
const MAP_PAGES_MAX: u32 = 4096;

/// Location of a map, and the writing of which it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapRef {
    /// The newest writing of the version.
    pub writing: Writing,
    /// Places of its pages, in order.
    pub places: Box<[u32]>,
}

impl MapRef {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        codec::put_u64(out, self.writing.generation.0);
        codec::put_u32(out, self.writing.incarnation);
        debug_assert!(!self.places.is_empty(), "a map has pages");
        codec::put_u32(out, u32_of(self.places.len()));
        self.places.iter().for_each(|place| codec::put_u32(out, *place));
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, Damage> {
        let writing = Writing { generation: RunId(reader.u64()?), incarnation: reader.u32()? };
        let count = reader.u32()?;
        if count == 0 || count > MAP_PAGES_MAX || usize_of(u64::from(count)) * 4 > reader.rest().len() {
            return Err(Damage("a map has an invalid number of pages"));
        }
        let places = (0..count).map(|_| reader.u32()).collect::<Result<_, _>>()?;
        Ok(Self { writing, places })
    }

    /// Number of pages.
    pub fn page_count(&self) -> u32 {
        u32_of(self.places.len())
    }

    /// Whether a version whose map has this many pages can be stored.
    pub(crate) fn can_have(pages: u32) -> bool {
        (1..=MAP_PAGES_MAX).contains(&pages)
    }
}
