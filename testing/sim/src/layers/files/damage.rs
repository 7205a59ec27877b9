//! What can happen to a file of a store.

use std::{path::PathBuf, sync::Arc};

use testudo_base::{PAGE_SIZE, num::u64_of};
use testudo_env::{Env, MemEnv};

use super::subject::Subject;

/// What happens to one file.
#[derive(Clone, Debug)]
pub(super) enum Damage {
    Lost(PathBuf),
    Zeroed(PathBuf, usize),
    Cut(PathBuf, usize),
    /// Other bytes, with what they are.
    Replaced(PathBuf, Arc<[u8]>, &'static str),
}

impl Damage {
    pub(super) fn path(&self) -> &PathBuf {
        match self {
            Self::Lost(path) | Self::Zeroed(path, _) | Self::Cut(path, _) | Self::Replaced(path, ..) => path,
        }
    }

    /// Whether it is one to a segment of the log.
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
        }
    }

    pub(super) fn apply(&self, machine: &MemEnv) -> std::io::Result<()> {
        match self {
            Self::Lost(path) => machine.remove_file(path),
            Self::Zeroed(path, length) => machine.replace(path, &vec![0; *length]),
            Self::Cut(path, length) => machine.truncate(path, u64_of(*length)),
            Self::Replaced(path, bytes, _) => machine.replace(path, bytes),
        }
    }
}

/// Everything that can happen to the files of a store, one damage each.
pub(super) fn damages(subject: &Subject) -> Vec<Damage> {
    let mut all = Vec::new();
    let of_no_interest = |path: &PathBuf| path.ends_with("LOCK") || path.ends_with("reserve");
    for (path, bytes) in subject.files.iter().filter(|(path, _)| !of_no_interest(path)) {
        all.extend([Damage::Lost(path.clone()), Damage::Zeroed(path.clone(), bytes.len())]);
        let lengths = [0, bytes.len() / 2, bytes.len().saturating_sub(PAGE_SIZE)];
        let cuts = lengths.into_iter().filter(|&length| length < bytes.len());
        all.extend(cuts.map(|length| Damage::Cut(path.clone(), length)));
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
