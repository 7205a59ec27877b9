//! One step of a script: every operation that a test performs on a store, including power losses.
//!
//! **Invariants**
//! - Ops are plain data; the same script gives the same run.
//! - An op that does not apply (a missing keyspace, an empty snapshot slot) does nothing, so any part of a
//!   script is a valid script.

use std::ops::Bound;

use testudo_env::CrashPolicy;

use crate::{Key, Value};

/// Number of a keyspace; its name is `ks` and the number.
pub type Slot = u8;

/// One write of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The keyspace.
    pub keyspace: Slot,
    /// The key.
    pub key: Key,
    /// The new value; `None` removes.
    pub value: Option<Value>,
}

/// Which keys a scan covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Span {
    /// All.
    All,
    /// Keys with this prefix.
    Prefix(Key),
    /// Keys between the bounds; an inverted range is empty.
    Range(Bound<Key>, Bound<Key>),
}

/// How a scan walks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Walk {
    /// Ascending.
    Forward,
    /// Descending.
    Backward,
    /// Alternately one from the front and one from the back.
    Zigzag,
    /// One from the front, then a seek to the key, then ascending.
    Seek(Key),
    /// Moves of both ends and seeks, each done once.
    Moves(Vec<Move>),
}

/// A part of a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    /// This many entries from the front.
    Front(u32),
    /// This many entries from the back.
    Back(u32),
    /// A seek.
    Seek(Key),
}

/// A scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Keys covered.
    pub span: Span,
    /// Order of the walk.
    pub walk: Walk,
    /// Maximum number of entries.
    pub limit: u32,
}

/// Change that an `update` makes to the old value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A value that does not depend on the old one.
    Set(Value),
    /// A value that depends on the old one, see [`Value::after`].
    Follow(Value),
    /// Removes the key.
    Remove,
}

/// A power loss and the course of recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// Data that survives.
    pub policy: CrashPolicy,
    /// Selects one of the crash images that the policy allows.
    pub seed: u64,
    /// Number of I/O operations after which power fails again: in the first recovery, in the second and so
    /// on.
    pub nested: Vec<u64>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "field names are the documentation: a keyspace, a key, a value, a slot")]
pub enum Op {
    /// Creates a keyspace, or opens it again.
    Create { keyspace: Slot },
    /// Drops a keyspace.
    Drop { keyspace: Slot },
    /// Moves a keyspace to another tree, chosen by `choice`.
    SetTree { keyspace: Slot, choice: u8 },
    /// Writes one key.
    Insert { keyspace: Slot, key: Key, value: Value },
    /// Removes one key.
    Remove { keyspace: Slot, key: Key },
    /// Changes one key by an operand, without reading it.
    Merge { keyspace: Slot, key: Key, operand: Value },
    /// Writes several keys atomically.
    Batch { writes: Vec<Write>, synced: bool },
    /// Reads one key.
    Get { keyspace: Slot, key: Key },
    /// Reads several keys.
    MultiGet { keyspace: Slot, keys: Vec<Key> },
    /// Reads keys in order.
    Scan { keyspace: Slot, scan: Scan },
    /// Reads and writes one key atomically.
    Update { keyspace: Slot, key: Key, change: Change },
    /// Writes one key if its value is as expected; `right` says whether the expected value is correct.
    Swap { keyspace: Slot, key: Key, right: bool, value: Option<Value> },
    /// Takes a snapshot into a slot, dropping the previous one.
    Snapshot { slot: u8 },
    /// Reads one key of a snapshot.
    SnapshotGet { slot: u8, keyspace: Slot, key: Key },
    /// Reads keys of a snapshot in order.
    SnapshotScan { slot: u8, keyspace: Slot, scan: Scan },
    /// Compares a whole snapshot with the content at the time it was taken.
    SnapshotCheck { slot: u8 },
    /// Drops a snapshot.
    SnapshotDrop { slot: u8 },
    /// Makes every earlier write durable.
    Persist,
    /// Flushes the write buffers to the trees, durably.
    Flush,
    /// Compacts a range of a keyspace completely.
    CompactRange { keyspace: Slot, span: Span },
    /// Runs this many background jobs.
    Step { count: u32 },
    /// Closes and reopens.
    Reopen,
    /// Ends the process without closing; written but unsynced data stays in the machine's page cache.
    Kill,
    /// Loses power between two calls.
    Crash(Crash),
    /// Loses power after this many further I/O operations.
    Arm { after: u64, crash: Crash },
    /// Compares all content in both directions and verifies the files.
    Verify,
}

impl Op {
    /// Whether the op can change what reads return.
    pub fn is_write(&self) -> bool {
        matches!(
            self,
            Self::Create { .. }
                | Self::Drop { .. }
                | Self::Insert { .. }
                | Self::Remove { .. }
                | Self::Merge { .. }
                | Self::Batch { .. }
                | Self::Update { .. }
                | Self::Swap { .. }
        )
    }

    /// Whether the op acts on files rather than on keys.
    pub fn is_structural(&self) -> bool {
        matches!(
            self,
            Self::Drop { .. }
                | Self::SetTree { .. }
                | Self::Persist
                | Self::Flush
                | Self::CompactRange { .. }
                | Self::Snapshot { .. }
                | Self::Arm { .. }
                | Self::Step { .. }
                | Self::Reopen
                | Self::Kill
                | Self::Crash(_)
                | Self::SnapshotDrop { .. }
                | Self::Verify
        )
    }
}
