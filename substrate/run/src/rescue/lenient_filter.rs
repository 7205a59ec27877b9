//! Queries the filter of a damaged run for keys that the run never held, for salvage.
//!
//! **Invariants**
//! - The answer is "no" only if footer and filter page were verified as those of this run; otherwise it is
//!   "maybe".
//! - At most one page is in memory, and none between calls.

use testudo_base::{StoreId, checksum::hash_key, sync::Arc};
use testudo_env::File;
use testudo_storage::{PageIdentity, PageKind, payload_of, verify_pages};

use crate::{
    PageWalk, RunRef,
    format::footer::{Enclosed, Footer},
    rescue::lenient_cursor::{read_leniently, read_run_leniently},
};

/// Filter of a possibly damaged run.
#[derive(Clone, Debug)]
pub struct LenientFilter {
    file: Arc<dyn File>,
    store: StoreId,
    reference: RunRef,
    filter_page: u32,
    filter_pages: u32,
    enclosed: Option<Enclosed>,
}

impl LenientFilter {
    /// Opens the filter of the run of `reference` in store `store`; `None` if it has none, or if its footer
    /// is lost.
    pub fn open(file: Arc<dyn File>, store: StoreId, reference: &RunRef) -> Option<Self> {
        let mut walk = PageWalk::new(reference, store, reference.footer_page);
        let mut read = |first: u32, buffer: &mut [u8]| {
            // Unreadable pages are zeroed, and zeros do not verify.
            read_run_leniently(&*file, reference, first, buffer, &mut Vec::new());
            Ok(())
        };
        let stretch = walk.next_stretch(&mut read).ok()??;
        stretch.blocks.first().filter(|block| block.damage.is_none())?;
        let (record, footer) = Footer::decode(payload_of(stretch.bytes)).ok()?;
        let is_ours = record.reference == *reference && record.store == store && footer.filter_pages > 0;
        let (filter_page, filter_pages) = (footer.filter_page, footer.filter_pages);
        is_ours.then(|| Self {
            store,
            reference: reference.clone(),
            filter_page,
            filter_pages,
            enclosed: footer.enclosed().cloned(),
            file: Arc::clone(&file),
        })
    }

    /// Returns `false` only if the run never held `key`.
    pub fn may_contain(&self, key: &[u8]) -> bool {
        let hash = hash_key(key);
        let page = self.filter_page + testudo_filter::partition_of(hash, self.filter_pages);
        let Some((physical, _)) = self.reference.locate(page) else { return true };
        let mut bytes = [0; testudo_base::PAGE_SIZE];
        let identity = PageIdentity {
            store: self.store,
            kind: if self.enclosed.is_some() { PageKind::Footer } else { PageKind::Filter },
            page: physical,
            generation: self.reference.id,
            keyspace: self.reference.keyspace,
            incarnation: self.reference.incarnation,
        };
        let is_valid = read_leniently(&*self.file, physical, &mut bytes).is_empty()
            && verify_pages(&bytes, &identity).is_ok();
        let payload = payload_of(&bytes);
        let filter = self.enclosed.as_ref().map_or(payload, |enclosed| enclosed.filter_in(payload));
        !is_valid || testudo_filter::check(filter).is_err() || testudo_filter::may_contain(filter, hash)
    }
}
