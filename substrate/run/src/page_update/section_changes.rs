//! Splits and joins of the sections of a data page (decision 0069).
//!
//! `changed sections → pieces: joined with neighbors where they are empty or small → pages of each piece`
//!
//! A *section* is the part of a data page's range of keys that one page holds: the data page itself, or one
//! of its overflow pages. A *piece* is new contents of one section, or of adjacent ones that are joined. If
//! its entries outgrow a page, it is split into as many pages as they need. If only greater keys came into a
//! section that is full, its page stays, and they get pages of their own.
//!
//! **Invariants**
//! - A section whose range changes is written, except where a newer page takes keys from its upper end.
//! - The lower bound of pages for greater keys depends only on the page that stays: of two updates of the
//!   same page, the first of which was never committed, the second replaces all of the first.
//! - Sections of different data pages are not joined: the index leads to each.

use std::ops::Range;

use testudo_base::{
    Entry, Kind, Result, key,
    num::{u64_of, usize_of},
    planted,
};

use crate::{
    EntryList, PagePart, ReplacedPageRecord,
    format::{
        builder::{BlockBuilder, PAGE_PAYLOAD_BYTES},
        long_separators::MAX_SEPARATOR_BYTES,
    },
};

/// Adjacent changed sections are joined if they fill at most three quarters of a page together.
const JOINED_BYTES_MAX: u64 = (PAGE_PAYLOAD_BYTES as u64) * 3 / 4;
/// Approximate bytes of an entry on a page beyond its key and value.
const ENTRY_OVERHEAD_BYTES: u64 = 9;

/// A section of a run.
#[derive(Debug)]
pub(super) struct Section {
    /// Data page to which the index leads.
    pub(super) of: u32,
    /// Page that holds it: the data page, or one of its overflow pages.
    pub(super) page: u32,
    /// Inclusive lower bound of its keys.
    pub(super) low: Vec<u8>,
}

/// New contents of a section.
#[derive(Debug)]
pub(super) struct ChangedSection {
    pub(super) section: usize,
    pub(super) entries: EntryList,
    /// Number of the first entries that are on the present page, if all others are greater and came to it.
    pub(super) staying: usize,
    /// First key of the present page.
    pub(super) first_key: Vec<u8>,
}

/// New contents of adjacent sections.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) sections: Range<usize>,
    pub(super) entries: EntryList,
    /// As in [`ChangedSection`].
    staying: usize,
    first_key: Vec<u8>,
}

/// A page to be written.
#[derive(Debug)]
pub(super) struct NewPage {
    /// Data page to which the index leads.
    pub(super) of: u32,
    /// Page that holds the entries now, or the first of them.
    pub(super) instead_of: u32,
    /// Lower bound of its keys; `None` for the first section.
    pub(super) low: Option<Vec<u8>>,
    pub(super) part: PagePart,
    pub(super) payload: Vec<u8>,
}

/// Pages of a piece.
#[derive(Debug)]
pub(super) struct WrittenPiece {
    pub(super) pages: Vec<NewPage>,
    /// Whether the present page stays, and the entries beyond it were written.
    pub(super) is_appended: bool,
}

impl Piece {
    fn of(changed: ChangedSection) -> Self {
        let ChangedSection { section, entries, staying, first_key } = changed;
        Self { sections: section..section + 1, entries, staying, first_key }
    }

    /// Adds the next piece.
    fn join(&mut self, next: Self) {
        debug_assert_eq!(self.sections.end, next.sections.start, "adjacent sections");
        self.sections.end = next.sections.end;
        next.entries.iter().for_each(|entry| self.entries.push(&entry));
        self.staying = 0;
    }

    fn bytes(&self) -> u64 {
        self.entries.user_bytes() + u64_of(self.entries.len()) * ENTRY_OVERHEAD_BYTES
    }
}

/// Returns the pieces to be written for changed sections, in order. `read` provides the entries of other
/// sections, with which empty ones are joined. A page that would be empty keeps a tombstone of its first key,
/// which is added to `tombstones`: it records that the rest is gone.
pub(super) fn pieces(
    sections: &[Section],
    changed: Vec<ChangedSection>,
    read: impl FnOnce(&[usize]) -> Result<Vec<EntryList>>,
    tombstones: &mut Vec<Vec<u8>>,
) -> Result<Vec<Piece>> {
    debug_assert!(changed.is_sorted_by(|a, b| a.section < b.section), "sections are passed in order");
    let mut parts: Vec<Piece> = changed.into_iter().map(Piece::of).collect();
    let neighbors = neighbors_of_empty(sections, &parts);
    if !neighbors.is_empty() {
        let lists = read(&neighbors)?;
        for (section, entries) in neighbors.into_iter().zip(lists) {
            let first_key = entries.first().map(|entry| entry.key.to_vec()).unwrap_or_default();
            parts.push(Piece::of(ChangedSection { section, entries, staying: 0, first_key }));
        }
        parts.sort_by_key(|piece| piece.sections.start);
    }
    let mut pieces: Vec<Piece> = Vec::with_capacity(parts.len());
    for part in parts {
        let is_near = |last: &Piece| {
            last.sections.end == part.sections.start
                && sections[last.sections.start].of == sections[part.sections.start].of
        };
        match pieces.last_mut().filter(|last| is_near(last)) {
            Some(last)
                if last.entries.is_empty()
                    || part.entries.is_empty()
                    || last.bytes() + part.bytes() <= JOINED_BYTES_MAX =>
            {
                last.join(part);
            }
            _ => pieces.push(part),
        }
    }
    for piece in pieces.iter_mut().filter(|piece| piece.entries.is_empty()) {
        let key = std::mem::take(&mut piece.first_key);
        piece.entries.push(&Entry { key: &key, kind: Kind::Tombstone, value: &[] });
        tombstones.push(key);
    }
    Ok(pieces)
}

/// Returns an unchanged neighbor for each stretch of adjacent changed sections that are all empty, if their
/// data page has one.
fn neighbors_of_empty(sections: &[Section], parts: &[Piece]) -> Vec<usize> {
    let of = |section: usize| sections.get(section).map(|section| section.of);
    let mut neighbors = Vec::new();
    let is_adjacent = |a: &Piece, b: &Piece| {
        a.sections.end == b.sections.start && of(a.sections.start) == of(b.sections.start)
    };
    for stretch in parts.chunk_by(is_adjacent) {
        let ([first, ..], [.., last]) = (stretch, stretch) else { continue };
        if stretch.iter().any(|piece| !piece.entries.is_empty()) {
            continue;
        }
        let own = of(first.sections.start);
        let before = first.sections.start.checked_sub(1).filter(|before| of(*before) == own);
        neighbors.extend(before.or_else(|| Some(last.sections.end).filter(|next| of(*next) == own)));
    }
    neighbors.dedup();
    neighbors
}

/// Builds the pages of a piece; `None` if an entry does not fit on a page, or a border would be too long.
pub(super) fn pages_of(sections: &[Section], piece: &Piece) -> Option<WrittenPiece> {
    let first = &sections[piece.sections.start];
    let is_first = first.page == first.of;
    let low = Some(&*first.low).filter(|_| !is_first);
    let end = if planted!("join-loses-range") { piece.sections.start + 1 } else { piece.sections.end };
    let high = sections.get(end).filter(|next| next.of == first.of).map(|next| &*next.low);
    let new = |low: Option<&[u8]>, high: Option<&[u8]>, payload: Vec<u8>| NewPage {
        of: first.of,
        instead_of: first.page,
        low: low.map(Into::into),
        part: PagePart::between(low, high),
        payload,
    };
    let entries = &piece.entries;
    let border = appended_border(piece);
    // A page may later get such a border as its upper one.
    let likely_high = high.or(border.as_deref());
    if let Some(payload) = payload_with(entries, 0..entries.len(), low, likely_high) {
        return Some(WrittenPiece { pages: vec![new(low, high, payload)], is_appended: false });
    }
    let (from, low) = match &border {
        Some(border) => (piece.staying, Some(&**border)),
        None => (0, low),
    };
    let payloads = split(entries, from, low, high)?;
    let borders: Vec<Option<Vec<u8>>> = payloads.iter().map(|(low, _)| low.clone()).collect();
    let pages = payloads.into_iter().enumerate().map(|(number, (low, payload))| {
        let high = borders.get(number + 1).map_or(high, |next| next.as_deref());
        new(low.as_deref(), high, payload)
    });
    Some(WrittenPiece { pages: pages.collect(), is_appended: border.is_some() })
}

/// Returns the lower bound of entries that are greater than all on the present page, if these are to be
/// written without it: the least key after the last one there.
fn appended_border(piece: &Piece) -> Option<Vec<u8>> {
    let last = piece.staying.checked_sub(1).and_then(|last| piece.entries.get(last))?;
    debug_assert!(piece.staying < piece.entries.len(), "some entries are greater");
    (last.key.len() < MAX_SEPARATOR_BYTES).then(|| [last.key, &[0]].concat())
}

/// Lower bound and payload of a page.
type SplitPage = (Option<Vec<u8>>, Vec<u8>);

/// Distributes the entries from index `from` on evenly to as few pages as possible. `low` and `high` are the
/// bounds of all.
fn split(
    entries: &EntryList,
    from: usize,
    low: Option<&[u8]>,
    high: Option<&[u8]>,
) -> Option<Vec<SplitPage>> {
    let all = entries.len() - from;
    let bytes: u64 = (from..entries.len()).filter_map(|at| Some(u64_of(entries.get(at)?.user_bytes()))).sum();
    let least = usize_of(bytes.div_ceil(u64_of(PAGE_PAYLOAD_BYTES))).clamp(1, all.max(1));
    'counts: for count in least..=all {
        let starts = even_starts(entries, from, count);
        let mut lows: Vec<Option<Vec<u8>>> = vec![low.map(Into::into)];
        for start in &starts[1..] {
            let border = key::separator(entries.get(start - 1)?.key, entries.get(*start)?.key);
            if border.len() > MAX_SEPARATOR_BYTES {
                return None;
            }
            lows.push(Some(border));
        }
        let mut pages = Vec::with_capacity(count);
        for number in 0..count {
            let to = starts.get(number + 1).copied().unwrap_or(entries.len());
            let high = lows.get(number + 1).map_or(high, |next| next.as_deref());
            let payload = payload_with(entries, starts[number]..to, lows[number].as_deref(), high);
            let Some(payload) = payload else { continue 'counts };
            pages.push(payload);
        }
        return Some(lows.into_iter().zip(pages).collect());
    }
    None
}

/// Returns the index of the first entry of each of `count` ranges of about equal bytes, from `from` on.
/// REQUIRES: there are at least as many entries.
fn even_starts(entries: &EntryList, from: usize, count: usize) -> Vec<usize> {
    let bytes_of = |at: usize| entries.get(at).map_or(0, |entry| u64_of(entry.user_bytes()));
    let all: u64 = (from..entries.len()).map(bytes_of).sum();
    let mut starts = vec![from];
    let (mut at, mut before) = (from, 0);
    for number in 1..count {
        let due = all * u64_of(number) / u64_of(count);
        let least = starts[number - 1] + 1;
        let most = entries.len() - (count - number);
        // An entry belongs to the range in which its middle is.
        while at < most && (at < least || before + bytes_of(at) / 2 < due) {
            before += bytes_of(at);
            at += 1;
        }
        starts.push(at);
    }
    debug_assert!(starts.is_sorted_by(|a, b| a < b), "no range is empty");
    starts
}

/// Builds the payload of a page with a range of entries, without its self-description; `None` if both exceed
/// a page.
fn payload_with(
    entries: &EntryList,
    range: Range<usize>,
    low: Option<&[u8]>,
    high: Option<&[u8]>,
) -> Option<Vec<u8>> {
    debug_assert!(range.start < range.end && range.end <= entries.len(), "a range of the entries");
    let mut builder = BlockBuilder::default();
    for index in range {
        if !builder.push(&entries.get(index)?) {
            return None;
        }
    }
    let record = ReplacedPageRecord::bytes_between(low, high);
    if builder.is_empty() || builder.payload_bytes() + record > PAGE_PAYLOAD_BYTES {
        return None;
    }
    let mut payload = vec![0; PAGE_PAYLOAD_BYTES];
    let length = builder.encode_into(&mut payload);
    payload.truncate(length);
    Some(payload)
}
