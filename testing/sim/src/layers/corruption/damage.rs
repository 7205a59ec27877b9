//! What is done to a store, and the list of all that is.
//!
//! **Invariants**
//! - Where there is content every sector is damaged; elsewhere a sample.

use std::sync::Arc;

use testudo_base::{
    PAGE_SIZE,
    num::{u64_of, usize_of},
};
use testudo_env::{Env, MemEnv, SplitMix};

use super::subject::Subject;

/// Bits that are flipped in a byte with content: one low, one high and a low one together.
const MASKS: [u8; 2] = [0x01, 0x82];
const SECTOR: usize = 512;
/// Distance of the bytes and lengths that are tried.
const STRIDE: usize = 23;
/// The same in the first sector of a file: headers have many short fields.
const HEADER_STRIDE: usize = 5;
/// Distance of the sectors without content that are tried.
const EMPTY_STRIDE: usize = 64 * SECTOR;
/// Pages that are written over other pages.
const SWAPS: usize = 300;

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
    /// The file has the content of another store's.
    Foreign { file: usize, bytes: Arc<[u8]> },
}

impl Damage {
    /// Under which name it is counted.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Flip { .. } => "flipped",
            Self::Cut { .. } => "cut",
            Self::Missing { .. } => "missing",
            Self::Page { .. } => "misplaced",
            Self::Foreign { .. } => "foreign",
        }
    }

    pub(super) fn describe(&self, subject: &Subject) -> String {
        let name = |file: &usize| subject.files[*file].path.display();
        match self {
            Self::Flip { file, offset, mask } => format!("{} at {offset} ^ {mask:#04x}", name(file)),
            Self::Cut { file, length } => format!("{} cut to {length} bytes", name(file)),
            Self::Missing { file } => format!("{} missing", name(file)),
            Self::Page { file, page, why, .. } => format!("page {page} of {} {why}", name(file)),
            Self::Foreign { file, .. } => format!("{} of another store", name(file)),
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
            Self::Foreign { file, bytes } => machine.replace(path(file), bytes),
        }
    }
}

/// All damages of a subject.
pub(super) fn damages(subject: &Subject) -> Vec<Damage> {
    let mut all = Vec::new();
    for file in 0..subject.files.len() {
        let bytes = &subject.files[file].bytes;
        let (content, empty) = sectors(bytes);
        let stride = |sector| if sector == 0 { HEADER_STRIDE } else { STRIDE };
        let in_sector = |&sector: &usize| (sector..bytes.len().min(sector + SECTOR)).step_by(stride(sector));
        for offset in content.iter().flat_map(in_sector) {
            all.extend(MASKS.map(|mask| Damage::Flip { file, offset, mask }));
            if offset >= PAGE_SIZE || !subject.may_vanish(file) {
                all.push(Damage::Cut { file, length: offset });
            }
        }
        let sampled = empty.iter().filter(|sector| sector.is_multiple_of(EMPTY_STRIDE));
        for offset in sampled.map(|sector| (sector + sector / EMPTY_STRIDE % SECTOR).min(bytes.len() - 1)) {
            all.extend(MASKS.map(|mask| Damage::Flip { file, offset, mask }));
            if offset >= PAGE_SIZE || !subject.may_vanish(file) {
                all.push(Damage::Cut { file, length: offset });
            }
        }
        if !subject.may_vanish(file) {
            all.push(Damage::Missing { file });
        }
    }
    all.extend(pages(subject));
    for (file, bytes) in &subject.foreign {
        all.push(Damage::Foreign { file: *file, bytes: Arc::clone(bytes) });
    }
    all
}

/// Starts of the sectors with content and of those without.
fn sectors(bytes: &[u8]) -> (Vec<usize>, Vec<usize>) {
    let has_content =
        |sector: &usize| bytes[*sector..bytes.len().min(sector + SECTOR)].iter().any(|&byte| byte != 0);
    (0..bytes.len()).step_by(SECTOR).partition(has_content)
}

/// Pages in wrong places, pages never written, and what stood in a page before.
fn pages(subject: &Subject) -> Vec<Damage> {
    let mut all = Vec::new();
    for file in 0..subject.files.len() {
        let bytes = &subject.files[file].bytes;
        let page_of = |bytes: &[u8], page: usize| -> Option<Arc<[u8]>> {
            Some(bytes.get(page * PAGE_SIZE..(page + 1) * PAGE_SIZE)?.into())
        };
        let has_content =
            |page: &usize| page_of(bytes, *page).is_some_and(|page| page.iter().any(|&b| b != 0));
        let full: Vec<usize> = (0..bytes.len() / PAGE_SIZE).filter(has_content).collect();
        let mut random = SplitMix::new(u64_of(file));
        let mut pick = || full[usize_of(random.below(u64_of(full.len())))];
        let swaps = if full.len() < 2 { 0 } else { SWAPS.min(full.len() * full.len()) };
        for (from, to) in (0..swaps).map(|_| (pick(), pick())).collect::<Vec<_>>() {
            let why = "holds another page";
            all.extend(page_of(bytes, from).map(|bytes| Damage::Page { file, page: to, bytes, why }));
        }
        if !subject.is_data(file) {
            continue;
        }
        for &page in &full {
            let (bytes, why) = (vec![0; PAGE_SIZE].into(), "never written");
            all.push(Damage::Page { file, page, bytes, why });
            for old in subject.earlier_data.iter().filter_map(|old| page_of(old, page)) {
                if subject.files[file].bytes[page * PAGE_SIZE..][..PAGE_SIZE] != *old {
                    all.push(Damage::Page { file, page, bytes: old, why: "as it was before" });
                }
            }
        }
    }
    all
}
