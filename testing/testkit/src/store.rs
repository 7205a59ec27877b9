//! The store interface of the runner. It is implemented by the engine and, to prove that the runner detects
//! faults, by a small reference store with planted ones.
//!
//! **Invariants**
//! - Keyspaces are identified by number; their name in the store is [`keyspace_name`].
//! - Nothing here depends on the model.

use std::{fmt, ops::Bound, sync::Arc};

use testudo_base::Result;
use testudo_env::Env;

use crate::op::{Move, Scan, Slot, Span, Walk};

/// A key and its value.
pub type Pair = (Vec<u8>, Vec<u8>);
/// Closure passed to `update`.
pub type UpdateFn<'a> = &'a mut dyn FnMut(Option<&[u8]>) -> Option<Vec<u8>>;

/// One write as bytes.
#[derive(Clone, Debug)]
pub struct RawWrite {
    /// The keyspace.
    pub keyspace: Slot,
    /// The key.
    pub key: Vec<u8>,
    /// The new value; `None` removes.
    pub value: Option<Vec<u8>>,
}

/// A scan as bytes.
#[derive(Clone, Debug)]
pub struct RawScan {
    /// Lower bound; `prefix` takes precedence.
    pub lower: Bound<Vec<u8>>,
    /// Upper bound.
    pub upper: Bound<Vec<u8>>,
    /// Common prefix of all keys.
    pub prefix: Option<Vec<u8>>,
    /// Order of the walk.
    pub walk: RawWalk,
    /// Maximum number of entries.
    pub limit: usize,
}

/// Order of a scan's walk, as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawWalk {
    /// Ascending.
    Forward,
    /// Descending.
    Backward,
    /// Alternately one from the front and one from the back.
    Zigzag,
    /// One from the front, then a seek, then ascending.
    Seek(Vec<u8>),
    /// Moves of both ends and seeks, each done once.
    Moves(Vec<RawMove>),
}

/// A part of a walk, as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawMove {
    /// This many entries from the front.
    Front(usize),
    /// This many entries from the back.
    Back(usize),
    /// A seek.
    Seek(Vec<u8>),
}

impl RawMove {
    fn of(step: &Move) -> Self {
        let count = |count: u32| testudo_base::num::usize_of(count.into());
        match step {
            Move::Front(steps) => Self::Front(count(*steps)),
            Move::Back(steps) => Self::Back(count(*steps)),
            Move::Seek(key) => Self::Seek(key.bytes()),
        }
    }
}

impl RawScan {
    /// Scans everything, in either direction.
    pub fn all(walk: RawWalk) -> Self {
        Self { lower: Bound::Unbounded, upper: Bound::Unbounded, prefix: None, walk, limit: usize::MAX }
    }

    /// Converts a scan to bytes.
    pub fn of(scan: &Scan) -> Self {
        let walk = match &scan.walk {
            Walk::Forward => RawWalk::Forward,
            Walk::Backward => RawWalk::Backward,
            Walk::Zigzag => RawWalk::Zigzag,
            Walk::Seek(key) => RawWalk::Seek(key.bytes()),
            Walk::Moves(moves) => RawWalk::Moves(moves.iter().map(RawMove::of).collect()),
        };
        let limit = testudo_base::num::usize_of(scan.limit.into());
        Self { limit, walk, ..Self::of_span(&scan.span) }
    }

    /// Scans these keys, ascending.
    pub fn of_span(span: &Span) -> Self {
        let all = Self::all(RawWalk::Forward);
        match span {
            Span::All => all,
            Span::Prefix(key) => Self { prefix: Some(key.bytes()), ..all },
            Span::Range(lower, upper) => {
                let bytes = |bound: &Bound<crate::Key>| bound.as_ref().map(crate::Key::bytes);
                Self { lower: bytes(lower), upper: bytes(upper), ..all }
            }
        }
    }

    /// Walks `iter` as the scan specifies; `seek` moves its front.
    pub fn collect<I, T>(
        &self,
        mut iter: I,
        mut seek: impl FnMut(&mut I, &[u8]) -> Result<()>,
    ) -> Result<Vec<T>>
    where
        I: DoubleEndedIterator<Item = Result<T>>,
    {
        let limit = self.limit;
        match &self.walk {
            RawWalk::Forward => iter.take(limit).collect(),
            RawWalk::Backward => iter.rev().take(limit).collect(),
            RawWalk::Zigzag => {
                let mut back = true;
                let turn = std::iter::from_fn(|| {
                    back = !back;
                    if back { iter.next_back() } else { iter.next() }
                });
                turn.take(limit).collect()
            }
            RawWalk::Seek(key) => {
                let mut pairs: Vec<T> = Vec::new();
                if limit > 0 {
                    pairs.extend(iter.next().transpose()?);
                    seek(&mut iter, key)?;
                }
                let rest: Result<Vec<T>> = iter.take(limit - pairs.len()).collect();
                pairs.extend(rest?);
                Ok(pairs)
            }
            RawWalk::Moves(moves) => {
                let mut pairs: Vec<T> = Vec::new();
                for step in moves {
                    let left = limit - pairs.len();
                    let taken: Result<Vec<T>> = match step {
                        RawMove::Front(count) => iter.by_ref().take(left.min(*count)).collect(),
                        RawMove::Back(count) => iter.by_ref().rev().take(left.min(*count)).collect(),
                        RawMove::Seek(key) => seek(&mut iter, key).map(|()| Vec::new()),
                    };
                    pairs.extend(taken?);
                }
                Ok(pairs)
            }
        }
    }
}

/// A snapshot of a store.
pub trait View {
    /// Reads one key of a keyspace that existed when the snapshot was taken.
    fn get(&self, keyspace: Slot, key: &[u8]) -> Result<Option<Vec<u8>>>;
    /// Reads keys in order.
    fn scan(&self, keyspace: Slot, scan: &RawScan) -> Result<Vec<Pair>>;
}

/// An open store.
pub trait Store {
    /// Numbers of the keyspaces, in any order.
    fn keyspaces(&self) -> Result<Vec<Slot>>;
    /// Creates a keyspace, or opens it.
    fn create(&mut self, keyspace: Slot) -> Result<()>;
    /// Drops a keyspace; false if there was none.
    fn drop_keyspace(&mut self, keyspace: Slot) -> Result<bool>;
    /// Moves a keyspace to another tree, chosen by `choice`. Users see no difference.
    fn set_tree(&self, _keyspace: Slot, _choice: u8) -> Result<()> {
        Ok(())
    }
    /// Whether a keyspace is moving to another tree family.
    fn is_moving(&self) -> bool {
        false
    }
    /// Whether pages were updated in place.
    fn has_replaced_pages(&self) -> bool {
        false
    }
    /// Writes one key.
    fn insert(&self, keyspace: Slot, key: &[u8], value: &[u8]) -> Result<()>;
    /// Removes one key.
    fn remove(&self, keyspace: Slot, key: &[u8]) -> Result<()>;
    /// Changes one key by an operand of its keyspace's operator, see [`crate::operator`].
    fn merge(&self, keyspace: Slot, key: &[u8], operand: &[u8]) -> Result<()>;
    /// Writes several keys atomically.
    fn commit(&self, writes: &[RawWrite], synced: bool) -> Result<()>;
    /// Reads one key.
    fn get(&self, keyspace: Slot, key: &[u8]) -> Result<Option<Vec<u8>>>;
    /// Reads several keys.
    fn multi_get(&self, keyspace: Slot, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>>;
    /// Reads keys in order.
    fn scan(&self, keyspace: Slot, scan: &RawScan) -> Result<Vec<Pair>>;
    /// Reads and writes one key atomically; returns the new value.
    fn update(&self, keyspace: Slot, key: &[u8], change: UpdateFn<'_>) -> Result<Option<Vec<u8>>>;
    /// Writes one key if its value is `old`; otherwise fails with `Conflict`.
    fn compare_and_swap(
        &self,
        keyspace: Slot,
        key: &[u8],
        old: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<()>;
    /// Takes a snapshot of all keyspaces.
    fn snapshot(&self) -> Result<Box<dyn View>>;
    /// Makes every earlier write durable.
    fn persist(&self) -> Result<()>;
    /// Divides the memory differently, chosen by `choice`. Users see no difference.
    fn share_memory(&self, _choice: u64) -> Result<()> {
        Ok(())
    }
    /// Flushes the write buffers, durably.
    fn flush(&self) -> Result<()>;
    /// Compacts the keys of a scan completely. Users see no difference.
    fn compact_range(&self, _keyspace: Slot, _scan: &RawScan) -> Result<()> {
        Ok(())
    }
    /// Runs one background job; returns false if there was none.
    fn step(&self) -> Result<bool>;
    /// Checks the structure; cheap.
    fn check_invariants(&self) -> Result<()>;
    /// Checks every byte.
    fn verify(&self) -> Result<()>;
    /// Closes cleanly.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Opens one kind of store, with the same settings at every reopen.
pub trait Opener: fmt::Debug + Send + Sync {
    /// Opens or creates the store of this environment.
    fn open(&self, env: Arc<dyn Env>) -> Result<Box<dyn Store>>;

    /// Opens the store without the merge operators of its keyspaces, runs its background work and closes it.
    /// A kind of store without merge operators may do nothing.
    fn work_without_operators(&self, _: Arc<dyn Env>) -> Result<()> {
        Ok(())
    }

    /// Whether a store that is open cannot be opened a second time.
    fn is_exclusive(&self) -> bool {
        false
    }
}

/// The name of a keyspace.
pub fn keyspace_name(keyspace: Slot) -> String {
    format!("ks{keyspace}")
}

/// The number of a keyspace.
pub fn keyspace_slot(name: &str) -> Option<Slot> {
    name.strip_prefix("ks")?.parse().ok()
}
