//! A file whose changes are kept in a temporary file: for processes that may read a file but not write it.
//!
//! A store opened for reading applies its log like recovery does, and writes state that exceeds memory here.
//! It is private to the process and discarded with the last handle.
//!
//! **Invariants**
//! - The underlying file is never written.
//! - A changed range has the same offset in the temporary file, which is created with the first change.

use std::{collections::BTreeMap, io, sync::Arc};

use testudo_base::{
    num::{u64_of, usize_of},
    sync::RwLock,
};

use crate::{AlignedBuffer, Env, File, PendingRead, ReadRequest, file::range_end};

/// A file and its changes since it was opened; see the head of `overlay.rs`.
#[derive(Debug)]
pub struct OverlayFile {
    base: Arc<dyn File>,
    env: Arc<dyn Env>,
    layout: RwLock<Layout>,
}

#[derive(Debug)]
struct Layout {
    length: u64,
    /// From here on the underlying file is hidden.
    base_end: u64,
    /// Changed ranges, start to end: disjoint, never adjacent.
    changed: BTreeMap<u64, u64>,
    changes: Option<Arc<dyn File>>,
}

/// Source of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Base,
    Changes,
    Zeros,
}

impl Layout {
    /// Returns the source of the byte at `at`, and where the next source begins, `end` at the latest.
    fn chunk(&self, at: u64, end: u64) -> (Source, u64) {
        if let Some((_, &until)) = self.changed.range(..=at).next_back()
            && at < until
        {
            return (Source::Changes, until.min(end));
        }
        let next = self.changed.range(at..).next().map_or(end, |(&start, _)| start).min(end);
        if at < self.base_end { (Source::Base, next.min(self.base_end)) } else { (Source::Zeros, next) }
    }

    /// Returns the source of the whole range, if there is only one.
    fn single_source(&self, at: u64, end: u64) -> Option<Source> {
        let (source, until) = self.chunk(at, end);
        (until == end && end <= self.length).then_some(source)
    }

    fn record_changed(&mut self, mut start: u64, mut end: u64) {
        while let Some((&at, &until)) = self.changed.range(..=end).next_back() {
            if until < start {
                break;
            }
            (start, end) = (start.min(at), end.max(until));
            self.changed.remove(&at);
        }
        self.changed.insert(start, end);
    }

    fn cut(&mut self, length: u64) {
        self.changed.split_off(&length);
        if let Some((_, until)) = self.changed.iter_mut().next_back() {
            *until = length.min(*until);
        }
        self.base_end = self.base_end.min(length);
    }

    fn changes(&self) -> io::Result<&Arc<dyn File>> {
        self.changes.as_ref().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn changes_or_new(&mut self, env: &dyn Env) -> io::Result<&Arc<dyn File>> {
        if self.changes.is_none() {
            self.changes = Some(env.temporary_file().map_err(explained)?);
        }
        self.changes()
    }
}

fn explained(error: io::Error) -> io::Error {
    let message = format!("a temporary file for state that exceeds memory (see TMPDIR): {error}");
    io::Error::new(error.kind(), message)
}

impl OverlayFile {
    /// Wraps `base`; changes are kept in a temporary file of `env`.
    pub fn over(base: Arc<dyn File>, env: Arc<dyn Env>) -> io::Result<Arc<Self>> {
        let length = base.len()?;
        let layout = Layout { length, base_end: length, changed: BTreeMap::new(), changes: None };
        Ok(Arc::new(Self { base, env, layout: RwLock::new(layout) }))
    }

    /// Returns the file that has the whole range, if there is one.
    fn file_of(&self, offset: u64, bytes: usize) -> Option<Arc<dyn File>> {
        let end = range_end(offset, u64_of(bytes)).ok()?;
        let layout = self.layout.read();
        match layout.single_source(offset, end)? {
            Source::Base => Some(Arc::clone(&self.base)),
            Source::Changes => layout.changes.clone(),
            Source::Zeros => None,
        }
    }
}

impl File for OverlayFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = range_end(offset, u64_of(buffer.len()))?;
        let layout = self.layout.read();
        if end > layout.length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut at = offset;
        while at < end {
            let (source, until) = layout.chunk(at, end);
            let part = &mut buffer[usize_of(at - offset)..usize_of(until - offset)];
            match source {
                Source::Base => self.base.read_at(at, part)?,
                Source::Changes => layout.changes()?.read_at(at, part)?,
                Source::Zeros => part.fill(0),
            }
            at = until;
        }
        Ok(())
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) {
        let of_base = |request: &ReadRequest<'_>| {
            let file = self.file_of(request.offset, request.buffer.len());
            file.is_some_and(|file| Arc::ptr_eq(&file, &self.base))
        };
        if requests.iter().all(of_base) {
            return self.base.read_batch(requests);
        }
        let (mut places, mut batch) = (Vec::new(), Vec::new());
        for (place, request) in requests.iter_mut().enumerate() {
            if of_base(request) {
                places.push(place);
                batch.push(ReadRequest::new(request.offset, std::mem::take(&mut request.buffer)));
            } else {
                request.result = self.read_at(request.offset, request.buffer);
            }
        }
        self.base.read_batch(&mut batch);
        for (place, request) in places.into_iter().zip(batch) {
            requests[place] = request;
        }
    }

    fn start_read(&self, offset: u64, buffer: AlignedBuffer) -> Box<dyn PendingRead> {
        if let Some(file) = self.file_of(offset, buffer.len()) {
            return file.start_read(offset, buffer);
        }
        let mut buffer = buffer;
        let result = self.read_at(offset, &mut buffer);
        Box::new(crate::pending_read::FinishedRead { buffer, result })
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let end = range_end(offset, u64_of(bytes.len()))?;
        let mut layout = self.layout.write();
        layout.changes_or_new(&*self.env)?.write_at(offset, bytes).map_err(explained)?;
        layout.record_changed(offset, end);
        layout.length = layout.length.max(end);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.layout.read().length)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        range_end(length, 0)?;
        let mut layout = self.layout.write();
        layout.cut(length);
        layout.length = length;
        match &layout.changes {
            Some(changes) if changes.len()? > length => changes.set_len(length),
            _ => Ok(()),
        }
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        let end = range_end(offset, length)?;
        let mut layout = self.layout.write();
        layout.changes_or_new(&*self.env)?.allocate(offset, length).map_err(explained)?;
        layout.length = layout.length.max(end);
        Ok(())
    }

    fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()> {
        let mut layout = self.layout.write();
        let end = range_end(offset, length)?.min(layout.length);
        if offset >= end {
            return Ok(());
        }
        let changes = layout.changes_or_new(&*self.env)?;
        if changes.len()? < end {
            changes.set_len(end)?;
        }
        changes.punch_hole(offset, end - offset)?;
        layout.record_changed(offset, end);
        Ok(())
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        self.base.allocated_bytes()
    }
}

#[cfg(test)]
mod tests;
