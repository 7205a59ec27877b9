//! The disk of a simulation: an in-memory machine whose calls are digested, delayed and made to fail.
//!
//! **Invariants**
//! - The digest covers every call with its arguments and its answer, in order.
//! - A countdown determines when a fault strikes; nothing here uses a clock or randomness of the real
//!   machine.

use std::{
    collections::BTreeMap,
    io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use testudo_base::{PAGE_BYTES, PAGE_SIZE, checksum::checksum64, num::u64_of};
use testudo_env::{
    CrashPolicy, DirEntry, DirLock, Env, File, IoClass, LockHolder, MappedFile, MemEnv, OpenMode,
    OpenOptions, ReadRequest,
};
use testudo_testkit::Overlay;

use super::fault::{Activity, Armed, Fault, phase};

/// Duration of a call on a slow disk.
const SLOW_CALL: Duration = Duration::from_millis(20);
const EIO: i32 = 5;
const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;

/// State shared by all machines of one run.
#[derive(Clone, Debug)]
pub(super) struct Disk(Arc<Mutex<State>>);

#[derive(Debug)]
pub(super) struct State {
    pub(super) activity: Activity,
    pub(super) digest: u64,
    pub(super) armed: Option<Armed>,
    pub(super) is_slow: bool,
    /// Error of the wall clock in seconds.
    pub(super) clock_error: i64,
    /// Faults that struck, by kind and phase.
    pub(super) strikes: BTreeMap<String, u64>,
    /// The last strikes, for the message of a failure.
    pub(super) trace: Vec<String>,
    has_store: bool,
}

impl Disk {
    pub(super) fn new(has_store: bool) -> Self {
        Self(Arc::new(Mutex::new(State {
            activity: Activity::Open,
            digest: 0,
            armed: None,
            is_slow: false,
            clock_error: 0,
            strikes: BTreeMap::new(),
            trace: Vec::new(),
            has_store,
        })))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nothing panics under this lock")
    }
}

impl State {
    fn note(&mut self, class: IoClass, path: &Path, numbers: &[u64], outcome: u64) {
        let mut bytes = vec![class as u8];
        bytes.extend_from_slice(path.as_os_str().as_encoded_bytes());
        numbers.iter().chain([&outcome]).for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        self.digest = checksum64(&bytes, self.digest);
    }

    /// Returns the fault that strikes this call, if any. Faulty writes are requested once, before their call.
    fn strike(&mut self, class: IoClass, path: &Path) -> Option<Fault> {
        self.has_store |= self.activity != Activity::Open;
        let armed = self.armed.as_mut().filter(|armed| armed.fits(class, path))?;
        if armed.countdown > 0 {
            armed.countdown -= 1;
            return None;
        }
        let fault = armed.fault;
        if !armed.lasting {
            self.armed = None;
        }
        let phase = phase(self.activity, class, path, self.has_store);
        self.record(fault.name(), phase);
        self.trace.push(format!("{} strikes {class:?} of {} in {phase}", fault.name(), path.display()));
        Some(fault)
    }

    /// Counts a fault.
    pub(super) fn record(&mut self, fault: &str, phase: &str) {
        *self.strikes.entry(format!("{fault} × {phase}")).or_default() += 1;
    }
}

impl Overlay for Disk {
    fn over(&self, machine: &Arc<MemEnv>) -> Arc<dyn Env> {
        Arc::new(SimEnv { machine: Arc::clone(machine), disk: self.clone() })
    }

    fn heal(&self) {
        let mut state = self.state();
        state.armed = None;
        state.is_slow = false;
    }
}

/// A machine accessed through the disk.
#[derive(Debug)]
struct SimEnv {
    machine: Arc<MemEnv>,
    disk: Disk,
}

/// One call in progress.
#[derive(Clone, Copy)]
struct Call<'a> {
    class: IoClass,
    path: &'a Path,
    offset: u64,
    length: u64,
}

impl<'a> Call<'a> {
    fn on(class: IoClass, path: &'a Path) -> Self {
        Self { class, path, offset: 0, length: 0 }
    }
}

fn error(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

impl SimEnv {
    /// Makes a call: delays it, fails it if a fault strikes, and records it with the hash of its answer.
    fn call<T>(
        &self,
        call: Call<'_>,
        make: impl FnOnce() -> io::Result<T>,
        hash: impl FnOnce(&T) -> u64,
    ) -> io::Result<T> {
        let (fault, is_slow) = {
            let mut state = self.disk.state();
            let asked_before = state.armed.is_some_and(|armed| armed.fault.changes_writes());
            let fault = if asked_before { None } else { state.strike(call.class, call.path) };
            (fault, state.is_slow)
        };
        if is_slow {
            self.machine.sleep(SLOW_CALL);
        }
        let result = match fault {
            None | Some(Fault::HalfWrite | Fault::LostWrite | Fault::Misdirected) => make(),
            Some(Fault::Device(_)) => Err(error(EIO)),
            Some(Fault::NoSpace(_)) => Err(error(ENOSPC)),
            Some(Fault::NoDescriptor) => Err(error(EMFILE)),
            Some(Fault::LostSync { evicted }) => self.fail_sync(call.path, evicted),
        };
        let outcome = match &result {
            Ok(answer) => hash(answer),
            Err(error) => {
                u64::MAX - error.raw_os_error().map_or(0, |number| u64::from(number.unsigned_abs()))
            }
        };
        self.disk.state().note(call.class, call.path, &[call.offset, call.length], outcome);
        result
    }

    fn fail_sync<T>(&self, path: &Path, evicted: bool) -> io::Result<T> {
        let seed = self.disk.state().digest;
        // A file without a name has no data worth losing.
        let _ = self.machine.fail_sync(path, &CrashPolicy::random(seed), evicted, seed);
        Err(error(EIO))
    }

    fn plain<T>(
        &self,
        class: IoClass,
        path: &Path,
        make: impl FnOnce(&MemEnv) -> io::Result<T>,
    ) -> io::Result<T> {
        self.call(Call::on(class, path), || make(&self.machine), |_| 0)
    }
}

impl Env for SimEnv {
    fn anchor(&self, directory: &Path) -> io::Result<Arc<dyn Env>> {
        let machine = self.plain(IoClass::Open, directory, |machine| machine.anchored(directory))?;
        Ok(Arc::new(Self { machine, disk: self.disk.clone() }))
    }

    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let class = if options.mode == OpenMode::CreateNew { IoClass::Create } else { IoClass::Open };
        let inner = self.plain(class, path, |machine| machine.open(path, options))?;
        let env = Self { machine: Arc::clone(&self.machine), disk: self.disk.clone() };
        Ok(Arc::new(SimFile { inner, env, path: path.into() }))
    }

    fn temporary_file(&self) -> io::Result<Arc<dyn File>> {
        let path = Path::new("a temporary file");
        let inner = self.plain(IoClass::Create, path, |machine| machine.temporary_file())?;
        let env = Self { machine: Arc::clone(&self.machine), disk: self.disk.clone() };
        Ok(Arc::new(SimFile { inner, env, path: path.into() }))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.plain(IoClass::Create, path, |machine| machine.create_dir(path))
    }

    fn create_mapped(&self, path: &Path, bytes: usize) -> io::Result<Arc<dyn MappedFile>> {
        self.plain(IoClass::Create, path, |machine| machine.create_mapped(path, bytes))
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let hash = |entries: &Vec<DirEntry>| checksum64(format!("{entries:?}").as_bytes(), 0);
        self.call(Call::on(IoClass::List, path), || self.machine.list_dir(path), hash)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.plain(IoClass::Rename, from, |machine| machine.rename(from, to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.plain(IoClass::Remove, path, |machine| machine.remove_file(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.plain(IoClass::Remove, path, |machine| machine.remove_dir(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.plain(IoClass::SyncDir, path, |machine| machine.sync_dir(path))
    }

    fn lock(&self, path: &Path, create: bool, exclusive: bool) -> io::Result<Box<dyn DirLock>> {
        self.plain(IoClass::Lock, path, |machine| machine.lock(path, create, exclusive))
    }

    fn lock_dir(&self, directory: &Path, exclusive: bool) -> io::Result<Box<dyn DirLock>> {
        self.plain(IoClass::Lock, directory, |machine| machine.lock_dir(directory, exclusive))
    }

    fn lock_holder(&self, path: &Path) -> io::Result<LockHolder> {
        self.plain(IoClass::Metadata, path, |machine| machine.lock_holder(path))
    }

    fn wall_clock(&self) -> Duration {
        let seconds = self.disk.state().clock_error;
        let error = Duration::from_secs(seconds.unsigned_abs());
        let now = self.machine.wall_clock();
        if seconds < 0 { now.saturating_sub(error) } else { now.saturating_add(error) }
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.call(Call::on(IoClass::Metadata, path), || self.machine.free_bytes(path), |bytes| *bytes)
    }

    testudo_env::forward!(
        machine: process, owner_state, monotonic, random_u64, execution, spawn, sleep, boot_id
    );
}

#[derive(Debug)]
struct SimFile {
    inner: Arc<dyn File>,
    env: SimEnv,
    path: Box<Path>,
}

impl SimFile {
    fn call(&self, class: IoClass, offset: u64, length: u64) -> Call<'_> {
        Call { class, path: &self.path, offset, length }
    }

    /// Target of a misdirected write: the page before, or after.
    fn elsewhere(offset: u64) -> u64 {
        if offset >= PAGE_BYTES { offset - PAGE_BYTES } else { offset + PAGE_BYTES }
    }
}

impl File for SimFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let call = self.call(IoClass::Read, offset, u64_of(buffer.len()));
        let read = || {
            self.inner.read_at(offset, buffer)?;
            Ok(checksum64(buffer, 0))
        };
        self.env.call(call, read, |hash| *hash).map(drop)
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) {
        for request in requests {
            request.result = self.read_at(request.offset, request.buffer);
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let call = self.call(IoClass::Write, offset, u64_of(bytes.len()));
        let fault = {
            let mut state = self.env.disk.state();
            if state.armed.is_some_and(|armed| armed.fault.changes_writes()) {
                state.strike(IoClass::Write, &self.path)
            } else {
                None
            }
        };
        let write = || match fault {
            Some(Fault::HalfWrite) => {
                let half = bytes.len() / 2 / PAGE_SIZE * PAGE_SIZE;
                self.inner.write_at(offset, &bytes[..half])?;
                Err(error(EIO))
            }
            Some(Fault::LostWrite) => Ok(()),
            Some(Fault::Misdirected) => self.inner.write_at(Self::elsewhere(offset), bytes),
            _ => self.inner.write_at(offset, bytes),
        };
        self.env.call(call, write, |()| checksum64(bytes, 0))
    }

    fn sync(&self) -> io::Result<()> {
        self.env.call(self.call(IoClass::Sync, 0, 0), || self.inner.sync(), |()| 0)
    }

    fn len(&self) -> io::Result<u64> {
        self.env.call(self.call(IoClass::Metadata, 0, 0), || self.inner.len(), |length| *length)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.env.call(self.call(IoClass::SetLen, length, 0), || self.inner.set_len(length), |()| 0)
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        let call = self.call(IoClass::Allocate, offset, length);
        self.env.call(call, || self.inner.allocate(offset, length), |()| 0)
    }

    fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()> {
        let call = self.call(IoClass::PunchHole, offset, length);
        self.env.call(call, || self.inner.punch_hole(offset, length), |()| 0)
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        let call = self.call(IoClass::Metadata, 1, 0);
        self.env.call(call, || self.inner.allocated_bytes(), |bytes| *bytes)
    }

    testudo_env::forward!(inner: next_data);
}
