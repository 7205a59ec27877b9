//! What is done to a store, and the list of all that is.
//!
//! **Invariants**
//! - A long run damages every byte where there is content; in other pages, which are all alike, one byte
//!   each.
//! - A short run does so in one page of each kind, and in the header of every page. Of all other bytes it
//!   takes a sample, whose places move from page to page, so that it meets every field of a record that
//!   many pages have.
//! - The sample is the same in every run.

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use testudo_base::{PAGE_SIZE, num::u64_of};
use testudo_env::{Env, MemEnv};

use super::subject::Subject;

/// Bits that are flipped in a byte: one low, one high and a low one together.
const MASKS: &[u8] = &[0x01, 0x82];
/// All bits, one by one: for long runs.
const EVERY_BIT: &[u8] = &[1, 2, 4, 8, 16, 32, 64, 128];
/// The longest header of a file or of a page.
const HEADER_BYTES_MAX: usize = 128;
/// In a page whose every byte is damaged a short run cuts the file at every so many bytes behind the header.
const CUT_STRIDE: usize = 8;
/// Where the header of a page of the data file has its kind and its number.
const PAGE_KIND_AT: usize = 8;
const PAGE_NUMBER_AT: usize = 16;
/// What stands in a file that should be empty.
const GARBAGE: &[u8] = b"this file is empty in a valid store";
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

/// What a page is: the name of its file without numbers and, in the data file, the number that its header
/// has.
type Kind = (String, u8);

/// Kinds of pages that a short run has damaged in every byte.
#[derive(Default)]
pub(super) struct Kinds(BTreeSet<Kind>);

fn kind_of(subject: &Subject, file: usize, page: usize) -> Kind {
    let stored = &subject.files[file];
    let name = stored.path.file_name().unwrap_or_default().to_string_lossy();
    let is_letter = |letter: char| letter.is_ascii_alphabetic();
    let stem = name.split(|letter| !is_letter(letter)).next().unwrap_or_default().to_owned();
    let field = |at: usize, length: usize| stored.bytes.get(page * PAGE_SIZE + at..)?.get(..length);
    // The pages of a block behind its first have no header.
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
        // Since the stride is prime to the length of a page, each page is damaged at other places of it.
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

/// The damaged files' pages, each with the place of its bytes.
fn pages_of(subject: &Subject) -> impl Iterator<Item = (usize, usize, Range<usize>)> {
    let files = subject.files.iter().enumerate().filter(|(file, _)| subject.is_damaged(*file));
    files.flat_map(|(file, stored)| {
        let length = stored.bytes.len();
        let page = move |page| (file, page, page * PAGE_SIZE..length.min((page + 1) * PAGE_SIZE));
        (0..length.div_ceil(PAGE_SIZE)).map(page)
    })
}

/// One byte of a page, of each page another.
fn one_of(page: usize, place: Range<usize>) -> Range<usize> {
    let offset = (place.start + page * SECTOR_AND_ONE % PAGE_SIZE).min(place.end - 1);
    offset..offset + 1
}

fn every_mask_and_cut(file: usize, offset: usize) -> impl Iterator<Item = Damage> {
    let flips = MASKS.iter().map(move |&mask| Damage::Flip { file, offset, mask });
    flips.chain([Damage::Cut { file, length: offset }])
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
