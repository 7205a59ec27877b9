//! The simulated disk: nodes, names, open handles, locks, space and the power switch.
//!
//! **Invariants**
//! - A node stays as long as a live or durable name, an unsynced name operation or an open handle refers to it.
//! - Once the power is off, no call changes the disk or reads it, except through test access.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    io,
    path::{Component, Path, PathBuf},
};

use rustix::io::Errno;

use super::{
    dir_node::{DirNode, Inode},
    file_node::FileNode,
};
use crate::{DirEntry, EntryType, OpenMode};

/// Message of every error after [`MemEnv::crash_after`](crate::MemEnv::crash_after) has struck.
pub const SIMULATED_CRASH: &str = "simulated crash";

/// Whether the error comes from a simulated power loss.
pub fn is_simulated_crash(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.to_string() == SIMULATED_CRASH)
}

const ROOT: Inode = 0;

/// A file or a directory.
#[derive(Clone, Debug)]
pub(super) enum Node {
    File(FileNode),
    Directory(DirNode),
}

/// Who holds a lock file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holders {
    One,
    Shared(usize),
}

/// The disk.
#[derive(Debug)]
pub(super) struct Disk {
    nodes: BTreeMap<Inode, Node>,
    next_inode: Inode,
    handles: BTreeMap<Inode, usize>,
    locks: BTreeMap<Inode, Holders>,
    /// Calls that changed or synced something.
    pub(super) operation_count: u64,
    /// The power fails when `operation_count` reaches this.
    pub(super) crash_at: Option<u64>,
    pub(super) space_limit: Option<u64>,
}

impl Default for Disk {
    fn default() -> Self {
        Self {
            nodes: BTreeMap::from([(ROOT, Node::Directory(DirNode::default()))]),
            next_inode: ROOT + 1,
            handles: BTreeMap::new(),
            locks: BTreeMap::new(),
            operation_count: 0,
            crash_at: None,
            space_limit: None,
        }
    }
}

impl Disk {
    /// Error if the power is off.
    pub(super) fn require_power(&self) -> io::Result<()> {
        match self.crash_at {
            Some(limit) if self.operation_count >= limit => Err(io::Error::other(SIMULATED_CRASH)),
            _ => Ok(()),
        }
    }

    /// A disk with every node passed through `change`, nothing open, nothing locked, power on.
    pub(super) fn survivor(&self, change: impl Fn(Inode, &Node) -> Node) -> Self {
        let nodes = self.nodes.iter().map(|(&inode, node)| (inode, change(inode, node))).collect();
        let mut disk = Self { nodes, next_inode: self.next_inode, ..Self::default() };
        disk.space_limit = self.space_limit;
        disk.collect();
        disk
    }

    /// Opens or creates a file and counts the handle.
    pub(super) fn open(&mut self, path: &Path, mode: OpenMode) -> io::Result<Inode> {
        let inode = match mode {
            OpenMode::CreateNew => self.create(path, Node::File(FileNode::default()))?,
            OpenMode::Read | OpenMode::Write => self.resolve_file(path)?,
        };
        *self.handles.entry(inode).or_default() += 1;
        Ok(inode)
    }

    pub(super) fn close(&mut self, inode: Inode) {
        if let Some(count) = self.handles.get_mut(&inode) {
            *count -= 1;
            if *count == 0 {
                self.handles.remove(&inode);
                if !self.is_named(inode) {
                    self.collect();
                }
            }
        }
    }

    pub(super) fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        self.create(path, Node::Directory(DirNode::default())).map(drop)
    }

    pub(super) fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let names = &self.directory(self.resolve(path)?)?.live;
        let entry = |(name, inode): (&OsString, &Inode)| DirEntry {
            name: name.to_string_lossy().into_owned(),
            entry_type: match self.nodes.get(inode) {
                Some(Node::Directory(_)) => EntryType::Directory,
                _ => EntryType::File,
            },
        };
        Ok(names.iter().map(entry).collect())
    }

    /// REQUIRES: both paths have the same parent.
    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let (parent, from_name) = self.resolve_parent(from)?;
        let (_, to_name) = self.resolve_parent(to)?;
        let names = &self.directory(parent)?.live;
        let inode = *names.get(&from_name).ok_or(Errno::NOENT)?;
        if let Some(target) = names.get(&to_name) {
            if *target == inode {
                return Ok(());
            }
            match (&self.nodes[&inode], &self.nodes[target]) {
                (Node::File(_), Node::File(_)) => {}
                (_, Node::Directory(_)) => return Err(Errno::ISDIR.into()),
                (Node::Directory(_), _) => return Err(Errno::NOTDIR.into()),
            }
        }
        self.directory_mut(parent)?.rename(to_name, inode);
        Ok(())
    }

    pub(super) fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        let inode = self.resolve(path)?;
        if matches!(self.nodes[&inode], Node::Directory(_)) {
            return Err(Errno::ISDIR.into());
        }
        self.unlink(path, inode)
    }

    pub(super) fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
        let inode = self.resolve(path)?;
        if !self.directory(inode)?.live.is_empty() {
            return Err(Errno::NOTEMPTY.into());
        }
        self.unlink(path, inode)
    }

    pub(super) fn sync_dir(&mut self, path: &Path) -> io::Result<()> {
        let inode = self.resolve(path)?;
        self.directory_mut(inode)?.sync();
        self.collect();
        Ok(())
    }

    /// Locks an existing file; `WouldBlock` if that is excluded.
    pub(super) fn lock(&mut self, path: &Path, exclusive: bool) -> io::Result<Inode> {
        let inode = self.resolve_file(path)?;
        let holders = match (self.locks.get(&inode), exclusive) {
            (None, true) => Holders::One,
            (None, false) => Holders::Shared(1),
            (Some(Holders::Shared(count)), false) => Holders::Shared(count + 1),
            (Some(_), _) => return Err(Errno::WOULDBLOCK.into()),
        };
        self.locks.insert(inode, holders);
        *self.handles.entry(inode).or_default() += 1;
        Ok(inode)
    }

    pub(super) fn unlock(&mut self, inode: Inode) {
        match self.locks.get_mut(&inode) {
            Some(Holders::Shared(count)) if *count > 1 => *count -= 1,
            _ => {
                self.locks.remove(&inode);
            }
        }
        self.close(inode);
    }

    pub(super) fn exists(&self, path: &Path) -> bool {
        self.resolve(path).is_ok()
    }

    /// The file behind a handle.
    pub(super) fn file(&self, inode: Inode) -> io::Result<&FileNode> {
        match self.nodes.get(&inode) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Directory(_)) => Err(Errno::ISDIR.into()),
            None => Err(Errno::NOENT.into()),
        }
    }

    pub(super) fn file_mut(&mut self, inode: Inode) -> io::Result<&mut FileNode> {
        match self.nodes.get_mut(&inode) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Directory(_)) => Err(Errno::ISDIR.into()),
            None => Err(Errno::NOENT.into()),
        }
    }

    /// `StorageFull` if `more` bytes do not fit any more.
    pub(super) fn require_space(&self, more: u64) -> io::Result<()> {
        match self.space_limit {
            Some(limit) if more > 0 && self.used_bytes() + more > limit => Err(Errno::NOSPC.into()),
            _ => Ok(()),
        }
    }

    /// Bytes occupied by files that have a live name or an open handle.
    pub(super) fn used_bytes(&self) -> u64 {
        let named = self.directories().flat_map(|directory| directory.live.values());
        let held: BTreeSet<&Inode> = named.chain(self.handles.keys()).collect();
        let file = |inode| self.file(inode).map_or(0, FileNode::allocated_bytes);
        held.into_iter().map(|inode| file(*inode)).sum()
    }

    /// Paths of all files, sorted.
    pub(super) fn all_files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        let mut open = vec![(PathBuf::from("/"), ROOT)];
        while let Some((path, inode)) = open.pop() {
            match &self.nodes[&inode] {
                Node::File(_) => files.push(path),
                Node::Directory(directory) => {
                    open.extend(directory.live.iter().map(|(name, inode)| (path.join(name), *inode)));
                }
            }
        }
        files.sort();
        files
    }

    /// A regular file by its name; `InvalidInput` if it is something else.
    pub(super) fn resolve_file(&self, path: &Path) -> io::Result<Inode> {
        let inode = self.resolve(path)?;
        if matches!(self.nodes[&inode], Node::File(_)) {
            return Ok(inode);
        }
        let message = format!("{} is not a regular file", path.display());
        Err(io::Error::new(io::ErrorKind::InvalidInput, message))
    }

    /// Creates a file whose name is durable at once.
    pub(super) fn create_durably(&mut self, path: &Path) -> io::Result<Inode> {
        let (parent, name) = self.resolve_parent(path)?;
        let inode = self.add_node(Node::File(FileNode::default()));
        self.directory_mut(parent)?.link_durably(name, inode);
        Ok(inode)
    }

    fn create(&mut self, path: &Path, node: Node) -> io::Result<Inode> {
        if self.exists(path) {
            return Err(Errno::EXIST.into());
        }
        let (parent, name) = self.resolve_parent(path)?;
        let inode = self.add_node(node);
        self.directory_mut(parent)?.link(name, inode);
        Ok(inode)
    }

    fn add_node(&mut self, node: Node) -> Inode {
        let inode = self.next_inode;
        self.next_inode += 1;
        self.nodes.insert(inode, node);
        inode
    }

    fn unlink(&mut self, path: &Path, inode: Inode) -> io::Result<()> {
        let (parent, name) = self.resolve_parent(path)?;
        self.directory_mut(parent)?.unlink(name, inode);
        Ok(())
    }

    fn directory(&self, inode: Inode) -> io::Result<&DirNode> {
        match &self.nodes[&inode] {
            Node::Directory(directory) => Ok(directory),
            Node::File(_) => Err(Errno::NOTDIR.into()),
        }
    }

    fn directory_mut(&mut self, inode: Inode) -> io::Result<&mut DirNode> {
        match self.nodes.get_mut(&inode) {
            Some(Node::Directory(directory)) => Ok(directory),
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    fn resolve(&self, path: &Path) -> io::Result<Inode> {
        let mut inode = ROOT;
        for name in names_of(path) {
            inode = *self.directory(inode)?.live.get(&name).ok_or(Errno::NOENT)?;
        }
        Ok(inode)
    }

    /// The directory that holds the last name of the path, and that name.
    fn resolve_parent(&self, path: &Path) -> io::Result<(Inode, OsString)> {
        let mut names = names_of(path);
        let last = names.pop().ok_or(Errno::BUSY)?;
        let mut inode = ROOT;
        for name in names {
            inode = *self.directory(inode)?.live.get(&name).ok_or(Errno::NOENT)?;
        }
        self.directory(inode)?;
        Ok((inode, last))
    }

    fn directories(&self) -> impl Iterator<Item = &DirNode> {
        self.nodes.values().filter_map(|node| match node {
            Node::Directory(directory) => Some(directory),
            Node::File(_) => None,
        })
    }

    fn is_named(&self, inode: Inode) -> bool {
        self.directories().any(|directory| directory.live.values().any(|named| *named == inode))
    }

    /// Drops the nodes that nothing refers to any more.
    fn collect(&mut self) {
        let mut reached = BTreeSet::new();
        let mut open: Vec<Inode> = self.handles.keys().copied().chain([ROOT]).collect();
        while let Some(inode) = open.pop() {
            if reached.insert(inode)
                && let Some(Node::Directory(directory)) = self.nodes.get(&inode)
            {
                open.extend(directory.mentioned());
            }
        }
        self.nodes.retain(|inode, _| reached.contains(inode));
    }
}

/// The names from the root on. A relative path starts at the root as well.
fn names_of(path: &Path) -> Vec<OsString> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name.to_owned()),
            Component::ParentDir => {
                names.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    names
}
