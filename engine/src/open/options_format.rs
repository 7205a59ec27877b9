//! Bytes of a keyspace's options in the catalogue. Only this file knows them; docs/FORMAT.md repeats them.
//!
//! - turtle (1) and splinter (2): tree u8 · leaf bytes u64 · most pivots u64 · if there is a merge
//!   operator, its name (UTF-8), up to the end.
//! - Every other tree: tree u8 · length of its settings u16 · settings · length of the merge operator's
//!   name u8, 0 without one · name (UTF-8).
//!
//! **Invariants**
//! - Bytes of a newer version are told from damaged ones: a tree that is not known, settings that are longer
//!   than those that are known, and anything behind the name.
//! - What decodes is within its limits.

use testudo_base::{
    Error, ErrorKind, KeyspaceId,
    codec::{self, Damage, Reader},
    num::{u64_of, usize_of},
};

use crate::handles::options::{KeyspaceOptions, Tree};

const TURTLE: u8 = 1;
const SPLINTER: u8 = 2;

/// Why the options of a keyspace cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    Damaged(Damage),
    /// Valid as far as can be seen, but a later version wrote them.
    Newer(&'static str),
}

impl From<Damage> for Unreadable {
    fn from(damage: Damage) -> Self {
        Self::Damaged(damage)
    }
}

impl Unreadable {
    /// The error of whoever read them in `file`.
    pub(crate) fn into_error(self, file: &str, keyspace: KeyspaceId) -> Error {
        match self {
            Self::Damaged(Damage(why)) => Error::corruption(file, 0, format!("keyspace {keyspace}: {why}")),
            Self::Newer(what) => {
                let message = format!("{file}: keyspace {keyspace} has {what}: a newer version is needed");
                Error::new(ErrorKind::Unsupported, message)
            }
        }
    }
}

impl KeyspaceOptions {
    /// Bytes for the catalogue.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self.chosen_tree() {
            Tree::Turtle { leaf_bytes, max_pivots } => put_sizes(&mut out, TURTLE, leaf_bytes, max_pivots),
            Tree::Splinter { leaf_bytes, max_pivots } => {
                put_sizes(&mut out, SPLINTER, leaf_bytes, max_pivots);
            }
        }
        out.extend_from_slice(self.merge_operator_name().unwrap_or_default().as_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Unreadable> {
        let mut reader = Reader::new(bytes);
        let tree = match reader.u8()? {
            TURTLE => Tree::Turtle { leaf_bytes: reader.u64()?, max_pivots: usize_of(reader.u64()?) },
            SPLINTER => Tree::Splinter { leaf_bytes: reader.u64()?, max_pivots: usize_of(reader.u64()?) },
            0 => return Err(Damage("no tree has this number").into()),
            _ => return Err(Unreadable::Newer("a tree that is not known here")),
        };
        let name = std::str::from_utf8(reader.rest()).map_err(|_| Damage("a name is not UTF-8"))?;
        let options = Self::default().tree(tree);
        let options = if name.is_empty() { options } else { options.merge_operator(name) };
        options.validate().map_err(|_| Damage("settings of a keyspace are out of bounds"))?;
        Ok(options)
    }
}

fn put_sizes(out: &mut Vec<u8>, tag: u8, leaf_bytes: u64, max_pivots: usize) {
    out.push(tag);
    codec::put_u64(out, leaf_bytes);
    codec::put_u64(out, u64_of(max_pivots));
}

#[cfg(test)]
mod tests;
