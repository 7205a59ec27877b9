//! The only interface to the operating system: files, locks, clock, randomness, threads.
//!
//! All higher layers use an [`Env`]. So the same engine runs on a real disk ([`RealEnv`]), on an in-memory
//! disk that can crash at any instant ([`MemEnv`]) and on one with injected faults ([`FaultyEnv`]).
//!
//! **Invariants**
//! - No other crate of the store uses `std::fs`, a clock, a thread or an entropy source directly.
//! - A successful [`File::sync`] makes every earlier write, and the length, of that file durable; a
//!   successful [`Env::sync_dir`] does the same for names in a directory. Nothing else does.
//! - Handles opened by a process work only in that process: a forked child gets errors.
//! - After a failed sync the state of the unsynced writes is unknown, and a later sync proves nothing.

mod buffer;
mod contract;
mod file;
mod mapped_file;
mod memory;
mod pending_read;
mod pending_write;
mod process;
mod random;
mod real;
mod wrappers;

pub use buffer::AlignedBuffer;
pub use contract::{
    DirEntry, DirLock, EntryType, Env, Execution, LockHolder, OwnerState, Thread, ThreadPanicked,
};
pub use file::{File, OpenMode, OpenOptions, ReadRequest, WriteRequest};
pub use mapped_file::MappedFile;
pub use memory::{CrashPolicy, MappedMemory, MemEnv, SIMULATED_CRASH, TornMode, is_simulated_crash};
pub use pending_read::PendingRead;
pub use pending_write::PendingWrite;
pub use process::Process;
pub use random::SplitMix;
pub use real::{RealEnv, RealEnvBuilder};
pub use wrappers::combining::{CombiningFile, collected_bytes};
pub use wrappers::faulty::{FaultError, FaultPlan, FaultyEnv, IoClass};
pub use wrappers::lock_check::LockCheckedEnv;
pub use wrappers::overlay::OverlayFile;
pub use wrappers::reserve::Reserve;
pub use wrappers::sparse::{read_sparse, read_sparse_leniently};
pub use wrappers::watched_reads::WatchedReads;
