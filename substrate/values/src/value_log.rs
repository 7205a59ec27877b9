//! The value log of a write buffer: large values of commits, written once, in the order in which they come
//! (PAPERS P2, decision 0052); or medium ones, where their placement says so.
//!
//! A commit appends these values here and writes references to them into the log. The buffer has the
//! values as well, so that nobody reads a value log while its store is open. When the buffer is flushed, the
//! value log becomes a value segment as it is, and the tree gets the references.
//!
//! **Invariants**
//! - A value is appended before the log record that names it is reserved, and written before that is.
//! - It has the space that it began with, to which the durable state refers, and takes no more for values.
//! - Once something could not be written it fails for good: nobody takes the rest for all of it.

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

/// Bytes of a value that references and the page's own take, about.
const OVERHEAD_BYTES: usize = 32;
/// Buffers of a value log on their way to the device, at most: commits do not wait for each …
const WRITES_MAX: usize = 4;
/// … and one in so many bytes of it that fit into a buffer.
const PART_OF_BUFFER: u64 = 32;

/// A value log that commits append to.
#[derive(Debug)]
pub struct ValueLog {
    record: ValueLogRecord,
    capacity_bytes: u64,
    /// A value found no room because of those before it, and not because it is too long.
    is_full: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Its space, until no durable state names it any more.
    extents: Vec<Arc<Extent>>,
    /// `None` once it has become a segment, or has failed to, or was given up.
    writer: Option<RunWriter>,
    count: u32,
    stored_bytes: u64,
    /// Something was appended since all of it was written.
    is_dirty: bool,
    /// Why something that was appended may not have been written.
    failure: Option<Error>,
    /// Which commits have which values.
    placed: LargeVec<Placed>,
    logged: Option<Arc<LoggedValues>>,
    /// Kept for the next entry.
    bytes: Vec<u8>,
}

/// What has become of a value log.
#[derive(Debug)]
pub struct LoggedValues {
    segment: Segment,
    numbers: Numbers,
}

/// Which writes have which values.
#[derive(Debug)]
enum Numbers {
    /// One number for each seqno from the first one on; [`NO_VALUE`] where a write has none.
    Dense { first: u64, numbers: LargeSlice<u32> },
    /// By seqno.
    Sparse(LargeVec<Placed>),
}

/// The seqno of a write, and the number of its value.
type Placed = [u64; 2];

/// No value has this number: each takes some space.
const NO_VALUE: u32 = u32::MAX;
/// Numbers have a place for each seqno if one in so many has a value.
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
    /// The segment, of which all values live.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Where the value of the write with this seqno is, which is so long.
    pub fn reference_of(&self, seqno: Seqno, length: usize) -> Option<ValueReference> {
        let number = self.numbers.get(seqno)?;
        Some(ValueReference { segment: self.segment.id, number, length: u32_of(length) })
    }
}

impl State {
    /// Errors: what could not be written.
    fn check(&self) -> Result<()> {
        let failure = self.failure.as_ref().filter(|_| !planted!("failed-value-forgotten"));
        failure.map_or(Ok(()), |failure| Err(failure.clone()))
    }

    /// Remembers it if something could not be written.
    fn note(&mut self, written: Result<()>) -> Result<()> {
        // It is not known which of them the device has.
        let written = written.map_err(|error| error.lasting("values could not be written"));
        self.failure = written.as_ref().err().cloned();
        written
    }
}

impl ValueLog {
    /// Takes space for about `capacity_bytes` of values. Nothing may be appended before the durable state
    /// refers to [`ValueLog::record`].
    ///
    /// Errors: `OutOfSpace`, `Io`.
    pub fn begin(data: &Arc<DataFile>, origin: RunOrigin, capacity_bytes: u64) -> Result<Self> {
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
        // What is appended is acknowledged before it is written: it must not find the device full then.
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

    /// What the durable state has to know of it.
    pub fn record(&self) -> &ValueLogRecord {
        &self.record
    }

    /// Appends a value, if there is room for it; what leads to it from now on.
    ///
    /// Errors: `Io`; then what was appended before may be lost, and everything else but giving it up fails.
    pub fn append(&self, value: &[u8]) -> Result<Option<ValueReference>> {
        let mut state = self.state.lock();
        state.check()?;
        let State { writer, count, bytes, stored_bytes, .. } = &mut *state;
        let Some(writer) = writer.as_mut().filter(|writer| writer.has_room_for(value.len() + OVERHEAD_BYTES))
        else {
            self.is_full.store(*stored_bytes >= self.capacity_bytes / 2, Relaxed);
            return Ok(None);
        };
        let reference =
            ValueReference { segment: self.record.id, number: *count, length: u32_of(value.len()) };
        bytes.clear();
        reference.encode(bytes);
        bytes.extend_from_slice(value);
        let pushed = writer.push(&Entry { key: &number_key(*count), kind: Kind::Referred, value: bytes });
        *count += 1;
        state.note(pushed)?;
        state.stored_bytes += u64::from(reference.length);
        state.is_dirty = true;
        Ok(Some(reference))
    }

    /// Whether it is neither a segment nor given up.
    pub fn is_open(&self) -> bool {
        self.state.lock().writer.is_some()
    }

    /// About how many bytes of memory it takes, beside the values that its buffer has.
    pub fn memory_bytes(&self) -> usize {
        let state = self.state.lock();
        state.writer.as_ref().map_or(0, RunWriter::memory_bytes)
            + state.placed.room_bytes()
            + state.bytes.capacity()
            + state.logged.as_ref().map_or(0, |logged| logged.numbers.memory_bytes())
    }

    /// Whether nothing was appended.
    pub fn is_unused(&self) -> bool {
        self.state.lock().count == 0
    }

    /// Whether a value that finds no room does so because of those before it, and not because it is too long.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Relaxed)
    }

    /// Holds its space no more. REQUIRES: no durable state refers to it any more.
    pub fn give_up(&self) {
        let mut state = self.state.lock();
        state.writer = None;
        state.logged = None;
        state.extents.clear();
    }

    /// The write with this seqno has the value that `reference` leads to. REQUIRES: nobody flushes its buffer
    /// before.
    pub fn note(&self, seqno: Seqno, reference: ValueReference) {
        self.state.lock().placed.push([seqno.0, reference.number.into()]);
    }

    /// Writes everything that was appended, so that it survives the end of the process.
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

    /// Makes it a segment, once; `None` if it has no values. Durable after the data file is synced. REQUIRES:
    /// nothing is appended or noted any more. `is_transient`: its values are to come back to their keys.
    ///
    /// Errors: `OutOfSpace`, `Io`; it is `None` from then on.
    pub fn finish(&self, is_transient: bool) -> Result<Option<Arc<LoggedValues>>> {
        let mut state = self.state.lock();
        state.check()?;
        if let Some(mut writer) = state.writer.take().filter(|_| state.count > 0) {
            let placed = std::mem::take(&mut state.placed);
            writer.set_newest_seqno(placed.iter().map(|[seqno, _]| Seqno(*seqno)).max().unwrap_or_default());
            let run = writer.finish_value_segment()?;
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
