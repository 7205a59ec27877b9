//! The value log of a write buffer: large values of commits, written once in commit order (PAPERS P2,
//! decision 0052); or medium ones, depending on the placement.
//!
//! A commit appends these values here and writes references to them into the log. The buffer holds the values
//! as well, so that value logs are never read while their store is open. When the buffer is flushed, the
//! value log becomes a value segment as it is, and the tree gets the references.
//!
//! **Invariants**
//! - A value is appended before the log record that refers to it is reserved, and written before that record.
//! - Its space is fixed at the start and referenced by the durable state; values take no more.
//! - After a failed write it fails permanently, so that an incomplete value log is never used as a complete
//!   one.

use testudo_base::{
    Entry, Error, ErrorKind, ExtentSpan, Kind, LargeSlice, LargeVec, Result, Seqno, ValueReference,
    num::{low32, u32_of, u64_of, usize_of},
    planted,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};
use testudo_run::{RunLayout, RunOrigin, RunWriter};
use testudo_storage::{DataFile, Extent};

use crate::{DeadValues, Segment, SegmentClass, ValueLogRecord, segment::number_key};

/// Approximate bytes of overhead per value, for the reference and the page.
const OVERHEAD_BYTES: usize = 32;
/// Maximum in-flight buffers of a value log, so that commits rarely wait for a write.
const WRITES_MAX: usize = 4;
/// Size of a buffer as a fraction of the capacity (1/n).
const PART_OF_BUFFER: u64 = 32;

/// A value log to which commits append.
#[derive(Debug)]
pub struct ValueLog {
    record: ValueLogRecord,
    capacity_bytes: u64,
    /// Whether an append failed because the log is full, rather than because the value is too long.
    is_full: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Its space, as long as the durable state references it.
    extents: Vec<Arc<Extent>>,
    /// `None` once it has become a segment, has failed to, or was released.
    writer: Option<RunWriter>,
    count: u32,
    stored_bytes: u64,
    /// Whether values were appended since the last complete write.
    is_dirty: bool,
    /// Error of a write that may have lost appended values.
    failure: Option<Error>,
    /// Seqnos and numbers of the values.
    placed: LargeVec<Placed>,
    logged: Option<Arc<LoggedValues>>,
    /// Reused buffer for the next entry.
    bytes: Vec<u8>,
}

/// A finished value log.
#[derive(Debug)]
pub struct LoggedValues {
    segment: Segment,
    numbers: Numbers,
}

/// Map from seqno to value number.
#[derive(Debug)]
enum Numbers {
    /// One number per seqno from the first one on; [`NO_VALUE`] for writes without a value.
    Dense { first: u64, numbers: LargeSlice<u32> },
    /// Sorted by seqno.
    Sparse(LargeVec<Placed>),
}

/// Seqno of a write and number of its value.
type Placed = [u64; 2];

/// Never a valid number: each value takes some space.
const NO_VALUE: u32 = u32::MAX;
/// The dense form is used if at least one in this many seqnos has a value.
const DENSE_PART: u64 = 8;

impl Numbers {
    fn of(mut placed: LargeVec<Placed>) -> Self {
        placed.sort_unstable();
        let (Some([first, _]), Some([last, _])) = (placed.first(), placed.last()) else {
            return Self::Sparse(placed);
        };
        let (first, length) = (*first, last - first + 1);
        if length / DENSE_PART > u64_of(placed.len()) {
            return Self::Sparse(placed);
        }
        let mut numbers = LargeSlice::unfilled(usize_of(length));
        numbers.fill(NO_VALUE);
        for [seqno, number] in placed.iter() {
            numbers[usize_of(seqno - first)] = low32(*number);
        }
        Self::Dense { first, numbers }
    }

    fn memory_bytes(&self) -> usize {
        match self {
            Self::Dense { numbers, .. } => size_of_val(&**numbers),
            Self::Sparse(placed) => placed.room_bytes(),
        }
    }

    fn get(&self, seqno: Seqno) -> Option<u32> {
        match self {
            Self::Dense { first, numbers } => {
                let at = seqno.0.checked_sub(*first)?;
                numbers.get(usize_of(at)).copied().filter(|number| *number != NO_VALUE)
            }
            Self::Sparse(placed) => {
                let found = placed.binary_search_by_key(&seqno.0, |[seqno, _]| *seqno);
                found.ok().map(|at| low32(placed[at][1]))
            }
        }
    }
}

impl LoggedValues {
    /// The segment; all of its values are live.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Reference to the value of the write with this seqno; `length` is the value's length.
    pub fn reference_of(&self, seqno: Seqno, length: usize) -> Option<ValueReference> {
        let number = self.numbers.get(seqno)?;
        Some(ValueReference { segment: self.segment.id, number, length: u32_of(length) })
    }
}

/// A log that refuses a value is full once it holds at least one in this many of its bytes; before, the value
/// is too long.
const FULL_PARTS: u64 = 2;

impl State {
    /// Errors: that of an earlier failed write.
    fn check(&self) -> Result<()> {
        let failure = self.failure.as_ref().filter(|_| !planted!("failed-value-forgotten"));
        failure.map_or(Ok(()), |failure| Err(failure.clone()))
    }

    /// Records the error if the write failed, and returns the result.
    fn note(&mut self, written: Result<()>) -> Result<()> {
        // It is unknown which of the values are on the device.
        let written = written.map_err(|error| error.lasting("values could not be written"));
        self.failure = written.as_ref().err().cloned();
        written
    }
}

impl ValueLog {
    /// Allocates space for about `capacity_bytes` of values. No value may be appended before the durable
    /// state references [`ValueLog::record`].
    ///
    /// Errors: `OutOfSpace`, `Io`.
    pub fn begin(data: &Arc<DataFile>, origin: RunOrigin, capacity_bytes: u64) -> Result<Self> {
        debug_assert!(capacity_bytes > 0, "a value log has room");
        let (id, keyspace) = (origin.id, origin.keyspace);
        let layout = RunLayout { has_filter: false, ..RunLayout::default() };
        let mut writer = RunWriter::new(Arc::clone(data), origin, capacity_bytes)?
            .with_layout(layout)
            .with_buffers(WRITES_MAX, usize_of(capacity_bytes / PART_OF_BUFFER));
        writer.note_referred();
        let extents = writer.extents().to_vec();
        let spans: Vec<ExtentSpan> = extents.iter().map(|extent| extent.span()).collect();
        let pages: u64 = spans.iter().map(|span| u64::from(span.page_count)).sum();
        if pages * testudo_base::PAGE_BYTES < capacity_bytes {
            return Err(Error::new(ErrorKind::OutOfSpace, "there is not enough space for a value log"));
        }
        // Appended values are acknowledged before they are written: the device must not be full by then.
        data.back(&spans)?;
        let record = ValueLogRecord { id, keyspace, incarnation: writer.incarnation(), spans };
        let state = State {
            extents,
            writer: Some(writer),
            count: 0,
            stored_bytes: 0,
            is_dirty: false,
            failure: None,
            placed: LargeVec::new(),
            logged: None,
            bytes: Vec::new(),
        };
        Ok(Self { record, capacity_bytes, is_full: false.into(), state: Mutex::new(state) })
    }

    /// The record to persist in the manifest.
    pub fn record(&self) -> &ValueLogRecord {
        &self.record
    }

    /// Appends a value if it fits; returns the reference to it.
    ///
    /// Errors: `Io`; previously appended values may then be lost, and all later calls except
    /// [`ValueLog::give_up`] fail.
    pub fn append(&self, value: &[u8]) -> Result<Option<ValueReference>> {
        let mut state = self.state.lock();
        state.check()?;
        let State { writer, count, bytes, stored_bytes, .. } = &mut *state;
        let Some(writer) = writer.as_mut().filter(|writer| writer.has_room_for(value.len() + OVERHEAD_BYTES))
        else {
            self.is_full.store(*stored_bytes >= self.capacity_bytes / FULL_PARTS, Relaxed);
            return Ok(None);
        };
        let reference =
            ValueReference { segment: self.record.id, number: *count, length: u32_of(value.len()) };
        bytes.clear();
        reference.encode(bytes);
        bytes.extend_from_slice(value);
        let pushed = writer.push(&Entry { key: &number_key(*count), kind: Kind::Referred, value: bytes });
        debug_assert!(*count < u32::MAX, "values are numbered in 32 bits");
        *count += 1;
        state.note(pushed)?;
        state.stored_bytes += u64::from(reference.length);
        state.is_dirty = true;
        Ok(Some(reference))
    }

    /// Whether it is neither finished nor released.
    pub fn is_open(&self) -> bool {
        self.state.lock().writer.is_some()
    }

    /// Approximate bytes of memory, excluding the values held by the buffer.
    pub fn memory_bytes(&self) -> usize {
        let state = self.state.lock();
        state.writer.as_ref().map_or(0, RunWriter::memory_bytes)
            + state.placed.room_bytes()
            + state.bytes.capacity()
            + state.logged.as_ref().map_or(0, |logged| logged.numbers.memory_bytes())
    }

    /// Whether no value was appended.
    pub fn is_unused(&self) -> bool {
        self.state.lock().count == 0
    }

    /// Whether appends are refused because the log is full, rather than because a value is too long.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Relaxed)
    }

    /// Releases its space. REQUIRES: the durable state does not reference it any more.
    pub fn give_up(&self) {
        let mut state = self.state.lock();
        state.writer = None;
        state.logged = None;
        state.extents.clear();
    }

    /// Records that the write with this seqno has the value of `reference`. REQUIRES: called before the
    /// buffer is flushed.
    pub fn note(&self, seqno: Seqno, reference: ValueReference) {
        self.state.lock().placed.push([seqno.0, reference.number.into()]);
    }

    /// Writes all appended values to the OS, so that they survive a process crash.
    pub fn write_out(&self) -> Result<()> {
        let mut state = self.state.lock();
        state.check()?;
        let is_dirty = std::mem::take(&mut state.is_dirty);
        let written = match state.writer.as_mut().filter(|_| is_dirty) {
            Some(writer) => writer.write_out(),
            None => Ok(()),
        };
        state.note(written)
    }

    /// Turns it into a segment, once; `None` if it has no values. Durable after the data file is synced.
    /// REQUIRES: no more values are appended or noted. With `is_transient`, its values will return to their
    /// keys.
    ///
    /// Errors: `OutOfSpace`, `Io`; later calls then return `None`.
    pub fn finish(&self, is_transient: bool) -> Result<Option<Arc<LoggedValues>>> {
        let mut state = self.state.lock();
        state.check()?;
        if let Some(mut writer) = state.writer.take().filter(|_| state.count > 0) {
            let placed = std::mem::take(&mut state.placed);
            writer.set_newest_seqno(placed.iter().map(|[seqno, _]| Seqno(*seqno)).max().unwrap_or_default());
            let run = writer.finish_value_segment()?;
            debug_assert_eq!(run.reference().entries, u64::from(state.count), "an entry per value");
            let segment = Segment {
                id: self.record.id,
                class: if is_transient { SegmentClass::LoggedTransient } else { SegmentClass::Logged },
                run,
                dead: DeadValues::none_of(state.count),
                stored_bytes: state.stored_bytes,
                dead_bytes: 0,
            };
            state.logged = Some(Arc::new(LoggedValues { segment, numbers: Numbers::of(placed) }));
        }
        Ok(state.logged.clone())
    }
}

#[cfg(test)]
mod tests;
