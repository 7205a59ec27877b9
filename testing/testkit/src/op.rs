//! One step of a script: everything that a test asks of a store, the power switch included.
//!
//! **Invariants**
//! - Ops are plain data; the same script gives the same run.
//! - An op that does not apply (a keyspace that does not exist, an empty snapshot slot) does nothing, so
//!   that any part of a script is a script.

use std::ops::Bound;

use testudo_env::CrashPolicy;

use crate::{Key, Value};

/// Number of a keyspace; its name is `ks` and the number.
pub type Slot = u8;

/// One write of a batch; no value is a remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Where.
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
    /// Those that start with the key.
    Prefix(Key),
    /// Those between the bounds; an inverted range is empty.
    Range(Bound<Key>, Bound<Key>),
}

/// How a scan walks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Walk {
    /// Ascending.
    Forward,
    /// Descending.
    Backward,
    /// One from the front, one from the back, in turn.
    Zigzag,
    /// One from the front, then a seek to the key, then ascending.
    Seek(Key),
    /// Steps of both ends and seeks, each once.
    Moves(Vec<Move>),
}

/// A part of a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Move {
    /// So many from the front.
    Front(u32),
    /// So many from the back.
    Back(u32),
    /// A seek.
    Seek(Key),
}

/// A scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Which keys.
    pub span: Span,
    /// In which order.
    pub walk: Walk,
    /// Entries taken at most.
    pub limit: u32,
}

/// What an `update` makes of the old value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A value that does not depend on the old one.
    Set(Value),
    /// A value that depends on the old one, see [`Value::after`].
    Follow(Value),
    /// Nothing.
    Remove,
}

/// A power loss and how recovery goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// What survives.
    pub policy: CrashPolicy,
    /// Which of the images that the policy allows.
    pub seed: u64,
    /// The power fails again after so many I/O operations of the first recovery, of the second and so on.
    pub nested: Vec<u64>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields say what they are: a keyspace, a key, a value, a slot")]
pub enum Op {
    /// Creates a keyspace, or opens it again.
    Create { keyspace: Slot },
    /// Drops a keyspace.
    Drop { keyspace: Slot },
    /// Stores a keyspace in another tree, one of a few that `choice` names.
    SetTree { keyspace: Slot, choice: u8 },
    /// Writes one key.
    Insert { keyspace: Slot, key: Key, value: Value },
    /// Removes one key.
    Remove { keyspace: Slot, key: Key },
    /// Changes one key by an operand, without reading it.
    Merge { keyspace: Slot, key: Key, operand: Value },
    /// Writes several keys as one.
    Batch { writes: Vec<Write>, synced: bool },
    /// Reads one key.
    Get { keyspace: Slot, key: Key },
    /// Reads several keys.
    MultiGet { keyspace: Slot, keys: Vec<Key> },
    /// Reads keys in order.
    Scan { keyspace: Slot, scan: Scan },
    /// Reads and writes one key in one step.
    Update { keyspace: Slot, key: Key, change: Change },
    /// Writes one key if its value is as expected; `right` says whether the expectation shall be true.
    Swap { keyspace: Slot, key: Key, right: bool, value: Option<Value> },
    /// Takes a snapshot into a slot, dropping the one before.
    Snapshot { slot: u8 },
    /// Reads one key of a snapshot.
    SnapshotGet { slot: u8, keyspace: Slot, key: Key },
    /// Reads keys of a snapshot in order.
    SnapshotScan { slot: u8, keyspace: Slot, scan: Scan },
    /// Compares all of a snapshot with what it was when it was taken.
    SnapshotCheck { slot: u8 },
    /// Drops a snapshot.
    SnapshotDrop { slot: u8 },
    /// Makes every earlier write durable.
    Persist,
    /// Drains the write buffers into the trees, durably.
    Flush,
    /// Does so many pieces of background work.
    Step { count: u32 },
    /// Closes and opens again.
    Reopen,
    /// Dies without closing; what was written but not synced is still in the machine's memory.
    Kill,
    /// Loses power between two calls.
    Crash(Crash),
    /// Lets so many I/O operations happen from now on, then loses power.
    Arm { after: u64, crash: Crash },
    /// Compares everything, both ways, and verifies the files.
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

    /// Whether the op works on the files more than on the keys.
    pub fn is_structural(&self) -> bool {
        matches!(
            self,
            Self::Drop { .. }
                | Self::SetTree { .. }
                | Self::Persist
                | Self::Flush
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
