//! The smallest store that keeps the guarantees: a map in memory and a log of commits on disk. With a planted
//! fault it breaks one of them, which proves that the runner detects such faults.
//!
//! **Invariants**
//! - Without a planted fault, the content after a crash is that of a prefix of the commits, including every
//!   synced one.
//! - A record is its length, its checksum and its deltas; the log ends at the first record with a bad
//!   checksum.
//! - Data in the same sector as a synced record was synced with it.

use std::{cell::RefCell, io, path::Path, rc::Rc, sync::Arc};

use testudo_base::{
    Error, ErrorKind, Result,
    checksum::checksum64,
    codec::{self, Damage, Reader},
    num::{u64_of, usize_of},
};
use testudo_env::{Env, File, OpenMode, OpenOptions};

use crate::{
    op::Slot,
    state::{Delta, State},
    store::{Opener, Pair, RawScan, RawWalk, RawWrite, Store, UpdateFn, View},
};

const DIRECTORY: &str = "/log-store";
const LOG: &str = "/log-store/log";
/// Alignment of writes: a torn sector must not contain data that was synced before.
const SECTOR_BYTES: usize = 512;
/// Size of length and checksum. Records are padded to a multiple of it, so that no header crosses a sector.
const HEADER_BYTES: usize = 16;

/// A deliberate fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// `persist` and synced batches acknowledge before the sync.
    AcknowledgeBeforeSync,
    /// A batch is logged as one record per write.
    HalfBatch,
    /// Recovery continues after a record with a bad checksum.
    SkipDamagedRecord,
    /// Recovery ignores checksums.
    IgnoreChecksum,
    /// Recovery does not sync the commits that it found.
    ExposeUnsynced,
    /// Every tenth remove does nothing.
    LostRemove,
    /// Backward scans miss the last pair of more than ten.
    BackwardMiss,
    /// Snapshots show later writes.
    MovingSnapshot,
    /// A clean close drops the tail of the log.
    ForgetTail,
    /// The directory is not synced after the log is created.
    UnsyncedName,
    /// `update` gets the value before the last one.
    StaleUpdate,
}

impl Plant {
    /// All plants.
    pub const ALL: [Self; 11] = [
        Self::AcknowledgeBeforeSync,
        Self::HalfBatch,
        Self::SkipDamagedRecord,
        Self::IgnoreChecksum,
        Self::ExposeUnsynced,
        Self::LostRemove,
        Self::BackwardMiss,
        Self::MovingSnapshot,
        Self::ForgetTail,
        Self::UnsyncedName,
        Self::StaleUpdate,
    ];
}

/// Opens log stores.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogStoreOpener {
    /// The planted fault, if any.
    pub plant: Option<Plant>,
}

impl Opener for LogStoreOpener {
    fn open(&self, env: Arc<dyn Env>) -> Result<Box<dyn Store>> {
        let (file, log_bytes, state) = recover(&*env, self.plant).map_err(|error| Error::io(LOG, error))?;
        let inner = Inner {
            state: Arc::new(state),
            file,
            log_bytes,
            buffer: Vec::new(),
            removes: 0,
            poisoned: false,
        };
        Ok(Box::new(LogStore { plant: self.plant, inner: Rc::new(RefCell::new(inner)) }))
    }
}

/// Opens or creates the log; returns it with its valid length and content.
fn recover(env: &dyn Env, plant: Option<Plant>) -> io::Result<(Arc<dyn File>, u64, State)> {
    let exists =
        |error: io::Error| if error.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error) };
    env.create_dir(Path::new(DIRECTORY)).or_else(exists)?;
    env.sync_dir(Path::new("/"))?;
    let options = |mode| OpenOptions { mode, direct: false };
    let file = match env.open(Path::new(LOG), options(OpenMode::Write)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            env.open(Path::new(LOG), options(OpenMode::CreateNew))?
        }
        other => other?,
    };
    if plant != Some(Plant::UnsyncedName) {
        env.sync_dir(Path::new(DIRECTORY))?;
    }
    let mut bytes = vec![0; usize_of(file.len()?)];
    file.read_at(0, &mut bytes)?;
    let mut state = State::default();
    let records = replay(&bytes, plant, &mut state);
    let valid = records.next_multiple_of(SECTOR_BYTES);
    // Zero the remains of an invalid record, so that they are never taken for one later.
    file.write_at(u64_of(records), &vec![0; valid - records])?;
    let valid = u64_of(valid);
    if plant == Some(Plant::ExposeUnsynced) {
        return Ok((file, valid, state));
    }
    file.set_len(valid)?;
    file.sync()?;
    Ok((file, valid, state))
}

/// Applies the records; returns the end of the valid ones.
fn replay(bytes: &[u8], plant: Option<Plant>, state: &mut State) -> usize {
    let mut offset = 0;
    loop {
        let mut reader = Reader::new(&bytes[offset.min(bytes.len())..]);
        let record = (|| -> std::result::Result<_, Damage> {
            let length = reader.u64()?;
            let checksum = reader.u64()?;
            let payload = reader.take(usize_of(length))?;
            Ok((length, checksum == checksum64(payload, length), payload))
        })();
        match record {
            // Padding: the next write starts at the next sector.
            Ok((0, ..)) if !offset.is_multiple_of(SECTOR_BYTES) => {
                offset = offset.next_multiple_of(SECTOR_BYTES);
                continue;
            }
            Ok((1.., true, payload)) => apply_record(payload, state),
            Ok((1.., false, payload)) if plant == Some(Plant::IgnoreChecksum) => apply_record(payload, state),
            Ok((1.., false, _)) if plant == Some(Plant::SkipDamagedRecord) => {}
            _ => return offset,
        }
        offset = (bytes.len() - reader.rest().len()).next_multiple_of(HEADER_BYTES);
    }
}

fn apply_record(payload: &[u8], state: &mut State) {
    let mut reader = Reader::new(payload);
    while let Ok(delta) = decode_delta(&mut reader) {
        state.apply(&delta);
    }
}

fn encode_delta(out: &mut Vec<u8>, delta: &Delta) {
    match delta {
        Delta::Create(slot) => out.extend([0, *slot]),
        Delta::Drop(slot) => out.extend([1, *slot]),
        Delta::Write { keyspace, key, value } => {
            out.extend([2 + u8::from(value.is_some()), *keyspace]);
            codec::put_bytes(out, key);
            if let Some(value) = value {
                codec::put_bytes(out, value);
            }
        }
        Delta::Merge { keyspace, key, operand } => {
            out.extend([4, *keyspace]);
            codec::put_bytes(out, key);
            codec::put_bytes(out, operand);
        }
    }
}

fn decode_delta(reader: &mut Reader<'_>) -> std::result::Result<Delta, Damage> {
    let (kind, keyspace) = (reader.u8()?, reader.u8()?);
    Ok(match kind {
        0 => Delta::Create(keyspace),
        1 => Delta::Drop(keyspace),
        4 => {
            let key = reader.bytes(usize::MAX)?.into();
            Delta::Merge { keyspace, key, operand: reader.bytes(usize::MAX)?.into() }
        }
        _ => {
            let key = reader.bytes(usize::MAX)?.into();
            let value = if kind == 3 { Some(reader.bytes(usize::MAX)?.into()) } else { None };
            Delta::Write { keyspace, key, value }
        }
    })
}

struct LogStore {
    plant: Option<Plant>,
    inner: Rc<RefCell<Inner>>,
}

struct Inner {
    state: Arc<State>,
    file: Arc<dyn File>,
    log_bytes: u64,
    buffer: Vec<u8>,
    removes: u32,
    /// A write failed: the log content after `log_bytes` is unknown.
    poisoned: bool,
}

impl Inner {
    /// Logs deltas. An acknowledged write survives the process, so it is written immediately.
    fn log(&mut self, deltas: &[Delta]) -> Result<()> {
        self.buffer(deltas)?;
        self.write()?;
        self.apply(deltas);
        Ok(())
    }

    fn apply(&mut self, deltas: &[Delta]) {
        let state = Arc::make_mut(&mut self.state);
        deltas.iter().for_each(|delta| state.apply(delta));
    }

    fn buffer(&mut self, deltas: &[Delta]) -> Result<()> {
        if self.poisoned {
            return Err(Error::new(ErrorKind::Poisoned, "an earlier write failed"));
        }
        let start = self.buffer.len();
        self.buffer.extend([0; HEADER_BYTES]);
        deltas.iter().for_each(|delta| encode_delta(&mut self.buffer, delta));
        let payload = &self.buffer[start + HEADER_BYTES..];
        let length = u64_of(payload.len());
        let checksum = checksum64(payload, length);
        self.buffer[start..start + 8].copy_from_slice(&length.to_le_bytes());
        self.buffer[start + 8..start + HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
        self.buffer.resize(self.buffer.len().next_multiple_of(HEADER_BYTES), 0);
        Ok(())
    }

    fn write(&mut self) -> Result<()> {
        if self.poisoned {
            return Err(Error::new(ErrorKind::Poisoned, "an earlier write failed"));
        }
        self.poisoned = true;
        self.buffer.resize(self.buffer.len().next_multiple_of(SECTOR_BYTES), 0);
        self.file.write_at(self.log_bytes, &self.buffer).map_err(|error| Error::io(LOG, error))?;
        self.log_bytes += u64_of(self.buffer.len());
        self.buffer.clear();
        self.poisoned = false;
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.write()?;
        self.poisoned = true;
        self.file.sync().map_err(|error| Error::io(LOG, error))?;
        self.poisoned = false;
        Ok(())
    }
}

impl LogStore {
    fn write(&self, deltas: &[Delta], synced: bool) -> Result<()> {
        let mut inner = self.inner.borrow_mut();
        if self.plant == Some(Plant::HalfBatch) {
            // Each write becomes its own record, and all but the first wait for the next write.
            if let Some((first, rest)) = deltas.split_first() {
                inner.log(std::slice::from_ref(first))?;
                rest.iter().try_for_each(|delta| inner.buffer(std::slice::from_ref(delta)))?;
                inner.apply(rest);
            }
        } else if !deltas.is_empty() {
            inner.log(deltas)?;
        }
        if synced && self.plant != Some(Plant::AcknowledgeBeforeSync) { inner.sync() } else { Ok(()) }
    }

    fn put(&self, keyspace: Slot, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.write(&[Delta::Write { keyspace, key: key.into(), value: value.map(Into::into) }], false)
    }

    fn state(&self) -> Arc<State> {
        Arc::clone(&self.inner.borrow().state)
    }
}

fn owned(pairs: Vec<(&[u8], &[u8])>) -> Vec<Pair> {
    pairs.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

impl Store for LogStore {
    fn keyspaces(&self) -> Result<Vec<Slot>> {
        Ok(self.state().slots())
    }

    fn create(&mut self, keyspace: Slot) -> Result<()> {
        self.write(&[Delta::Create(keyspace)], true)
    }

    fn drop_keyspace(&mut self, keyspace: Slot) -> Result<bool> {
        let existed = self.state().has(keyspace);
        self.write(&[Delta::Drop(keyspace)], true)?;
        Ok(existed)
    }

    fn insert(&self, keyspace: Slot, key: &[u8], value: &[u8]) -> Result<()> {
        self.put(keyspace, key, Some(value))
    }

    fn remove(&self, keyspace: Slot, key: &[u8]) -> Result<()> {
        if self.plant == Some(Plant::LostRemove) {
            let mut inner = self.inner.borrow_mut();
            inner.removes += 1;
            if inner.removes.is_multiple_of(10) {
                return Ok(());
            }
        }
        self.put(keyspace, key, None)
    }

    fn merge(&self, keyspace: Slot, key: &[u8], operand: &[u8]) -> Result<()> {
        let delta = Delta::Merge { keyspace, key: key.into(), operand: operand.into() };
        self.write(&[delta], false)
    }

    fn commit(&self, writes: &[RawWrite], synced: bool) -> Result<()> {
        let delta = |write: &RawWrite| Delta::Write {
            keyspace: write.keyspace,
            key: write.key.as_slice().into(),
            value: write.value.as_deref().map(Into::into),
        };
        self.write(&writes.iter().map(delta).collect::<Vec<_>>(), synced)
    }

    fn get(&self, keyspace: Slot, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.state().get(keyspace, key).map(|value| value.to_vec()))
    }

    fn multi_get(&self, keyspace: Slot, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>> {
        keys.iter().map(|key| self.get(keyspace, key)).collect()
    }

    fn scan(&self, keyspace: Slot, scan: &RawScan) -> Result<Vec<Pair>> {
        let mut pairs = owned(self.state().scan(keyspace, scan));
        if self.plant == Some(Plant::BackwardMiss) && scan.walk == RawWalk::Backward && pairs.len() > 10 {
            pairs.pop();
        }
        Ok(pairs)
    }

    fn update(&self, keyspace: Slot, key: &[u8], change: UpdateFn<'_>) -> Result<Option<Vec<u8>>> {
        let old = self.get(keyspace, key)?;
        let stale = self.plant == Some(Plant::StaleUpdate) && key.len().is_multiple_of(3);
        let new = change(if stale { None } else { old.as_deref() });
        self.put(keyspace, key, new.as_deref())?;
        Ok(new)
    }

    fn compare_and_swap(
        &self,
        keyspace: Slot,
        key: &[u8],
        old: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<()> {
        if self.get(keyspace, key)?.as_deref() != old {
            return Err(Error::new(ErrorKind::Conflict, "the value differs from the expected one"));
        }
        self.put(keyspace, key, new)
    }

    fn snapshot(&self) -> Result<Box<dyn View>> {
        let moving = self.plant == Some(Plant::MovingSnapshot);
        Ok(Box::new(if moving {
            LogView::Moving(Rc::clone(&self.inner))
        } else {
            LogView::Fixed(self.state())
        }))
    }

    fn persist(&self) -> Result<()> {
        self.write(&[], true)
    }

    fn flush(&self) -> Result<()> {
        self.persist()
    }

    fn step(&self) -> Result<bool> {
        Ok(false)
    }

    fn check_invariants(&self) -> Result<()> {
        Ok(())
    }

    fn verify(&self) -> Result<()> {
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        if self.plant == Some(Plant::ForgetTail) { Ok(()) } else { self.inner.borrow_mut().sync() }
    }
}

/// A view of the content; a write while a fixed view exists copies the state.
enum LogView {
    Fixed(Arc<State>),
    Moving(Rc<RefCell<Inner>>),
}

impl LogView {
    fn state(&self) -> Arc<State> {
        match self {
            Self::Fixed(state) => Arc::clone(state),
            Self::Moving(inner) => Arc::clone(&inner.borrow().state),
        }
    }
}

impl View for LogView {
    fn get(&self, keyspace: Slot, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.state().get(keyspace, key).map(|value| value.to_vec()))
    }

    fn scan(&self, keyspace: Slot, scan: &RawScan) -> Result<Vec<Pair>> {
        Ok(owned(self.state().scan(keyspace, scan)))
    }
}
