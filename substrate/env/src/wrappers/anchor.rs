//! Resolution of a path's start: the working directory, or a directory that was opened once.
//!
//! **Invariants**
//! - The descriptor of an anchored directory is opened once and refers to it until the last user is gone.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, Stat},
    io::{Errno, retry_on_intr},
};
use testudo_base::planted;

/// A directory that was opened once, and the path that refers to it.
#[derive(Clone, Debug)]
pub(crate) struct Anchor {
    path: PathBuf,
    descriptor: Arc<OwnedFd>,
}

/// A path in the form that system calls take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'p> {
    /// The directory to which `name` is relative.
    pub(crate) directory: BorrowedFd<'p>,
    pub(crate) name: &'p Path,
    /// The path as given, for messages.
    pub(crate) path: &'p Path,
}

impl Anchor {
    /// Opens the directory, following a link.
    pub(crate) fn open(place: Place<'_>) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor =
            retry_on_intr(|| rustix::fs::openat(place.directory, place.name, flags, Mode::empty()))?;
        Ok(Self { path: place.path.to_owned(), descriptor: Arc::new(descriptor) })
    }

    /// Removes the directory if it is empty and its name in the parent still refers to it.
    pub(crate) fn remove_dir(&self) -> io::Result<()> {
        let name = self.path.file_name().ok_or(Errno::INVAL)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = rustix::fs::openat(&*self.descriptor, "..", flags, Mode::empty())?;
        let named = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if !is_same(&named, &rustix::fs::fstat(&*self.descriptor)?) {
            return Err(Errno::NOENT.into());
        }
        Ok(rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR)?)
    }

    /// Whether `path` is the directory itself.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        self.path == path
    }
}

/// Resolves the start of `path`.
pub(crate) fn place<'p>(anchor: Option<&'p Anchor>, path: &'p Path) -> Place<'p> {
    let within = anchor.and_then(|anchor| Some((anchor, path.strip_prefix(&anchor.path).ok()?)));
    match within.filter(|_| !planted!("names-by-path")) {
        Some((anchor, rest)) => {
            let name = if rest.as_os_str().is_empty() { Path::new(".") } else { rest };
            Place { directory: anchor.descriptor.as_fd(), name, path }
        }
        None => Place { directory: CWD, name: path, path },
    }
}

/// Whether both refer to the same file.
pub(crate) fn is_same(left: &Stat, right: &Stat) -> bool {
    (left.st_dev, left.st_ino) == (right.st_dev, right.st_ino)
}
