//! Damage to a store, and the list of all cases.
//!
//! **Invariants**
//! - A long run damages every byte of pages with content, and one byte of other pages, which are all alike.
//! - A short run damages every byte of one page of each kind, and the header of every page. It samples all
//!   other bytes; the offsets differ from page to page, so that the sample reaches every field of a record
//!   that many pages have.
//! - The sample is the same in every run.

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use testudo_base::{PAGE_SIZE, num::u64_of};
use testudo_env::{Env, MemEnv};

use super::subject::Subject;

/// Masks for flips of a byte: a low bit, and a high and a low bit together.
const MASKS: &[u8] = &[0x01, 0x82];
/// All single bits: for long runs.
const EVERY_BIT: &[u8] = &[1, 2, 4, 8, 16, 32, 64, 128];
/// Maximum length of a file or page header.
const HEADER_BYTES_MAX: usize = 128;
/// Stride of truncations behind the header in a fully damaged page of a short run.
const CUT_STRIDE: usize = 8;
/// Offsets of kind and page number in the header of a page of the data file.
const PAGE_KIND_AT: usize = 8;
const PAGE_NUMBER_AT: usize = 16;
/// Content written to a file that should be empty.
const GARBAGE: &[u8] = b"this file is empty in a valid store";
/// Step of the sampled byte's offset from page to page.
const SECTOR_AND_ONE: usize = 513;
/// Maximum pages of one file that are swapped with each other.
const PAIRED_PAGES_MAX: usize = 40;

/// One damage. Files are indexes in the subject's list.
#[derive(Clone, Debug)]
pub(super) enum Damage {
    /// Bits of a byte flip.
    Flip { file: usize, offset: usize, mask: u8 },
    /// The file is truncated.
    Cut { file: usize, length: usize },
    /// The file is missing.
    Missing { file: usize },
    /// A page has bytes of another place or of an earlier time.
    Page { file: usize, page: usize, bytes: Arc<[u8]>, why: &'static str },
    /// Two pages have each other's bytes.
    Exchange { file: usize, pages: (usize, usize) },
    /// The file has the content of another store's, or content where it should be empty.
    Foreign { file: usize, bytes: Arc<[u8]> },
}

impl Damage {
    /// Name under which it is counted.
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

    /// Whether it affects bytes of a file's header.
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

    /// Applies the damage.
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

/// Kind of a page: the name of its file without numbers and, in the data file, the kind number in its header.
type Kind = (String, u8);

/// Kinds of pages of which a short run has damaged every byte.
#[derive(Default)]
pub(super) struct Kinds(BTreeSet<Kind>);

fn kind_of(subject: &Subject, file: usize, page: usize) -> Kind {
    let stored = &subject.files[file];
    let name = stored.path.file_name().unwrap_or_default().to_string_lossy();
    let is_letter = |letter: char| letter.is_ascii_alphabetic();
    let stem = name.split(|letter| !is_letter(letter)).next().unwrap_or_default().to_owned();
    let field = |at: usize, length: usize| stored.bytes.get(page * PAGE_SIZE + at..)?.get(..length);
    // Only the first page of a block has a header.
    let is_first = field(PAGE_NUMBER_AT, 8) == Some(&u64_of(page).to_le_bytes());
    let number = field(PAGE_KIND_AT, 1).filter(|_| stem == "data" && is_first).map_or(0, |field| field[0]);
    (stem, number)
}

/// Every bit of every byte with content, and every length: for long runs.
pub(super) fn every_bit_and_length(subject: &Subject) -> Vec<Damage> {
    let mut all = Vec::new();
    for (file, page, place) in pages_of(subject) {
        for offset in if has_content(&subject.files[file].bytes, page) { place } else { one_of(page, place) }
        {
            all.extend(EVERY_BIT.iter().map(|&mask| Damage::Flip { file, offset, mask }));
            all.push(Damage::Cut { file, length: offset });
        }
    }
    all
}

/// The bytes and lengths of a short run.
pub(super) fn sample_of_bytes_and_lengths(subject: &Subject, kinds: &mut Kinds) -> Vec<Damage> {
    let mut all = Vec::new();
    for (file, page, place) in pages_of(subject) {
        if !has_content(&subject.files[file].bytes, page) {
            all.extend(one_of(page, place).flat_map(|offset| every_mask_and_cut(file, offset)));
            continue;
        }
        let is_whole = subject.is_killed() && kinds.0.insert(kind_of(subject, file, page));
        let stride = subject.stride();
        // The stride is coprime to the page size, so each page is damaged at different offsets.
        let is_sampled = |offset: usize| offset % stride == page % stride;
        let header = if subject.has_header(file, page) { HEADER_BYTES_MAX } else { 0 };
        for offset in place {
            if offset % PAGE_SIZE < header || is_sampled(offset) {
                all.extend(every_mask_and_cut(file, offset));
            } else if is_whole {
                all.push(Damage::Flip { file, offset, mask: MASKS[offset % MASKS.len()] });
                if offset.is_multiple_of(CUT_STRIDE) {
                    all.push(Damage::Cut { file, length: offset });
                }
            }
        }
    }
    all
}

/// Pages of the damaged files, each with its byte range.
fn pages_of(subject: &Subject) -> impl Iterator<Item = (usize, usize, Range<usize>)> {
    let files = subject.files.iter().enumerate().filter(|(file, _)| subject.is_damaged(*file));
    files.flat_map(|(file, stored)| {
        let length = stored.bytes.len();
        let page = move |page| (file, page, page * PAGE_SIZE..length.min((page + 1) * PAGE_SIZE));
        (0..length.div_ceil(PAGE_SIZE)).map(page)
    })
}

/// One byte of a page, at a different offset for each page.
fn one_of(page: usize, place: Range<usize>) -> Range<usize> {
    let offset = (place.start + page * SECTOR_AND_ONE % PAGE_SIZE).min(place.end - 1);
    offset..offset + 1
}

fn every_mask_and_cut(file: usize, offset: usize) -> impl Iterator<Item = Damage> {
    let flips = MASKS.iter().map(move |&mask| Damage::Flip { file, offset, mask });
    flips.chain([Damage::Cut { file, length: offset }])
}

/// Whole pages and files of a subject that are missing or misplaced.
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

/// Whether a page, possibly a short last one, has nonzero bytes.
fn has_content(bytes: &[u8], page: usize) -> bool {
    bytes.chunks(PAGE_SIZE).nth(page).is_some_and(|page| page.iter().any(|&byte| byte != 0))
}

fn pages_with_content(bytes: &[u8]) -> Vec<usize> {
    (0..bytes.len().div_ceil(PAGE_SIZE)).filter(|&page| has_content(bytes, page)).collect()
}

/// Every page with content in the place of every other one, and each pair exchanged.
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

/// Pages with their earlier content, pages that were never written, and pages of another store.
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
        // An earlier version of the end of the log is a valid result of a power loss.
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
