//! An environment whose writes and syncs of one file, or removals of files, wait at a gate, take time, or
//! panic.

use std::{io, path::Path, sync::Arc, thread, time::Duration};

use testudo_base::sync::{Condvar, Mutex};
use testudo_env::{
    AlignedBuffer, Env, Execution, File, MappedFile, OpenOptions, PendingRead, ReadRequest, forward,
};

/// Calls that pass the gate.
#[derive(Clone, Copy, Debug)]
pub(super) enum Calls {
    /// Writes and syncs of the threads that run jobs, and of those that help them.
    OfJobs,
    /// Writes and syncs of all threads.
    All,
    /// Removals of files by job threads.
    RemovalsOfJobs,
}

#[derive(Debug, Default)]
struct State {
    is_shut: bool,
    /// Calls to panic from now on.
    panics: usize,
    panicked: usize,
    /// Calls that wait.
    waiting: usize,
    /// Time that each read, write and sync takes.
    call_time: Duration,
}

/// Controls the calls on files with a name that begins like this.
#[derive(Debug)]
pub(super) struct Gate {
    file: &'static str,
    calls: Calls,
    state: Mutex<State>,
    changed: Condvar,
}

impl Gate {
    pub(super) fn new(file: &'static str, calls: Calls) -> Arc<Self> {
        Arc::new(Self { file, calls, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Keeps calls waiting until [`Gate::open`].
    pub(super) fn shut(&self) {
        self.state.lock().is_shut = true;
    }

    /// Lets all calls pass; the next `panics` of them panic.
    pub(super) fn open(&self, panics: usize) {
        let mut state = self.state.lock();
        (state.is_shut, state.panics) = (false, panics);
        self.changed.notify_all();
    }

    /// Number of calls that have panicked.
    pub(super) fn panicked(&self) -> usize {
        self.state.lock().panicked
    }

    /// Number of calls that wait.
    pub(super) fn waiting(&self) -> usize {
        self.state.lock().waiting
    }

    /// Makes each call on any file take this much time.
    pub(super) fn set_call_time(&self, time: Duration) {
        self.state.lock().call_time = time;
    }

    fn call_time(&self) -> Duration {
        self.state.lock().call_time
    }

    fn pass_write(&self, path: &Path) {
        let passes = match self.calls {
            Calls::OfJobs => matches!(thread::current().name(), Some("testudo-jobs" | "testudo-work")),
            Calls::All => true,
            Calls::RemovalsOfJobs => false,
        };
        if passes {
            self.pass(path);
        }
    }

    fn pass_removal(&self, path: &Path) {
        if matches!(self.calls, Calls::RemovalsOfJobs) && thread::current().name() == Some("testudo-jobs") {
            self.pass(path);
        }
    }

    fn pass(&self, path: &Path) {
        let is_of_file = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(self.file));
        if !is_of_file {
            return;
        }
        let mut state = self.state.lock();
        state.waiting += 1;
        while state.is_shut {
            self.changed.wait(&mut state);
        }
        state.waiting -= 1;
        if state.panics > 0 {
            state.panics -= 1;
            state.panicked += 1;
            drop(state);
            panic!("a planned panic");
        }
    }
}

/// Wraps another environment.
#[derive(Debug)]
pub(super) struct GatedEnv {
    inner: Arc<dyn Env>,
    gate: Arc<Gate>,
    execution: Execution,
}

impl GatedEnv {
    pub(super) fn new(inner: Arc<dyn Env>, gate: &Arc<Gate>, execution: Execution) -> Arc<Self> {
        Arc::new(Self { inner, gate: Arc::clone(gate), execution })
    }
}

impl Env for GatedEnv {
    fn anchor(&self, directory: &Path) -> io::Result<Arc<dyn Env>> {
        Ok(Self::new(self.inner.anchor(directory)?, &self.gate, self.execution))
    }

    fn execution(&self) -> Execution {
        self.execution
    }

    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let inner = self.inner.open(path, options)?;
        let (env, gate) = (Arc::clone(&self.inner), Arc::clone(&self.gate));
        Ok(Arc::new(GatedFile { inner, env, gate, path: path.into() }))
    }

    fn create_mapped(&self, path: &Path, bytes: usize) -> io::Result<Arc<dyn MappedFile>> {
        self.inner.create_mapped(path, bytes)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.gate.pass_removal(path);
        self.inner.remove_file(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.inner.create_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    forward!(
        inner: temporary_file, list_dir, remove_dir, sync_dir, process, lock, lock_dir,
        lock_holder, owner_state, monotonic, wall_clock, random_u64, spawn, sleep, boot_id, free_bytes
    );
}

#[derive(Debug)]
struct GatedFile {
    inner: Arc<dyn File>,
    env: Arc<dyn Env>,
    gate: Arc<Gate>,
    path: Box<Path>,
}

impl GatedFile {
    fn take_time(&self) {
        self.env.sleep(self.gate.call_time());
    }
}

impl File for GatedFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.take_time();
        self.inner.read_at(offset, buffer)
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) {
        self.take_time();
        self.inner.read_batch(requests);
    }

    fn start_read(&self, offset: u64, buffer: AlignedBuffer) -> Box<dyn PendingRead> {
        self.take_time();
        self.inner.start_read(offset, buffer)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.gate.pass_write(&self.path);
        self.take_time();
        self.inner.write_at(offset, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.gate.pass_write(&self.path);
        self.take_time();
        self.inner.sync()
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.inner.set_len(length)
    }

    fn allocate(&self, offset: u64, length: u64) -> io::Result<()> {
        self.inner.allocate(offset, length)
    }

    fn punch_hole(&self, offset: u64, length: u64) -> io::Result<()> {
        self.inner.punch_hole(offset, length)
    }

    forward!(inner: len, next_data, allocated_bytes);
}
