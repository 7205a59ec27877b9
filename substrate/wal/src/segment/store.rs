//! The segment files of a directory: listing, creating ahead, releasing.
//!
//! **Invariants**
//! - A segment's name is durable before the segment after it is created, and its header page is durable
//!   before a record is written to it. So among the files of the log at most the last one may be without a
//!   header, and a gap in the numbers is damage.
//! - Segments are released from the oldest on, never the current one.

use std::{collections::VecDeque, io, path::Path, time::Duration};

use testudo_base::{
    Error, PAGE_BYTES, Result, Seqno,
    errno::{Treatment, is_transient, treatment_of},
    planted,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use testudo_env::{EntryType, Env, File, OpenMode, OpenOptions};

use crate::segment::wal_format::{SEGMENT_HEADER_BYTES, segment_file_name, segment_number};

/// A segment begins with this length, which its header states: a shorter file is a damaged one.
pub(crate) const INITIAL_BYTES: u64 = 64 << 10;
/// Then it grows, and its place on the device is reserved, in steps of its length, of at most this size.
pub(crate) const ALLOCATION_BYTES_MAX: u64 = 8 << 20;
/// The first segments of a log become no longer than this; then, half of what it holds.
const FIRST_SEGMENTS_BYTES: u64 = 2 << 20;

/// Reserves place on the device ahead of writes. `false` on a full device, or where something else is
/// lacking, which is no failure yet: the write will tell.
pub(crate) fn reserve_ahead(file: &dyn File, offset: u64, length: u64) -> io::Result<bool> {
    match file.allocate(offset, length) {
        Err(error) if treatment_of(&error) == Treatment::Full || is_transient(&error) => Ok(false),
        outcome => outcome.map(|()| true),
    }
}

/// A segment of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Number in the file's name.
    pub number: u64,
    /// Seqno of its first record, or of the one that would come.
    pub first_seqno: Seqno,
    /// Seqno of its last record that counts; less than `first_seqno` if there is none.
    pub last_seqno: Seqno,
    /// Bytes of the pages up to the last record, header page included; 0 if it was never used.
    pub bytes: u64,
}

/// Numbers of the segments in `dir`, ascending.
pub fn list_segments(env: &dyn Env, dir: &Path) -> Result<Vec<u64>> {
    let entries = env.list_dir(dir).map_err(|error| Error::io(dir.display().to_string(), error))?;
    let files = entries.iter().filter(|entry| entry.entry_type == EntryType::File);
    let mut numbers: Vec<u64> = files.filter_map(|entry| segment_number(&entry.name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Removes the segments with numbers below `below`, the newest of them last. Not durable before the
/// directory is synced, which is not needed if the store remembers `below`.
pub fn remove_segments(env: &dyn Env, dir: &Path, below: u64) -> Result<()> {
    for number in list_segments(env, dir)?.into_iter().filter(|&number| number < below) {
        let name = segment_file_name(number);
        env.remove_file(&dir.join(&name)).map_err(|error| Error::io(name, error))?;
    }
    Ok(())
}

/// A segment's file, of its first length and with place on the device for that, its name durable.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    pub(crate) file: Arc<dyn File>,
    pub(crate) name: String,
    pub(crate) number: u64,
    /// How long it may become.
    pub(crate) bytes: u64,
    /// How long it is at least.
    pub(crate) initial_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct SegmentStore {
    env: Arc<dyn Env>,
    dir: Box<Path>,
    segment_bytes: AtomicU64,
    /// Taken for as long as a segment is created or becomes the current one.
    next: Mutex<Option<SegmentFile>>,
    /// Ascending; the last one is the current one, once this opening has one.
    live: Mutex<VecDeque<SegmentInfo>>,
}

impl SegmentStore {
    /// `live` are the segments of earlier openings that are still needed.
    pub(crate) fn new(env: Arc<dyn Env>, dir: &Path, segment_bytes: u64, live: Vec<SegmentInfo>) -> Self {
        debug_assert!(live.is_sorted_by(|a, b| a.number < b.number), "segments ascend");
        Self {
            env,
            dir: dir.into(),
            segment_bytes: segment_bytes.into(),
            next: Mutex::new(None),
            live: Mutex::new(live.into()),
        }
    }

    /// The clock of the machine that has the files.
    pub(crate) fn monotonic(&self) -> Duration {
        self.env.monotonic()
    }

    /// Creates segment `number` ahead of its use, unless that was done.
    pub(crate) fn prepare(&self, number: u64) -> Result<()> {
        let mut next = self.next.lock();
        // The segment may have become the current one while this thread waited for the lock.
        let is_used = self.live.lock().back().is_some_and(|segment| segment.number >= number);
        if next.is_none() && !is_used {
            *next = Some(self.create(number)?);
        }
        Ok(())
    }

    /// Makes segment `number` the current one and writes its header with `write_header`.
    pub(crate) fn begin_segment(
        &self,
        number: u64,
        bytes_min: u64,
        first_seqno: Seqno,
        write_header: impl FnOnce(&SegmentFile) -> Result<()>,
    ) -> Result<SegmentFile> {
        let mut next = self.next.lock();
        let mut segment = match next.take() {
            Some(prepared) => prepared,
            None => self.create(number)?,
        };
        assert_eq!(segment.number, number, "segments are prepared in order");
        segment.bytes = segment.bytes.min(self.segment_bytes()).max(bytes_min);
        if let Err(error) = write_header(&segment) {
            // A later try makes it again.
            let _ = self.env.remove_file(&self.dir.join(&segment.name));
            return Err(error);
        }
        let last_seqno = Seqno(first_seqno.0 - 1);
        let mut live = self.live.lock();
        debug_assert!(live.back().is_none_or(|before| before.number < number), "segments ascend");
        live.push_back(SegmentInfo { number, first_seqno, last_seqno, bytes: SEGMENT_HEADER_BYTES });
        drop(live);
        Ok(segment)
    }

    /// Changes the size of segments; those that are longer already get nothing more.
    pub(crate) fn set_segment_bytes(&self, bytes: u64) {
        self.segment_bytes.store(bytes, Relaxed);
    }

    /// Size of segments.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.segment_bytes.load(Relaxed)
    }

    /// Notes how far the current segment is filled.
    pub(crate) fn advance(&self, last_seqno: Seqno, bytes: u64) {
        if let Some(current) = self.live.lock().back_mut() {
            debug_assert!(
                last_seqno >= current.last_seqno && bytes >= current.bytes,
                "a segment only gets longer"
            );
            current.last_seqno = last_seqno;
            current.bytes = bytes;
        }
    }

    /// The live segments, oldest first.
    pub(crate) fn segments(&self) -> Vec<SegmentInfo> {
        self.live.lock().iter().copied().collect()
    }

    /// Bytes of the live segments.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live.lock().iter().map(|segment| segment.bytes).sum()
    }

    /// Number of the oldest segment that is needed once nothing up to `seqno` is.
    pub(crate) fn first_needed(&self, seqno: Seqno) -> u64 {
        let live = self.live.lock();
        // A segment behind a hole counts for nothing, as the one before it tells: it is no beginning.
        let current = live.iter().rfind(|segment| segment.first_seqno.0 > 0).or(live.back());
        let current = current.expect("a log without old segments begins with one");
        let first = live.iter().find(|segment| segment.last_seqno > seqno).unwrap_or(current).number;
        if planted!("log-released-early") { current.number.min(first + 1) } else { first }
    }

    /// Removes the segments before the one of this number, but not the current one.
    pub(crate) fn release_before(&self, segment: u64) -> Result<()> {
        // The lock is not held while a file is removed: it would hold up the writer.
        while let Some(number) = self.releasable(segment) {
            let name = segment_file_name(number);
            match self.env.remove_file(&self.dir.join(&name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(Error::io(name, error)),
                _ => self.live.lock().retain(|segment| segment.number != number),
            }
        }
        Ok(())
    }

    /// Removes the newest segments if they hold no commit, but not the last one there is; durable on return.
    /// REQUIRES: nothing is written any more.
    pub(crate) fn remove_unused(&self) -> Result<()> {
        let mut unused: Vec<u64> = self.next.lock().take().iter().map(|segment| segment.number).collect();
        let is_empty = |segment: &SegmentInfo| segment.last_seqno < segment.first_seqno;
        {
            // The only one stays: its header says where the log has come to, which proves the manifest whole
            // where the superblock is lost.
            let live = self.live.lock();
            let current = live.back().filter(|current| live.len() > 1 && is_empty(current));
            unused.extend(current.map(|current| current.number));
        }
        if unused.is_empty() || planted!("unused-segment-kept") {
            return Ok(());
        }
        for &number in &unused {
            let name = segment_file_name(number);
            self.env.remove_file(&self.dir.join(&name)).map_err(|error| Error::io(name, error))?;
        }
        // A later opening gives their numbers to other segments.
        self.env.sync_dir(&self.dir).map_err(|error| Error::io(self.dir.display().to_string(), error))
    }

    fn releasable(&self, segment: u64) -> Option<u64> {
        let live = self.live.lock();
        let is_before = |oldest: &SegmentInfo| oldest.number < segment || planted!("needed-segment-released");
        let oldest = live.front().filter(|oldest| live.len() > 1 && is_before(oldest))?;
        Some(oldest.number)
    }

    fn create(&self, number: u64) -> Result<SegmentFile> {
        let name = segment_file_name(number);
        let path = self.dir.join(&name);
        let failed = |error| Error::io(name.as_str(), error);
        let options = OpenOptions { mode: OpenMode::CreateNew, direct: true };
        let file = match self.env.open(&path, options) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // Of an earlier try, which could not remove it: no header of it was ever written whole.
                self.env.remove_file(&path).and_then(|()| self.env.open(&path, options))
            }
            opened => opened,
        };
        let file = file.map_err(failed)?;
        let bytes = self
            .segment_bytes()
            .min((self.live_bytes() / 2).next_multiple_of(PAGE_BYTES).max(FIRST_SEGMENTS_BYTES));
        let initial_bytes = INITIAL_BYTES.min(bytes);
        let reserved =
            file.set_len(initial_bytes).and_then(|()| reserve_ahead(&*file, 0, initial_bytes)).and_then(
                |_| if planted!("segment-name-unsynced") { Ok(()) } else { self.env.sync_dir(&self.dir) },
            );
        if let Err(error) = reserved {
            // A later try makes it again.
            let _ = self.env.remove_file(&path);
            return Err(failed(error));
        }
        Ok(SegmentFile { file, name, number, bytes, initial_bytes })
    }
}
