//! An in-memory machine: a disk that can lose power at any instant, a clock that advances on demand, seeded
//! randomness. The same seed gives the same run.
//!
//! For each file and directory, the disk tracks the live state, the durable state and the unsynced operations
//! in between, by 512-byte sector. [`MemEnv::crash_image`] derives from these a possible state after a power
//! loss. The root directory `/` always exists; relative paths start there too.
//!
//! **Invariants**
//! - In stepped execution no outcome depends on real time, addresses or the order of a hash table.
//! - An anchored environment shares the machine: disk, clock, randomness.
//! - An image shares no state with its original disk; handles on the old disk stay usable.

mod crash;
mod dir_node;
mod disk;
mod file_node;
mod mapped_memory;
mod mem_file;
mod range_set;
#[cfg(test)]
mod tests;

use std::{
    io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use testudo_base::{
    num::usize_of,
    planted,
    sync::{Arc, RwLock},
};

pub use crash::{CrashPolicy, TornMode};
use dir_node::Inode;
use disk::{Disk, Place};
pub use disk::{SIMULATED_CRASH, is_simulated_crash};
pub use mapped_memory::MappedMemory;
use mapped_memory::MemMapping;
use mem_file::MemFile;

use crate::{
    DirEntry, DirLock, Env, Execution, File, LockHolder, MappedFile, OpenMode, OpenOptions, OwnerState,
    Process, SplitMix, Thread,
    contract::require_same_dir,
    random::mix,
    real::{read_monotonic, thread},
};

/// Free space reported by an unlimited disk (1 TiB).
const UNLIMITED_FREE_BYTES: u64 = 1 << 40;
/// Start of the simulated machine: a moment of 2026, in seconds since 1970.
const WALL_CLOCK_START: Duration = Duration::from_secs(1_767_225_600);
/// Advance of the clock per read, so that time passes in a run without sleeps. Threads of the seeded
/// scheduler wait without advancing the clock, so periodic work would never become due.
const TICK_NANOS: u64 = if cfg!(testudo_shuttle) { 20_000_000 } else { 1_000 };

/// An in-memory machine.
#[derive(Debug)]
pub struct MemEnv {
    machine: Arc<Machine>,
    execution: Execution,
    started: Instant,
    /// Nanoseconds since the start, if time is simulated.
    clock: Arc<AtomicU64>,
    /// Number of this boot; a power loss is followed by the next one.
    boot: u128,
    random: Arc<Mutex<SplitMix>>,
    /// Seeds of the randomness of this machine and its ancestors; all are distinct.
    seeds: Arc<[u64]>,
    anchor: Option<Arc<MemAnchor>>,
    /// The process that anchored it.
    process: Process,
}

/// A directory that is held open, and the path that refers to it.
#[derive(Debug)]
struct MemAnchor {
    machine: Arc<Machine>,
    directory: PathBuf,
    inode: Inode,
}

/// Resolves the start of `path`: the root, or a directory that is held open.
fn place<'p>(anchor: Option<&Arc<MemAnchor>>, path: &'p Path) -> Place<'p> {
    let within = |anchor: &Arc<MemAnchor>| {
        Some(Place { from: anchor.inode, path: path.strip_prefix(&anchor.directory).ok()? })
    };
    anchor.and_then(within).unwrap_or(Place::of(path))
}

impl Drop for MemAnchor {
    fn drop(&mut self) {
        self.machine.disk.write().close(self.inode);
    }
}

/// State shared by all handles. Lock: a leaf; nothing is called while it is held.
#[derive(Debug, Default)]
struct Machine {
    disk: RwLock<Disk>,
    /// The current process.
    present: Arc<AtomicU64>,
}

impl Machine {
    /// Runs a call that does not change the disk.
    fn inspect<T>(&self, look: impl FnOnce(&Disk) -> io::Result<T>) -> io::Result<T> {
        let disk = self.disk.read();
        disk.require_power()?;
        look(&disk)
    }

    /// Runs a call that changes or syncs something, counted whether or not it succeeds.
    fn change<T>(&self, act: impl FnOnce(&mut Disk) -> io::Result<T>) -> io::Result<T> {
        let mut disk = self.disk.write();
        disk.require_power()?;
        let result = act(&mut disk);
        disk.operation_count += 1;
        result
    }
}

impl MemEnv {
    /// A machine with an empty disk; background work is stepped.
    pub fn new(seed: u64) -> Arc<Self> {
        Self::with_disk(Disk::default(), vec![seed], Execution::Stepped, (0, 1))
    }

    /// A machine with an empty disk for concurrency tests: real threads and real time, no real disk. With
    /// `--cfg testudo_shuttle`, threads of the seeded scheduler and simulated time.
    pub fn with_threads(seed: u64, cores: usize) -> Arc<Self> {
        Self::with_disk(Disk::default(), vec![seed], Execution::Threads { cores }, (0, 1))
    }

    /// `seeds`: the last one is the machine's own. `clock`: its time and its boot.
    fn with_disk(disk: Disk, seeds: Vec<u64>, execution: Execution, (clock, boot): (u64, u128)) -> Arc<Self> {
        let seed = seeds.last().copied().unwrap_or_default();
        let machine = Arc::new(Machine { disk: RwLock::new(disk), present: Arc::default() });
        Arc::new(Self {
            process: Process::simulated(&machine.present),
            machine,
            execution,
            started: read_monotonic(),
            clock: Arc::new(AtomicU64::new(clock)),
            boot,
            random: Arc::new(Mutex::new(SplitMix::new(seed))),
            seeds: seeds.into(),
            anchor: None,
        })
    }

    /// Returns a machine with a disk that a power loss at this moment could leave. Equal seeds give equal
    /// images. In the image nothing is locked or open, and everything is durable.
    pub fn crash_image(&self, policy: &CrashPolicy, seed: u64) -> Arc<Self> {
        let mut disk = self.machine.disk.write();
        disk.store_mappings();
        let image = crash::crash_disk(&disk, *policy, seed);
        drop(disk);
        self.image(image, self.seeds_of_image(seed), self.boot.wrapping_add(1))
    }

    fn image(&self, disk: Disk, seeds: Vec<u64>, boot: u128) -> Arc<Self> {
        Self::with_disk(disk, seeds, self.execution, (self.clock.load(Ordering::Relaxed), boot))
    }

    /// Returns the seeds of an image. A crashed machine draws different numbers than before, even if both
    /// crashes used the same seed.
    fn seeds_of_image(&self, seed: u64) -> Vec<u64> {
        let mut own = mix(seed);
        while self.seeds.contains(&own) {
            own = mix(own.wrapping_add(1));
        }
        let mut seeds = self.seeds.to_vec();
        seeds.push(own);
        seeds
    }

    /// Returns a machine with the disk as left by the end of the process at this moment: every write is
    /// present, and unsynced writes remain unsynced.
    pub fn live_image(&self) -> Arc<Self> {
        let mut disk = self.machine.disk.write();
        disk.store_mappings();
        let image = disk.survivor(|_, node| node.clone());
        drop(disk);
        let seed = self.random.lock().clone().next_u64();
        self.image(image, self.seeds_of_image(seed), self.boot)
    }

    /// Switches to a child forked from this process, until [`MemEnv::return_to_parent`]: handles opened
    /// before belong to the parent. Only one level.
    pub fn fork(&self) {
        self.machine.present.fetch_add(1, Ordering::Relaxed);
    }

    /// Switches back to the process that called [`MemEnv::fork`].
    pub fn return_to_parent(&self) {
        self.machine.present.fetch_sub(1, Ordering::Relaxed);
    }

    /// Number of calls so far that changed or synced something, including failed ones: creating opens,
    /// writes, syncs, length changes, reservations, holes, and all name operations except listing.
    pub fn operation_count(&self) -> u64 {
        self.machine.disk.read().operation_count
    }

    /// Allows `count` more such calls, then turns the power off: every further call, including reads, fails
    /// with [`SIMULATED_CRASH`], and the disk is frozen for [`MemEnv::crash_image`].
    pub fn crash_after(&self, count: u64) {
        let mut disk = self.machine.disk.write();
        disk.crash_at = Some(disk.operation_count.saturating_add(count));
    }

    /// Whether the power is off.
    pub fn is_crashed(&self) -> bool {
        self.machine.disk.read().require_power().is_err()
    }

    /// Sets a space limit: writes and reservations that would occupy more than `bytes` in total fail with
    /// `StorageFull` and change nothing; `None` lifts the limit.
    pub fn space_limit(&self, bytes: Option<u64>) {
        self.machine.disk.write().space_limit = bytes;
    }

    /// Bytes occupied by all files.
    pub fn used_bytes(&self) -> u64 {
        self.machine.disk.read().used_bytes()
    }

    /// Test access: flips the bits of `xor_mask` in one byte of a file, on the medium and in the cache.
    pub fn corrupt(&self, path: impl AsRef<Path>, offset: u64, xor_mask: u8) -> io::Result<()> {
        let mut disk = self.machine.disk.write();
        let inode = disk.resolve_file(Place::of(path.as_ref()))?;
        let file = disk.file_mut(inode)?;
        if offset >= file.live_length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        file.corrupt(offset, xor_mask);
        Ok(())
    }

    /// Test access: the whole contents of a file.
    pub fn file_bytes(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        let mut disk = self.machine.disk.write();
        disk.store_mappings();
        let file = disk.file(disk.resolve_file(Place::of(path.as_ref()))?)?;
        let mut bytes = vec![0; usize_of(file.live_length)];
        file.read(0, &mut bytes);
        Ok(bytes)
    }

    /// Test access: truncates or extends a file to `length` bytes, durably.
    pub fn truncate(&self, path: impl AsRef<Path>, length: u64) -> io::Result<()> {
        let mut disk = self.machine.disk.write();
        let inode = disk.resolve_file(Place::of(path.as_ref()))?;
        let file = disk.file_mut(inode)?;
        file.set_len(length);
        file.sync();
        Ok(())
    }

    /// Test access: sets the contents of a file, created if missing, durably.
    pub fn replace(&self, path: impl AsRef<Path>, bytes: &[u8]) -> io::Result<()> {
        let path = Place::of(path.as_ref());
        let mut disk = self.machine.disk.write();
        let inode = if disk.exists(path) { disk.resolve_file(path)? } else { disk.create_durably(path)? };
        let file = disk.file_mut(inode)?;
        file.set_len(0);
        file.write(0, bytes);
        file.sync();
        Ok(())
    }

    /// Test access: the effect of a failed sync of the file, apart from the error. An arbitrary part of the
    /// unsynced changes, by policy and seed, becomes durable. No later sync writes the rest, because the
    /// kernel considers it clean. Reads still see it, unless `evicted`.
    pub fn fail_sync(
        &self,
        path: impl AsRef<Path>,
        policy: &CrashPolicy,
        evicted: bool,
        seed: u64,
    ) -> io::Result<()> {
        let mut disk = self.machine.disk.write();
        let inode = disk.resolve_file(Place::of(path.as_ref()))?;
        crash::fail_sync(disk.file_mut(inode)?, *policy, evicted, seed);
        Ok(())
    }

    /// Test access: writes these bytes at an offset of a file, durably.
    pub fn overwrite(&self, path: impl AsRef<Path>, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut disk = self.machine.disk.write();
        let inode = disk.resolve_file(Place::of(path.as_ref()))?;
        let file = disk.file_mut(inode)?;
        file.write(offset, bytes);
        file.sync();
        Ok(())
    }

    /// Test access: absolute paths of all files in all directories, sorted.
    pub fn all_files(&self) -> Vec<PathBuf> {
        self.machine.disk.read().all_files()
    }

    /// Returns this machine with `directory` held open, as [`Env::anchor`] describes.
    pub fn anchored(&self, directory: &Path) -> io::Result<Arc<Self>> {
        let inode = {
            let mut disk = self.machine.disk.write();
            disk.require_power()?;
            disk.hold_dir(self.place(directory))?
        };
        let machine = Arc::clone(&self.machine);
        let anchor = MemAnchor { machine, directory: directory.to_owned(), inode };
        Ok(Arc::new(Self {
            machine: Arc::clone(&self.machine),
            execution: self.execution,
            started: self.started,
            clock: Arc::clone(&self.clock),
            boot: self.boot,
            random: Arc::clone(&self.random),
            seeds: Arc::clone(&self.seeds),
            anchor: Some(Arc::new(anchor)),
            process: Process::simulated(&self.machine.present),
        }))
    }

    fn place<'p>(&self, path: &'p Path) -> Place<'p> {
        place(self.anchor.as_ref(), path)
    }

    fn held_lock(&self, inode: Inode, path: &Path, is_exclusive: bool) -> Box<dyn DirLock> {
        let (machine, anchor) = (Arc::clone(&self.machine), self.anchor.clone());
        let process = Process::simulated(&machine.present);
        Box::new(MemLock { machine, inode, anchor, path: path.into(), is_exclusive, process })
    }

    fn is_stepped(&self) -> bool {
        self.execution == Execution::Stepped
    }

    /// Real threads use real time, all others that of the in-memory machine.
    fn is_simulated_time(&self) -> bool {
        self.is_stepped() || cfg!(testudo_shuttle)
    }

    fn advance_clock(&self, nanos: u64) -> Duration {
        let before = self.clock.fetch_add(nanos, Ordering::Relaxed);
        Duration::from_nanos(before.saturating_add(nanos))
    }
}

impl Env for MemEnv {
    fn anchor(&self, directory: &Path) -> io::Result<Arc<dyn Env>> {
        Ok(self.anchored(directory)?)
    }

    fn open(&self, path: &Path, options: OpenOptions) -> io::Result<Arc<dyn File>> {
        let place = self.place(path);
        let inode = if options.mode == OpenMode::CreateNew {
            self.machine.change(|disk| disk.open(place, options.mode))?
        } else {
            let mut disk = self.machine.disk.write();
            disk.require_power()?;
            disk.open(place, options.mode)?
        };
        Ok(Arc::new(MemFile::new(Arc::clone(&self.machine), inode, options)))
    }

    fn temporary_file(&self) -> io::Result<Arc<dyn File>> {
        let inode = self.machine.change(Disk::open_unnamed)?;
        let options = OpenOptions { mode: OpenMode::CreateNew, direct: true };
        Ok(Arc::new(MemFile::new(Arc::clone(&self.machine), inode, options)))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.machine.change(|disk| disk.create_dir(self.place(path)))
    }

    fn list_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.machine.inspect(|disk| disk.list_dir(self.place(path)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        require_same_dir(from, to)?;
        self.machine.change(|disk| disk.rename(self.place(from), self.place(to)))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.machine.change(|disk| disk.remove_file(self.place(path)))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.machine.change(|disk| match &self.anchor {
            Some(anchor) if anchor.directory == path => disk.remove_held_dir(anchor.inode, path),
            _ => disk.remove_dir(self.place(path)),
        })
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.machine.change(|disk| disk.sync_dir(self.place(path)))
    }

    fn lock(&self, path: &Path, create: bool, exclusive: bool) -> io::Result<Box<dyn DirLock>> {
        let place = self.place(path);
        if create && !self.machine.inspect(|disk| Ok(disk.exists(place)))? {
            let options = OpenOptions { mode: OpenMode::CreateNew, direct: false };
            match self.open(path, options) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        let mut disk = self.machine.disk.write();
        disk.require_power()?;
        let inode = disk.lock(place, exclusive)?;
        Ok(self.held_lock(inode, path, exclusive))
    }

    fn process(&self) -> Process {
        self.process.clone()
    }

    fn lock_dir(&self, directory: &Path, exclusive: bool) -> io::Result<Box<dyn DirLock>> {
        let mut disk = self.machine.disk.write();
        disk.require_power()?;
        let inode = disk.lock_dir(self.place(directory), exclusive)?;
        Ok(self.held_lock(inode, directory, exclusive))
    }

    fn owner_state(&self, _path: &Path, _process: u32) -> OwnerState {
        if self.machine.present.load(Ordering::Relaxed) == 0 {
            OwnerState::Here
        } else {
            OwnerState::Elsewhere
        }
    }

    fn lock_holder(&self, path: &Path) -> io::Result<LockHolder> {
        self.machine.inspect(|disk| disk.lock_holder(self.place(path)))
    }

    fn monotonic(&self) -> Duration {
        if self.is_simulated_time() {
            self.advance_clock(TICK_NANOS)
        } else {
            read_monotonic().duration_since(self.started)
        }
    }

    fn wall_clock(&self) -> Duration {
        WALL_CLOCK_START + self.monotonic()
    }

    fn random_u64(&self) -> u64 {
        self.random.lock().next_u64()
    }

    fn execution(&self) -> Execution {
        self.execution
    }

    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<Box<dyn Thread>> {
        if self.is_stepped() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "background work is stepped here"));
        }
        thread::spawn(name, body)
    }

    fn sleep(&self, duration: Duration) {
        if self.is_simulated_time() {
            self.advance_clock(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 2));
        }
        if !self.is_stepped() {
            thread::sleep(duration);
        }
    }

    fn create_mapped(&self, path: &Path, bytes: usize) -> io::Result<Arc<dyn MappedFile>> {
        let memory = Arc::new(MappedMemory::zeroed(bytes));
        let inode = self.machine.change(|disk| disk.create_mapped(self.place(path), &memory))?;
        Ok(std::sync::Arc::new(MemMapping::new(Arc::clone(&self.machine), inode, memory)))
    }

    fn boot_id(&self) -> Option<u128> {
        Some(self.boot)
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.machine.inspect(|disk| {
            if !disk.exists(self.place(path)) {
                return Err(io::ErrorKind::NotFound.into());
            }
            Ok(disk.space_limit.map_or(UNLIMITED_FREE_BYTES, |limit| limit.saturating_sub(disk.used_bytes())))
        })
    }
}

/// A held lock; the file exists while it is held.
#[derive(Debug)]
struct MemLock {
    machine: Arc<Machine>,
    inode: Inode,
    anchor: Option<Arc<MemAnchor>>,
    path: Box<Path>,
    is_exclusive: bool,
    /// The process that took it.
    process: Process,
}

impl DirLock for MemLock {
    fn abandon(&self) {}

    fn is_in_place(&self) -> io::Result<bool> {
        let place = place(self.anchor.as_ref(), &self.path);
        self.machine.inspect(|disk| Ok(disk.is_at(place, self.inode)))
    }
}

impl Drop for MemLock {
    fn drop(&mut self) {
        if self.process.is_current() || planted!("child-unlocks") {
            self.machine.disk.write().unlock(self.inode, self.is_exclusive);
        }
    }
}
