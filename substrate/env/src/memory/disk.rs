//! The simulated disk: nodes, names, open handles, locks, space and the power switch.
//!
//! **Invariants**
//! - A node exists while a live or durable name, an unsynced name operation or an open handle refers to it.
//! - Once the power is off, no call changes or reads the disk, except through test access.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    io,
    path::{Component, Path, PathBuf},
};

use rustix::io::Errno;
use testudo_base::{
    num::{u64_of, usize_of},
    sync::Arc,
};

use super::{
    dir_node::{DirNode, Inode},
    file_node::FileNode,
    mapped_memory::{Mapped, MappedMemory},
};
use crate::{
    DirEntry, EntryType, LockHolder, MappedFile, OpenMode,
    contract::{OWNER_BYTES_MAX, decode_owner, encode_owner, may_hold_owner},
};

/// Message of every error after [`MemEnv::crash_after`](crate::MemEnv::crash_after) has turned the power off.
pub const SIMULATED_CRASH: &str = "simulated crash";

/// Whether the error comes from a simulated power loss.
pub fn is_simulated_crash(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.to_string() == SIMULATED_CRASH)
}

const ROOT: Inode = 0;
/// Id of the only process of this machine.
const PROCESS_ID: u32 = 1;

/// A path with its starting point.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'p> {
    /// The directory where `path` begins, unless it starts with the root.
    pub(super) from: Inode,
    pub(super) path: &'p Path,
}

impl<'p> Place<'p> {
    /// A path from the root. Relative paths start there as well.
    pub(super) fn of(path: &'p Path) -> Self {
        Self { from: ROOT, path }
    }
}

/// A file or a directory.
#[derive(Clone, Debug)]
pub(super) enum Node {
    File(FileNode),
    Directory(DirNode),
}

/// Holders of a lock file.
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
    mapped: BTreeMap<Inode, Mapped>,
    /// Number of calls that changed or synced something.
    pub(super) operation_count: u64,
    /// The power is turned off when `operation_count` reaches this.
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
            mapped: BTreeMap::new(),
            operation_count: 0,
            crash_at: None,
            space_limit: None,
        }
    }
}

impl Disk {
    /// Fails if the power is off.
    pub(super) fn require_power(&self) -> io::Result<()> {
        match self.crash_at {
            Some(limit) if self.operation_count >= limit => Err(io::Error::other(SIMULATED_CRASH)),
            _ => Ok(()),
        }
    }

    /// Returns a disk with every node passed through `change`: nothing open, nothing locked, power on.
    pub(super) fn survivor(&self, change: impl Fn(Inode, &Node) -> Node) -> Self {
        let nodes = self.nodes.iter().map(|(&inode, node)| (inode, change(inode, node))).collect();
        let mut disk = Self { nodes, next_inode: self.next_inode, ..Self::default() };
        disk.space_limit = self.space_limit;
        disk.collect();
        disk
    }

    /// Creates a file of `bytes`, mapped to `memory`, and counts the handle.
    pub(super) fn create_mapped(
        &mut self,
        place: Place<'_>,
        memory: &Arc<MappedMemory>,
    ) -> io::Result<Inode> {
        if self.exists(place) {
            return Err(Errno::EXIST.into());
        }
        let bytes = u64_of(memory.len());
        self.require_space(bytes)?;
        let inode = self.open(place, OpenMode::CreateNew)?;
        self.file_mut(inode)?.allocate(0, bytes);
        self.mapped.insert(inode, Arc::downgrade(memory));
        Ok(inode)
    }

    /// Copies the current memory of mapped files into the files. Once the power is off they stay unchanged.
    pub(super) fn store_mappings(&mut self) {
        let inodes: Vec<Inode> = self.mapped.keys().copied().collect();
        inodes.into_iter().for_each(|inode| self.store_mapping(inode));
    }

    fn store_mapping(&mut self, inode: Inode) {
        let memory = self.mapped.get(&inode).and_then(Mapped::upgrade);
        if let Some(memory) = memory.filter(|_| self.require_power().is_ok())
            && let Ok(file) = self.file_mut(inode)
        {
            memory.store_in(file);
        }
    }

    /// Copies the memory into the file and ends the mapping.
    pub(super) fn end_mapping(&mut self, inode: Inode) {
        self.store_mapping(inode);
        self.mapped.remove(&inode);
    }

    /// Opens or creates a file and counts the handle.
    pub(super) fn open(&mut self, place: Place<'_>, mode: OpenMode) -> io::Result<Inode> {
        let inode = match mode {
            OpenMode::CreateNew => self.create(place, Node::File(FileNode::default()))?,
            OpenMode::Read | OpenMode::Write => self.resolve_file(place)?,
        };
        self.store_mapping(inode);
        *self.handles.entry(inode).or_default() += 1;
        Ok(inode)
    }

    /// Creates an unnamed file and counts the handle.
    pub(super) fn open_unnamed(&mut self) -> io::Result<Inode> {
        let inode = self.add_node(Node::File(FileNode::default()));
        self.handles.insert(inode, 1);
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

    pub(super) fn create_dir(&mut self, place: Place<'_>) -> io::Result<()> {
        self.create(place, Node::Directory(DirNode::default())).map(drop)
    }

    pub(super) fn list_dir(&self, place: Place<'_>) -> io::Result<Vec<DirEntry>> {
        let names = &self.directory(self.resolve(place)?)?.live;
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
    pub(super) fn rename(&mut self, from: Place<'_>, to: Place<'_>) -> io::Result<()> {
        let (parent, from_name) = self.resolve_parent(from)?;
        let (to_parent, to_name) = self.resolve_parent(to)?;
        debug_assert!(parent == to_parent, "names change within one directory");
        let names = &self.directory(parent)?.live;
        let inode = *names.get(from_name).ok_or(Errno::NOENT)?;
        if let Some(target) = names.get(to_name) {
            if *target == inode {
                return Ok(());
            }
            match (&self.nodes[&inode], &self.nodes[target]) {
                (Node::File(_), Node::File(_)) => {}
                (_, Node::Directory(_)) => return Err(Errno::ISDIR.into()),
                (Node::Directory(_), _) => return Err(Errno::NOTDIR.into()),
            }
        }
        self.directory_mut(parent)?.rename(to_name.to_owned(), inode);
        Ok(())
    }

    pub(super) fn remove_file(&mut self, place: Place<'_>) -> io::Result<()> {
        let inode = self.resolve(place)?;
        if matches!(self.nodes[&inode], Node::Directory(_)) {
            return Err(Errno::ISDIR.into());
        }
        self.unlink(place, inode)
    }

    pub(super) fn remove_dir(&mut self, place: Place<'_>) -> io::Result<()> {
        let inode = self.resolve(place)?;
        if !self.directory(inode)?.live.is_empty() {
            return Err(Errno::NOTEMPTY.into());
        }
        self.unlink(place, inode)
    }

    /// Removes a directory that is held open, if it is empty and the last component of `path`, in its parent,
    /// still refers to it.
    pub(super) fn remove_held_dir(&mut self, inode: Inode, path: &Path) -> io::Result<()> {
        let place =
            Place { from: self.parent_of(inode)?, path: Path::new(path.file_name().ok_or(Errno::INVAL)?) };
        if self.resolve(place)? != inode {
            return Err(Errno::NOENT.into());
        }
        self.remove_dir(place)
    }

    /// Opens a directory and holds it open.
    pub(super) fn hold_dir(&mut self, place: Place<'_>) -> io::Result<Inode> {
        let inode = self.resolve(place)?;
        self.directory(inode)?;
        *self.handles.entry(inode).or_default() += 1;
        Ok(inode)
    }

    pub(super) fn sync_dir(&mut self, place: Place<'_>) -> io::Result<()> {
        let inode = self.resolve(place)?;
        self.directory_mut(inode)?.sync();
        self.collect();
        Ok(())
    }

    /// Locks an existing file; `WouldBlock` if a conflicting lock is held.
    pub(super) fn lock(&mut self, place: Place<'_>, exclusive: bool) -> io::Result<Inode> {
        let inode = self.resolve_file(place)?;
        self.hold_lock(inode, exclusive)?;
        if exclusive && may_hold_owner(&self.owner_bytes(inode)?) {
            self.write_owner(inode, &encode_owner(PROCESS_ID))?;
        }
        Ok(inode)
    }

    /// Locks an existing directory; `WouldBlock` if a conflicting lock is held.
    pub(super) fn lock_dir(&mut self, place: Place<'_>, exclusive: bool) -> io::Result<Inode> {
        let inode = self.resolve(place)?;
        self.directory(inode)?;
        self.hold_lock(inode, exclusive)?;
        Ok(inode)
    }

    fn hold_lock(&mut self, inode: Inode, exclusive: bool) -> io::Result<()> {
        let holders = match (self.locks.get(&inode), exclusive) {
            (None, true) => Holders::One,
            (None, false) => Holders::Shared(1),
            (Some(Holders::Shared(count)), false) => Holders::Shared(count + 1),
            (Some(_), _) => return Err(Errno::WOULDBLOCK.into()),
        };
        self.locks.insert(inode, holders);
        *self.handles.entry(inode).or_default() += 1;
        Ok(())
    }

    /// Writes the owner of a lock, if there is space.
    fn write_owner(&mut self, inode: Inode, owner: &str) -> io::Result<()> {
        if self.require_space(self.file(inode)?.missing_bytes(0, u64_of(owner.len()))).is_ok() {
            let file = self.file_mut(inode)?;
            file.set_len(0);
            file.write(0, owner.as_bytes());
        }
        Ok(())
    }

    /// Reads the contents of a lock file, up to the maximum length of an owner.
    fn owner_bytes(&self, inode: Inode) -> io::Result<Vec<u8>> {
        let file = self.file(inode)?;
        let mut bytes = vec![0; usize_of(file.live_length.min(u64_of(OWNER_BYTES_MAX)))];
        file.read(0, &mut bytes);
        Ok(bytes)
    }

    pub(super) fn unlock(&mut self, inode: Inode, is_exclusive: bool) {
        match self.locks.get_mut(&inode) {
            Some(Holders::Shared(count)) if *count > 1 => *count -= 1,
            _ => {
                self.locks.remove(&inode);
            }
        }
        let names_owner = self.owner_bytes(inode).is_ok_and(|bytes| decode_owner(&bytes).is_some());
        if is_exclusive && names_owner && self.require_power().is_ok() {
            let _ = self.file_mut(inode).map(|file| file.set_len(0));
        }
        self.close(inode);
    }

    /// Returns the holder of the lock.
    pub(super) fn lock_holder(&self, place: Place<'_>) -> io::Result<LockHolder> {
        let inode = self.resolve_file(place)?;
        let bytes = self.owner_bytes(inode)?;
        Ok(match self.locks.get(&inode) {
            Some(Holders::One) => LockHolder::Owner(decode_owner(&bytes)),
            _ => LockHolder::NoOwner,
        })
    }

    pub(super) fn exists(&self, place: Place<'_>) -> bool {
        self.resolve(place).is_ok()
    }

    /// Whether the path refers to this file or directory.
    pub(super) fn is_at(&self, place: Place<'_>, inode: Inode) -> bool {
        self.resolve(place).is_ok_and(|found| found == inode)
    }

    /// Returns the file of a handle.
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

    /// `StorageFull` if `more` bytes do not fit.
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

    /// Resolves the name of a regular file; `InvalidInput` for anything else.
    pub(super) fn resolve_file(&self, place: Place<'_>) -> io::Result<Inode> {
        let inode = self.resolve(place)?;
        if matches!(self.nodes[&inode], Node::File(_)) {
            return Ok(inode);
        }
        let message = format!("{} is not a regular file", place.path.display());
        Err(io::Error::new(io::ErrorKind::InvalidInput, message))
    }

    /// Creates a file whose name is durable immediately.
    pub(super) fn create_durably(&mut self, place: Place<'_>) -> io::Result<Inode> {
        let (parent, name) = self.resolve_parent(place)?;
        let inode = self.add_node(Node::File(FileNode::default()));
        self.directory_mut(parent)?.link_durably(name.to_owned(), inode);
        Ok(inode)
    }

    fn create(&mut self, place: Place<'_>, node: Node) -> io::Result<Inode> {
        if self.exists(place) {
            return Err(Errno::EXIST.into());
        }
        let (parent, name) = self.resolve_parent(place)?;
        if parent != ROOT && !self.is_named(parent) {
            // A removed directory that is still open accepts no names.
            return Err(Errno::NOENT.into());
        }
        let inode = self.add_node(node);
        self.directory_mut(parent)?.link(name.to_owned(), inode);
        Ok(inode)
    }

    fn add_node(&mut self, node: Node) -> Inode {
        let inode = self.next_inode;
        self.next_inode += 1;
        self.nodes.insert(inode, node);
        inode
    }

    fn unlink(&mut self, place: Place<'_>, inode: Inode) -> io::Result<()> {
        let (parent, name) = self.resolve_parent(place)?;
        self.directory_mut(parent)?.unlink(name.to_owned(), inode);
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

    fn resolve(&self, place: Place<'_>) -> io::Result<Inode> {
        let mut inode = place.from;
        for component in place.path.components() {
            inode = match component {
                Component::Normal(name) => *self.directory(inode)?.live.get(name).ok_or(Errno::NOENT)?,
                Component::ParentDir => self.parent_of(inode)?,
                Component::RootDir => ROOT,
                Component::CurDir | Component::Prefix(_) => inode,
            };
        }
        if self.nodes.contains_key(&inode) { Ok(inode) } else { Err(Errno::NOENT.into()) }
    }

    /// Returns the directory of the path's last component, and that component.
    fn resolve_parent<'p>(&self, place: Place<'p>) -> io::Result<(Inode, &'p OsStr)> {
        let name = place.path.file_name().ok_or(Errno::BUSY)?;
        let parent = Place { path: place.path.parent().ok_or(Errno::BUSY)?, ..place };
        let inode = self.resolve(parent)?;
        self.directory(inode)?;
        Ok((inode, name))
    }

    fn parent_of(&self, inode: Inode) -> io::Result<Inode> {
        let holds = |node: &Node| match node {
            Node::Directory(directory) => directory.live.values().any(|named| *named == inode),
            _ => false,
        };
        match self.nodes.iter().find(|(_, node)| holds(node)) {
            Some((&parent, _)) => Ok(parent),
            None if inode == ROOT => Ok(ROOT),
            None => Err(Errno::NOENT.into()),
        }
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

    /// Drops unreferenced nodes.
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
