//! A directory on the simulated disk: live names, durable names and the operations in between.
//!
//! **Invariants**
//! - Applying all of `pending` to `durable` yields `live`.
//! - In any possible state after a crash, a node has at most one name.

use std::{collections::BTreeMap, ffi::OsString};

use crate::SplitMix;

/// Identity of a file or directory, independent of its name.
pub(super) type Inode = u64;
pub(super) type Names = BTreeMap<OsString, Inode>;

/// An unsynced change of names.
#[derive(Clone, Debug)]
enum NameOp {
    Link(OsString, Inode),
    Unlink(OsString, Inode),
    /// Moves the node to a new name, replacing its previous node.
    Rename(OsString, Inode),
}

impl NameOp {
    /// Applies the operation as far as possible if earlier ones were lost.
    fn apply(&self, names: &mut Names) {
        match self {
            Self::Link(name, inode) => {
                names.insert(name.clone(), *inode);
            }
            Self::Unlink(name, inode) => {
                if names.get(name) == Some(inode) {
                    names.remove(name);
                }
            }
            Self::Rename(name, inode) => {
                names.retain(|_, other| other != inode);
                names.insert(name.clone(), *inode);
            }
        }
    }
}

/// A directory.
#[derive(Clone, Debug, Default)]
pub(super) struct DirNode {
    pub(super) live: Names,
    durable: Names,
    pending: Vec<NameOp>,
}

impl DirNode {
    pub(super) fn link(&mut self, name: OsString, inode: Inode) {
        self.push(NameOp::Link(name, inode));
    }

    pub(super) fn unlink(&mut self, name: OsString, inode: Inode) {
        self.push(NameOp::Unlink(name, inode));
    }

    pub(super) fn rename(&mut self, to: OsString, inode: Inode) {
        self.push(NameOp::Rename(to, inode));
    }

    pub(super) fn sync(&mut self) {
        if !self.pending.is_empty() {
            self.pending.clear();
            self.durable.clone_from(&self.live);
        }
    }

    /// Makes one name durable without the others, as if it had always existed.
    pub(super) fn link_durably(&mut self, name: OsString, inode: Inode) {
        self.live.insert(name.clone(), inode);
        self.durable.insert(name, inode);
    }

    /// Returns a possible state after a crash: each unsynced operation is kept with the given chance.
    pub(super) fn crash(&self, keep_percent: u8, random: &mut SplitMix) -> Self {
        let mut names = self.durable.clone();
        for op in &self.pending {
            if random.percent(keep_percent) {
                op.apply(&mut names);
            }
        }
        Self { live: names.clone(), durable: names, pending: Vec::new() }
    }

    /// All nodes that any state of this directory may name.
    pub(super) fn mentioned(&self) -> impl Iterator<Item = Inode> {
        let pending = self.pending.iter().map(|op| match op {
            NameOp::Link(_, inode) | NameOp::Unlink(_, inode) | NameOp::Rename(_, inode) => *inode,
        });
        self.live.values().chain(self.durable.values()).copied().chain(pending)
    }

    fn push(&mut self, op: NameOp) {
        op.apply(&mut self.live);
        self.pending.push(op);
    }
}
