//! Blocks of several pages: out of the page cache, which has their pages one by one, or from the device.
//!
//! **Invariants**
//! - Blocks that the cache does not take are read each time.

use testudo_base::Result;
use testudo_storage::{CACHED_BLOCK_PAGES_MAX, PageAddress, PageKind, PageRef, payload_of};

use super::Run;
use crate::{Access, format::footer::BlockPosition, spans::locate};

impl Run {
    /// The place of a data block, if the page cache takes it: not if it is too long for that, or lies in
    /// pieces.
    pub(crate) fn cached_place(&self, kind: PageKind, at: BlockPosition) -> Result<Option<PageAddress>> {
        if kind != PageKind::Data || at.pages > CACHED_BLOCK_PAGES_MAX {
            return Ok(None);
        }
        let address = PageAddress { pages: at.pages, ..self.address(kind, at.page)? };
        let room = locate(self.spans(), at.page).map_or(0, |(_, room)| room);
        Ok(Some(address).filter(|_| room >= at.pages))
    }

    /// As [`Run::with_block`], for a block of several pages.
    pub(super) fn with_long_block<R>(
        &self,
        kind: PageKind,
        position: BlockPosition,
        access: Access<'_>,
        act: impl FnOnce(&[u8], Option<&PageRef<'_>>) -> R,
    ) -> Result<Option<R>> {
        let Some(place) = self.cached_place(kind, position)? else {
            let address = self.address(kind, position.page)?;
            let block = self.data.read_block(&self.pieces(position)?, &address)?;
            return Ok(Some(act(payload_of(&block), None)));
        };
        let (cached, mut payload) = (self.data.cached_block(&place), Vec::new());
        if cached.copy_payload(&mut payload) {
            return Ok(Some(act(&payload, cached.first_page())));
        }
        drop(cached);
        self.load_long_block(&place, access, act)
    }

    /// Reads a block of several pages, which the cache does not have, or notes that it is missing.
    pub(super) fn load_long_block<R>(
        &self,
        place: &PageAddress,
        access: Access<'_>,
        act: impl FnOnce(&[u8], Option<&PageRef<'_>>) -> R,
    ) -> Result<Option<R>> {
        match access {
            Access::Blocking => self.data.load_block(place, act).map(Some),
            Access::Collecting(wanted, _) => {
                wanted.borrow_mut().push(*place);
                Ok(None)
            }
        }
    }
}
