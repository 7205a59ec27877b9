//! The machine with files that discard all writes, so that only the store's own cost of a log is measured.
//!
//! **Invariants**
//! - Writes and syncs succeed immediately and files share no state; nothing can be read back.

use std::{io, path::Path, sync::Arc};

use testudo_env::{
    DirEntry, DirLock, Env, File, LockHolder, MappedFile, MappedMemory, OpenOptions, ReadRequest, RealEnv,
};

/// The environment; clock, randomness and threads are the machine's.
#[derive(Debug)]
pub(crate) struct ForgetfulEnv(pub(crate) Arc<RealEnv>);

/// A file; its name does not matter.
#[derive(Debug)]
struct ForgetfulFile;

fn nothing_there() -> io::Error {
    io::Error::from(io::ErrorKind::NotFound)
}

impl Env for ForgetfulEnv {
    fn anchor(&self, _directory: &Path) -> io::Result<Arc<dyn Env>> {
        Ok(Arc::new(Self(Arc::clone(&self.0))))
    }
    fn open(&self, _path: &Path, _options: OpenOptions) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(ForgetfulFile))
    }
    fn temporary_file(&self) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(ForgetfulFile))
    }
    fn create_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
    fn list_dir(&self, _path: &Path) -> io::Result<Vec<DirEntry>> {
        Ok(Vec::new())
    }
    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        Err(nothing_there())
    }
    fn remove_file(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
    fn remove_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
    fn lock(&self, _path: &Path, _create: bool, _exclusive: bool) -> io::Result<Box<dyn DirLock>> {
        Err(nothing_there())
    }
    fn create_mapped(&self, _path: &Path, bytes: usize) -> io::Result<Arc<dyn MappedFile>> {
        Ok(Arc::new(MappedMemory::zeroed(bytes)))
    }
    fn lock_dir(&self, _directory: &Path, _exclusive: bool) -> io::Result<Box<dyn DirLock>> {
        Err(nothing_there())
    }
    fn lock_holder(&self, _path: &Path) -> io::Result<LockHolder> {
        Ok(LockHolder::NoOwner)
    }

    testudo_env::forward!(
        0: process, owner_state, monotonic, wall_clock, random_u64, execution, spawn, sleep, boot_id,
        free_bytes
    );
}

impl File for ForgetfulFile {
    fn read_at(&self, _offset: u64, _buffer: &mut [u8]) -> io::Result<()> {
        Err(nothing_there())
    }
    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) {
        for request in requests {
            request.result = Err(nothing_there());
        }
    }
    fn write_at(&self, _offset: u64, _bytes: &[u8]) -> io::Result<()> {
        Ok(())
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
    fn len(&self) -> io::Result<u64> {
        Ok(0)
    }
    fn set_len(&self, _length: u64) -> io::Result<()> {
        Ok(())
    }
    fn allocate(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Ok(())
    }
    fn punch_hole(&self, _offset: u64, _length: u64) -> io::Result<()> {
        Ok(())
    }
    fn allocated_bytes(&self) -> io::Result<u64> {
        Ok(0)
    }
}
