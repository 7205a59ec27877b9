//! A run as a file of the repository: written once, reused by later backups, read back page by page.
//!
//! **Invariants**
//! - An existing file is reused only if its store, reference and length match the run.
//! - Bytes after a page's payload, which no page checksum covers, are zero in the file.

use testudo_base::{
    Error, PAGE_BYTES, PAGE_SIZE, Result, StoreId,
    checksum::StreamChecksum,
    num::{u64_of, usize_of},
    sync::Arc,
};
use testudo_env::File;
use testudo_recovery::new_store::damaged_page;
use testudo_run::{PageWalk, Run, Stretch};
use testudo_storage::{PAGE_HEADER_BYTES, payload_of};
use testudo_store::long_work::Meter;

use super::{
    backup_format::{BackedRun, RUN_PREFIX_BYTES, RunHeader},
    repository::{OpenRepository, read_part, require_length, run_name, unreadable},
};

/// Seed of the checksum over a run's pages.
const PAGES_SEED: u64 = 0x5255_4e53;

/// The run's existing file in the repository, if any.
pub(crate) fn find(repository: &OpenRepository, store: StoreId, run: &Run) -> Option<RunObject> {
    let name = run_name(store, run.reference());
    let object = RunObject::open(repository, &name).ok()?;
    (object.header.store == store && object.header.reference == *run.reference()).then_some(object)
}

/// Copies a run into the repository and verifies each page.
pub(crate) fn write(
    repository: &OpenRepository,
    store: StoreId,
    run: &Run,
    meter: &mut Meter<'_, '_>,
) -> Result<BackedRun> {
    let reference = run.reference().clone();
    let page_bytes = u64::from(reference.page_count()) * PAGE_BYTES;
    let mut header = RunHeader { store, page_bytes, page_checksum: 0, reference };
    let pages_at = u64_of(header.encode().len());
    let arrival = repository.begin(&run_name(store, run.reference()))?;
    let mut checksum = StreamChecksum::new(PAGES_SEED);
    let mut copied = 0;
    let mut walk = PageWalk::new(run.reference(), store, 0);
    let mut read = |page: u32, buffer: &mut [u8]| run.read_pages(page, buffer);
    while let Some(stretch) = walk.next_stretch(&mut read)? {
        if let Some(block) = stretch.blocks.iter().find(|block| block.damage.is_some()) {
            return Err(damaged_page(run.reference(), block.page, block.damage.unwrap_or_default()));
        }
        let Stretch { first_page, bytes, blocks } = stretch;
        let mut at = 0;
        for block in blocks {
            let page = &mut bytes[at..at + usize_of(u64::from(block.pages)) * PAGE_SIZE];
            let end = PAGE_HEADER_BYTES + payload_of(page).len();
            page[end..].fill(0);
            at += page.len();
        }
        debug_assert_eq!(u64::from(first_page) * PAGE_BYTES, copied, "pages are copied in order");
        copied += u64_of(bytes.len());
        arrival.write(pages_at + u64::from(first_page) * PAGE_BYTES, bytes)?;
        checksum.update(bytes);
        meter.advance(u64_of(bytes.len()))?;
    }
    debug_assert_eq!(copied, page_bytes, "all pages were copied");
    header.page_checksum = checksum.value();
    arrival.write(0, &header.encode())?;
    arrival.finish()?;
    let RunHeader { page_bytes, page_checksum, reference, .. } = header;
    Ok(BackedRun { reference, page_bytes, page_checksum })
}

/// An open run file of the repository.
#[derive(Debug)]
pub(crate) struct RunObject {
    name: String,
    file: Arc<dyn File>,
    pages_at: u64,
    header: RunHeader,
}

impl RunObject {
    fn open(repository: &OpenRepository, name: &str) -> Result<Self> {
        let file = repository.open_file(name)?;
        let mut prefix = [0; RUN_PREFIX_BYTES];
        read_part(&*file, name, 0, &mut prefix)?;
        let length = RunHeader::encoded_bytes(&prefix).map_err(|why| unreadable(name, why))?;
        let file_bytes = file.len().map_err(|e| Error::io(name, e))?;
        if u64_of(length) > file_bytes {
            return Err(Error::corruption(name, file_bytes, "the file is truncated"));
        }
        let mut bytes = vec![0; length];
        read_part(&*file, name, 0, &mut bytes)?;
        let header = RunHeader::decode(&bytes).map_err(|why| unreadable(name, why))?;
        let expected = u64::from(header.reference.page_count()) * PAGE_BYTES;
        if header.page_bytes != expected {
            return Err(Error::corruption(name, 0, "the header is inconsistent"));
        }
        require_length(&*file, name, u64_of(length).saturating_add(expected))?;
        Ok(Self { name: name.to_owned(), file, pages_at: u64_of(length), header })
    }

    /// Opens the file of a run that a backup of `store` needs.
    pub(crate) fn open_for(repository: &OpenRepository, store: StoreId, run: &BackedRun) -> Result<Self> {
        let object = Self::open(repository, &run_name(store, &run.reference))?;
        if object.header.store != store || object.backed() != *run {
            return Err(Error::corruption(
                &object.name,
                0,
                "the file is not the run that the backup refers to",
            ));
        }
        Ok(object)
    }

    pub(crate) fn backed(&self) -> BackedRun {
        let RunHeader { page_bytes, page_checksum, reference, .. } = &self.header;
        BackedRun { reference: reference.clone(), page_bytes: *page_bytes, page_checksum: *page_checksum }
    }

    /// Reads pages of the run without verification.
    pub(crate) fn read_pages(&self, page: u32, buffer: &mut [u8]) -> Result<()> {
        read_part(&*self.file, &self.name, self.offset_of(page), buffer)
    }

    fn offset_of(&self, page: u32) -> u64 {
        self.pages_at + u64::from(page) * PAGE_BYTES
    }

    /// A `Corruption` error at a page of the file.
    pub(crate) fn damaged(&self, page: u32, why: &str) -> Error {
        Error::corruption(&self.name, self.offset_of(page), why)
    }

    /// Reads the whole file; checks every page and the checksum over all pages.
    pub(crate) fn check(&self, meter: &mut Meter<'_, '_>) -> Result<()> {
        let mut checksum = StreamChecksum::new(PAGES_SEED);
        let mut walk = PageWalk::new(&self.header.reference, self.header.store, 0);
        let mut read = |page: u32, buffer: &mut [u8]| self.read_pages(page, buffer);
        while let Some(stretch) = walk.next_stretch(&mut read)? {
            if let Some(block) = stretch.blocks.iter().find(|block| block.damage.is_some()) {
                return Err(self.damaged(block.page, block.damage.unwrap_or_default()));
            }
            checksum.update(stretch.bytes);
            meter.advance(u64_of(stretch.bytes.len()))?;
        }
        if checksum.value() != self.header.page_checksum {
            return Err(self.damaged(0, "the checksum of all pages does not match"));
        }
        Ok(())
    }
}
