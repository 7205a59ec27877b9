//! The segment files of a directory: listing, creating ahead, releasing.
//!
//! **Invariants**
//! - A segment's name is durable before the next segment is created, and its header page is durable before a
//!   record is written to it. So at most the last segment file may lack a header, and a gap in the numbers is
//!   damage.
//! - Segments are released and removed oldest first, never the current one. A released segment is no longer
//!   listed, even while its file exists.

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

/// Initial length of a segment, stated in its header: a shorter file is damaged.
pub(crate) const INITIAL_BYTES: u64 = 64 << 10;
/// Afterwards a segment grows, and its space is reserved, in steps of its length, up to this size.
pub(crate) const ALLOCATION_BYTES_MAX: u64 = 8 << 20;
/// Maximum length of the first segments of a log; later ones are limited to half of the live bytes.
const FIRST_SEGMENTS_BYTES: u64 = 2 << 20;

/// Reserves space on the device ahead of writes. Returns `false` on a full device, or if another resource is
/// lacking. That is no failure yet: the write will report it.
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
    /// Seqno of its first record, or of the one that would be first.
    pub first_seqno: Seqno,
    /// Seqno of its last valid record; less than `first_seqno` if there is none.
    pub last_seqno: Seqno,
    /// Bytes of the pages up to the last record, including the header page; 0 if it was never used.
    pub bytes: u64,
}

/// Lists the numbers of the segments in `dir`, ascending.
pub fn list_segments(env: &dyn Env, dir: &Path) -> Result<Vec<u64>> {
    let entries = env.list_dir(dir).map_err(|error| Error::io(dir.display().to_string(), error))?;
    let files = entries.iter().filter(|entry| entry.entry_type == EntryType::File);
    let mut numbers: Vec<u64> = files.filter_map(|entry| segment_number(&entry.name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Removes the segments with numbers below `below`, the newest of them last. Not durable until the directory
/// is synced, which is unnecessary if the store persists `below`.
pub fn remove_segments(env: &dyn Env, dir: &Path, below: u64) -> Result<()> {
    for number in list_segments(env, dir)?.into_iter().filter(|&number| number < below) {
        let name = segment_file_name(number);
        env.remove_file(&dir.join(&name)).map_err(|error| Error::io(name, error))?;
    }
    Ok(())
}

/// A segment's file of its initial length, with space reserved for it; its name is durable.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    pub(crate) file: Arc<dyn File>,
    pub(crate) name: String,
    pub(crate) number: u64,
    /// Maximum length.
    pub(crate) bytes: u64,
    /// Minimum length.
    pub(crate) initial_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct SegmentStore {
    env: Arc<dyn Env>,
    dir: Box<Path>,
    segment_bytes: AtomicU64,
    /// Locked while a segment is created or becomes the current one.
    next: Mutex<Option<SegmentFile>>,
    /// Ascending; the last one is the current one once this opening has one.
    live: Mutex<VecDeque<SegmentInfo>>,
    /// Numbers of released segments whose files were not removed yet, ascending; locked alone.
    released: Mutex<VecDeque<u64>>,
}

impl SegmentStore {
    /// A store of segments; `live` are those of earlier openings that are still needed.
    pub(crate) fn new(env: Arc<dyn Env>, dir: &Path, segment_bytes: u64, live: Vec<SegmentInfo>) -> Self {
        debug_assert!(live.is_sorted_by(|a, b| a.number < b.number), "segments ascend");
        Self {
            env,
            dir: dir.into(),
            segment_bytes: segment_bytes.into(),
            next: Mutex::new(None),
            live: Mutex::new(live.into()),
            released: Mutex::default(),
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
            // A retry creates it again.
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

    /// Changes the size of segments; segments already longer receive no more records.
    pub(crate) fn set_segment_bytes(&self, bytes: u64) {
        self.segment_bytes.store(bytes, Relaxed);
    }

    /// Maximum size of segments.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.segment_bytes.load(Relaxed)
    }

    /// Records how far the current segment is filled.
    pub(crate) fn advance(&self, last_seqno: Seqno, bytes: u64) {
        if let Some(current) = self.live.lock().back_mut() {
            debug_assert!(
                last_seqno >= current.last_seqno && bytes >= current.bytes,
                "a segment never shrinks"
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

    /// Number of the oldest segment still needed when nothing up to `seqno` is.
    pub(crate) fn first_needed(&self, seqno: Seqno) -> u64 {
        let live = self.live.lock();
        // A segment behind a hole is void, as the one before it proves: the log cannot begin with it.
        let current = live.iter().rfind(|segment| segment.first_seqno.0 > 0).or(live.back());
        let current = current.expect("a log without old segments begins with one");
        let first = live.iter().find(|segment| segment.last_seqno > seqno).unwrap_or(current).number;
        if planted!("log-released-early") { current.number.min(first + 1) } else { first }
    }

    /// Releases the segments before number `segment`, except the current one; their files remain. REQUIRES:
    /// one call at a time.
    pub(crate) fn release_before(&self, segment: u64) {
        let is_before = |oldest: &SegmentInfo| oldest.number < segment || planted!("needed-segment-released");
        let mut numbers = Vec::new();
        let mut live = self.live.lock();
        while live.len() > 1
            && let Some(number) = live.front().filter(|oldest| is_before(oldest)).map(|oldest| oldest.number)
        {
            numbers.push(number);
            live.pop_front();
        }
        drop(live);
        self.released.lock().extend(numbers);
    }

    /// Removes the files of released segments; `false` if there are none. Several threads may do so at once.
    pub(crate) fn remove_released(&self) -> Result<bool> {
        // No lock is held while a file is removed: that would block the writer.
        let oldest = || self.released.lock().front().copied();
        let mut removed = false;
        while let Some(number) = oldest() {
            let name = segment_file_name(number);
            match self.env.remove_file(&self.dir.join(&name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(Error::io(name, error)),
                _ => self.released.lock().retain(|released| *released != number),
            }
            removed = true;
        }
        Ok(removed)
    }

    /// Removes the newest segments if they hold no commit, except the only one; durable on return. REQUIRES:
    /// no more writes follow.
    pub(crate) fn remove_unused(&self) -> Result<()> {
        let mut unused: Vec<u64> = self.next.lock().take().iter().map(|segment| segment.number).collect();
        let is_empty = |segment: &SegmentInfo| segment.last_seqno < segment.first_seqno;
        {
            // The only segment stays: its header states how far the log has come, which proves the manifest
            // complete if the superblock is lost.
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
        // A later opening reuses their numbers for other segments.
        self.env.sync_dir(&self.dir).map_err(|error| Error::io(self.dir.display().to_string(), error))
    }

    fn create(&self, number: u64) -> Result<SegmentFile> {
        let name = segment_file_name(number);
        let path = self.dir.join(&name);
        let failed = |error| Error::io(name.as_str(), error);
        let options = OpenOptions { mode: OpenMode::CreateNew, direct: true };
        let file = match self.env.open(&path, options) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // Left by an earlier attempt that could not remove it; its header was never completely
                // written.
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
            // A retry creates it again.
            let _ = self.env.remove_file(&path);
            return Err(failed(error));
        }
        Ok(SegmentFile { file, name, number, bytes, initial_bytes })
    }
}
