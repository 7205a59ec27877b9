//! Damages of a store's file.

use std::{
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use testudo_base::{PAGE_SIZE, num::u64_of};
use testudo_env::{Env, MemEnv};

use super::subject::Subject;

/// A damage of one file.
#[derive(Clone, Debug)]
pub(super) enum Damage {
    Lost(PathBuf),
    Zeroed(PathBuf, usize),
    Cut(PathBuf, usize),
    /// Other bytes, with their description.
    Replaced(PathBuf, Arc<[u8]>, &'static str),
    /// In a log segment the start of a page is also written to unused bytes behind the content of an earlier
    /// page.
    Stray {
        path: PathBuf,
        from: Range<usize>,
        to: usize,
    },
}

impl Damage {
    pub(super) fn path(&self) -> &PathBuf {
        match self {
            Self::Lost(path) | Self::Zeroed(path, _) | Self::Cut(path, _) => path,
            Self::Replaced(path, ..) | Self::Stray { path, .. } => path,
        }
    }

    /// Whether it loses nothing: the file's content is complete.
    pub(super) fn is_harmless(&self) -> bool {
        matches!(self, Self::Stray { .. })
    }

    /// Whether it affects a log segment.
    pub(super) fn is_of_log(&self) -> bool {
        self.path().to_string_lossy().ends_with(".log")
    }

    pub(super) fn describe(&self) -> String {
        let name = self.path().display();
        match self {
            Self::Lost(_) => format!("{name} lost"),
            Self::Zeroed(..) => format!("{name} zeroed"),
            Self::Cut(_, length) => format!("{name} cut to {length} bytes"),
            Self::Replaced(_, _, what) => format!("{name} replaced by the one {what}"),
            Self::Stray { from, to, .. } => format!("{name} with {from:?} also at {to}"),
        }
    }

    pub(super) fn apply(&self, machine: &MemEnv) -> std::io::Result<()> {
        match self {
            Self::Lost(path) => machine.remove_file(path),
            Self::Zeroed(path, length) => machine.replace(path, &vec![0; *length]),
            Self::Cut(path, length) => machine.truncate(path, u64_of(*length)),
            Self::Replaced(path, bytes, _) => machine.replace(path, bytes),
            Self::Stray { path, from, to } => {
                let record = machine.file_bytes(path)?[from.clone()].to_vec();
                machine.overwrite(path, u64_of(*to), &record)
            }
        }
    }
}

/// All cases of damage to the files of a store.
pub(super) fn damages(subject: &Subject) -> Vec<Damage> {
    let mut all = Vec::new();
    let of_no_interest = |path: &PathBuf| path.ends_with("LOCK") || path.ends_with("reserve");
    for (path, bytes) in subject.files.iter().filter(|(path, _)| !of_no_interest(path)) {
        all.extend([Damage::Lost(path.clone()), Damage::Zeroed(path.clone(), bytes.len())]);
        let lengths = [0, bytes.len() / 2, bytes.len().saturating_sub(PAGE_SIZE)];
        let cuts = lengths.into_iter().filter(|&length| length < bytes.len());
        all.extend(cuts.map(|length| Damage::Cut(path.clone(), length)));
        if path.to_string_lossy().ends_with(".log") {
            all.extend(stray(path, bytes));
        }
    }
    for (what, files) in &subject.others {
        for (path, bytes) in files.iter().filter(|(path, _)| !of_no_interest(path)) {
            if subject.files.get(path) != Some(bytes) {
                all.push(Damage::Replaced(path.clone(), bytes.as_slice().into(), what));
            }
        }
    }
    all
}

/// Alignment of records.
const RECORD_ALIGNMENT: usize = 8;
/// Number of last pages with records that get one: content of earlier pages may already be flushed.
const STRAY_PAGES: usize = 4;

/// Copies the start of a page with content behind the content of the page two before it. Where commits are
/// synced one by one, this places a record out of order in the padding.
fn stray(path: &Path, bytes: &[u8]) -> Vec<Damage> {
    let filled: Vec<usize> = bytes
        .chunks(PAGE_SIZE)
        .map(|page| page.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1))
        .map(|end| end.next_multiple_of(RECORD_ALIGNMENT))
        .collect();
    let put = |page: usize| {
        let (start, behind, length) = ((page + 2) * PAGE_SIZE, filled[page], filled[page + 2]);
        let is_room = length > 0 && behind > 0 && behind + length < PAGE_SIZE;
        let (from, to) = (start..start + length, page * PAGE_SIZE + behind);
        is_room.then(|| Damage::Stray { path: path.to_owned(), from, to })
    };
    // The first page is the header.
    (1..filled.len().saturating_sub(2)).rev().filter_map(put).take(STRAY_PAGES).collect()
}
