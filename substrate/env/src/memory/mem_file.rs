//! An open file of the simulated disk.
//!
//! **Invariants**
//! - The handle keeps its file, whatever happens to its names.
//! - Reads and writes follow the rules of real files: alignment for direct I/O, no writes through a read
//!   handle.

use std::{io, sync::Arc};

use rustix::io::Errno;
use testudo_base::num::u64_of;

use super::{Machine, dir_node::Inode, file_node::FileNode};
use crate::{
    File, OpenMode, OpenOptions, ReadRequest,
    file::{range_end, require_direct_alignment},
};

/// A handle of a file.
#[derive(Debug)]
pub(super) struct MemFile {
    machine: Arc<Machine>,
    inode: Inode,
    options: OpenOptions,
}

impl MemFile {
    /// Takes over a handle that the disk has already counted.
    pub(super) fn new(machine: Arc<Machine>, inode: Inode, options: OpenOptions) -> Self {
        Self { machine, inode, options }
    }

    fn check(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        range_end(offset, u64_of(bytes.len()))?;
        if self.options.direct { require_direct_alignment(offset, bytes) } else { Ok(()) }
    }

    fn require_writable(&self, refusal: Errno) -> io::Result<()> {
        if self.options.mode == OpenMode::Read { Err(refusal.into()) } else { Ok(()) }
    }

    fn read_from(&self, file: &FileNode, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.check(offset, buffer)?;
        if buffer.is_empty() {
            return Ok(());
        }
        if offset + u64_of(buffer.len()) > file.live_length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        file.read(offset, buffer);
        Ok(())
    }
}

impl File for MemFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.machine.inspect(|disk| self.read_from(disk.file(self.inode)?, offset, buffer))
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) {
        for request in requests {
            request.result = self.read_at(request.offset, request.buffer);
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.require_writable(Errno::BADF)?;
        self.check(offset, bytes)?;
        self.machine.change(|disk| {
            disk.require_space(disk.file(self.inode)?.missing_bytes(offset, u64_of(bytes.len())))?;
            disk.file_mut(self.inode)?.write(offset, bytes);
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.machine.change(|disk| {
            disk.file_mut(self.inode)?.sync();
            Ok(())
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.machine.inspect(|disk| Ok(disk.file(self.inode)?.live_length))
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.require_writable(Errno::INVAL)?;
        range_end(length, 0)?;
        self.machine.change(|disk| {
            disk.file_mut(self.inode)?.set_len(length);
            Ok(())
        })
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        self.require_writable(Errno::BADF)?;
        range_end(offset, length)?;
        if length == 0 {
            return Ok(());
        }
        self.machine.change(|disk| {
            disk.require_space(disk.file(self.inode)?.missing_bytes(offset, length))?;
            disk.file_mut(self.inode)?.allocate(offset, length);
            Ok(())
        })
    }

    fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()> {
        self.require_writable(Errno::BADF)?;
        range_end(offset, length)?;
        if length == 0 {
            return Ok(());
        }
        self.machine.change(|disk| {
            disk.file_mut(self.inode)?.punch_hole(offset, length);
            Ok(())
        })
    }

    fn next_data(&self, offset: u64) -> u64 {
        self.machine.inspect(|disk| Ok(disk.file(self.inode)?.next_data(offset))).unwrap_or(offset)
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        self.machine.inspect(|disk| Ok(disk.file(self.inode)?.allocated_bytes()))
    }
}

impl Drop for MemFile {
    fn drop(&mut self) {
        self.machine.disk.write().close(self.inode);
    }
}
