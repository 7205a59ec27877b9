//! What is done to a store, and the list of all that is.
//!
//! **Invariants**
//! - Where there is content every byte is damaged; in other pages, which are all alike, one byte each.

use std::sync::Arc;

use testudo_base::{PAGE_SIZE, num::u64_of};
use testudo_env::{Env, MemEnv};

use super::subject::Subject;

/// Bits that are flipped in a byte: one low, one high and a low one together.
const MASKS: &[u8] = &[0x01, 0x82];
/// All bits, one by one: for long runs.
const EVERY_BIT: &[u8] = &[1, 2, 4, 8, 16, 32, 64, 128];
/// The longest header of a file.
const HEADER_BYTES_MAX: usize = 128;
/// What stands in a file that should be empty.
const GARBAGE: &[u8] = b"this file is empty in a sound store";
/// What the place of a sampled byte moves on by from page to page.
const SECTOR_AND_ONE: usize = 513;
/// Pages of one file that are put into each other's places, at most.
const PAIRED_PAGES_MAX: usize = 40;

/// One damage. Files are numbers of the subject's list.
#[derive(Clone, Debug)]
pub(super) enum Damage {
    /// Bits of a byte flip.
    Flip { file: usize, offset: usize, mask: u8 },
    /// The file ends early.
    Cut { file: usize, length: usize },
    /// The file is gone.
    Missing { file: usize },
    /// A page has these bytes of another place or of an earlier time.
    Page { file: usize, page: usize, bytes: Arc<[u8]>, why: &'static str },
    /// Two pages have each other's bytes.
    Exchange { file: usize, pages: (usize, usize) },
    /// The file has the content of another store's, or some where it should have none.
    Foreign { file: usize, bytes: Arc<[u8]> },
}

impl Damage {
    /// Under which name it is counted.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Flip { .. } => "bytes flipped",
            Self::Cut { .. } => "files cut",
            Self::Missing { .. } => "files missing",
            Self::Page { why, .. } => why,
            Self::Exchange { .. } => "pages exchanged",
            Self::Foreign { .. } => "files with foreign content",
        }
    }

    /// Whether it is to bytes of the header of a file.
    pub(super) fn is_in_header(&self) -> bool {
        match self {
            Self::Flip { offset, .. } => *offset < HEADER_BYTES_MAX,
            Self::Cut { length, .. } => *length < HEADER_BYTES_MAX,
            _ => false,
        }
    }

    pub(super) fn describe(&self, subject: &Subject) -> String {
        let name = |file: &usize| subject.files[*file].path.display();
        match self {
            Self::Flip { file, offset, mask } => format!("{} at {offset} ^ {mask:#04x}", name(file)),
            Self::Cut { file, length } => format!("{} cut to {length} bytes", name(file)),
            Self::Missing { file } => format!("{} missing", name(file)),
            Self::Page { file, page, why, .. } => format!("page {page} of {} {why}", name(file)),
            Self::Exchange { file, pages: (a, b) } => {
                format!("pages {a} and {b} of {} exchanged", name(file))
            }
            Self::Foreign { file, .. } => format!("{} has foreign content", name(file)),
        }
    }

    /// Does it.
    pub(super) fn apply(&self, subject: &Subject, machine: &MemEnv) -> std::io::Result<()> {
        let path = |file: &usize| &subject.files[*file].path;
        match self {
            Self::Flip { file, offset, mask } => machine.corrupt(path(file), u64_of(*offset), *mask),
            Self::Cut { file, length } => machine.truncate(path(file), u64_of(*length)),
            Self::Missing { file } => machine.remove_file(path(file)),
            Self::Page { file, page, bytes, .. } => {
                machine.overwrite(path(file), u64_of(page * PAGE_SIZE), bytes)
            }
            Self::Exchange { file, pages: (a, b) } => {
                let bytes = &subject.files[*file].bytes;
                [(a, b), (b, a)].into_iter().try_for_each(|(from, to)| {
                    let bytes = &bytes[from * PAGE_SIZE..(from + 1) * PAGE_SIZE];
                    machine.overwrite(path(file), u64_of(to * PAGE_SIZE), bytes)
                })
            }
            Self::Foreign { file, bytes } => machine.replace(path(file), bytes),
        }
    }
}

/// Every byte and every length of a subject's files; of a long run with every bit of every byte.
pub(super) fn bytes_and_lengths(subject: &Subject, is_long: bool) -> Vec<Damage> {
    let masks = if is_long { EVERY_BIT } else { MASKS };
    let mut all = Vec::new();
    for (file, stored) in subject.files.iter().enumerate().filter(|(file, _)| subject.is_damaged(*file)) {
        let stride = if is_long { 1 } else { subject.stride(file) };
        for offset in places(&stored.bytes, stride) {
            all.extend(masks.iter().map(|&mask| Damage::Flip { file, offset, mask }));
            all.push(Damage::Cut { file, length: offset });
        }
    }
    all
}

/// Whole pages and files of a subject that are missing or in wrong places.
pub(super) fn pages_and_files(subject: &Subject) -> Vec<Damage> {
    let mut all = Vec::new();
    for (file, stored) in subject.files.iter().enumerate().filter(|(file, _)| subject.is_damaged(*file)) {
        if stored.bytes.is_empty() {
            all.push(Damage::Foreign { file, bytes: GARBAGE.into() });
        }
        all.push(Damage::Missing { file });
        all.extend(pages_in_wrong_places(subject, file));
        all.extend(other_pages(subject, file));
    }
    for (file, bytes) in &subject.foreign {
        all.push(Damage::Foreign { file: *file, bytes: Arc::clone(bytes) });
    }
    all
}

fn page_of(bytes: &[u8], page: usize) -> Option<Arc<[u8]>> {
    Some(bytes.get(page * PAGE_SIZE..(page + 1) * PAGE_SIZE)?.into())
}

/// Whether a page, perhaps a last one that is short, is other than zeros.
fn has_content(bytes: &[u8], page: usize) -> bool {
    bytes.chunks(PAGE_SIZE).nth(page).is_some_and(|page| page.iter().any(|&byte| byte != 0))
}

fn pages_with_content(bytes: &[u8]) -> Vec<usize> {
    (0..bytes.len().div_ceil(PAGE_SIZE)).filter(|&page| has_content(bytes, page)).collect()
}

/// Every byte of the header, every `stride`-th byte of the pages with content, and one byte, each time
/// another, of every other page.
fn places(bytes: &[u8], stride: usize) -> Vec<usize> {
    let page_count = bytes.len().div_ceil(PAGE_SIZE);
    let of_page = |page: usize| {
        let (start, end) = (page * PAGE_SIZE, bytes.len().min((page + 1) * PAGE_SIZE));
        let sampled = (start + page * SECTOR_AND_ONE % PAGE_SIZE).min(end - 1);
        let full = (start..end).step_by(stride);
        if has_content(bytes, page) { full } else { (sampled..sampled + 1).step_by(1) }
    };
    let header = 0..HEADER_BYTES_MAX.min(bytes.len());
    header.chain((0..page_count).flat_map(of_page).filter(|&place| place >= HEADER_BYTES_MAX)).collect()
}

/// Every page with content in the place of every other one, and each two exchanged.
fn pages_in_wrong_places(subject: &Subject, file: usize) -> Vec<Damage> {
    let bytes = &subject.files[file].bytes;
    let mut full = pages_with_content(bytes);
    full.truncate(PAIRED_PAGES_MAX);
    let mut all = Vec::new();
    for &from in &full {
        for &page in full.iter().filter(|&&page| page != from) {
            let why = "pages holding another page";
            all.extend(page_of(bytes, from).map(|bytes| Damage::Page { file, page, bytes, why }));
            if from < page && page_of(bytes, page).is_some() {
                all.push(Damage::Exchange { file, pages: (from, page) });
            }
        }
    }
    all
}

/// Pages as they were before, as if they had never been written, and those of another store.
fn other_pages(subject: &Subject, file: usize) -> Vec<Damage> {
    let stored = &subject.files[file];
    let mut all = Vec::new();
    for page in pages_with_content(&stored.bytes) {
        let Some(now) = page_of(&stored.bytes, page) else { continue };
        let mut put = |bytes: Arc<[u8]>, why| {
            if bytes != now {
                all.push(Damage::Page { file, page, bytes, why });
            }
        };
        let foreign = subject.foreign.iter().filter(|(other, _)| *other == file);
        foreign
            .filter_map(|(_, bytes)| page_of(bytes, page))
            .for_each(|page| put(page, "pages of another store"));
        // The end of the log as it was before is what a power loss leaves.
        if !subject.is_log(file) {
            put(vec![0; PAGE_SIZE].into(), "pages never written");
            let earlier = subject.earlier.iter().filter(|(path, _)| *path == stored.path);
            let mut images: Vec<_> = earlier.filter_map(|(_, bytes)| page_of(bytes, page)).collect();
            images.dedup();
            images.into_iter().for_each(|image| put(image, "pages as they were before"));
        }
    }
    all
}
