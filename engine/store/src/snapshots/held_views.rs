//! What those hold who hold a moment: a view of each keyspace, shared as far as nothing has changed between
//! them.
//!
//! Views come in groups of keyspaces, and a snapshot shares the groups of the one before it that are still
//! the same. A view that is held also keeps write buffers that were flushed since, for a tree has only the
//! newest version of a key. When those take more memory than is well, they are spilled (`flush/spill.rs`):
//! once, for all who hold them, whoever that is and however many.
//!
//! **Invariants**
//! - A held view never changes; what its buffers show at the seqno of a holder does neither.

use testudo_base::{
    KeyspaceId, Seqno,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use testudo_memtable::Memtable;

use crate::{
    catalogue::Catalogue,
    keyspace::WriteBuffer,
    snapshots::{held_buffer::HeldBuffer, held_view::HeldView},
};

/// Ids of keyspaces whose views are shared together.
const GROUP: u32 = 64;

/// A keyspace and a view of it.
type Held = (KeyspaceId, Arc<HeldView>);

/// Views of all keyspaces, in the order of their ids.
#[derive(Clone, Debug, Default)]
pub struct Views(Vec<(u32, Arc<[Held]>)>);

impl Views {
    /// Those of this moment. REQUIRES: the commit lock is held.
    fn of(catalogue: &Catalogue, before: Option<&Self>) -> Self {
        let (mut views, mut group, mut number) = (Self::default(), Vec::new(), 0);
        for (&id, core) in &catalogue.by_id {
            if id.0 / GROUP != number {
                views.push(number, &mut group, before);
                number = id.0 / GROUP;
            }
            group.push((id, core.view.load().held()));
        }
        views.push(number, &mut group, before);
        views
    }

    fn push(&mut self, number: u32, group: &mut Vec<Held>, before: Option<&Self>) {
        if group.is_empty() {
            return;
        }
        let is_same = |(one, other): (&Held, &Held)| one.0 == other.0 && Arc::ptr_eq(&one.1, &other.1);
        let same = before
            .and_then(|before| before.group(number))
            .filter(|before| before.len() == group.len() && before.iter().zip(&*group).all(is_same));
        self.0.push((number, same.map_or_else(|| group.as_slice().into(), Arc::clone)));
        group.clear();
    }

    fn group(&self, number: u32) -> Option<&Arc<[Held]>> {
        let at = self.0.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(&self.0[at].1)
    }

    /// The view of a keyspace.
    pub fn get(&self, id: KeyspaceId) -> Option<&Arc<HeldView>> {
        let group = self.group(id.0 / GROUP)?;
        group.binary_search_by_key(&id, |(held, _)| *held).ok().map(|at| &group[at].1)
    }

    /// All views with the keyspaces that they are of.
    pub fn iter(&self) -> impl Iterator<Item = (KeyspaceId, &Arc<HeldView>)> {
        self.0.iter().flat_map(|(_, group)| group.iter().map(|(id, view)| (*id, view)))
    }
}

/// A buffer that was flushed while somebody held it.
#[derive(Debug)]
struct Flushed {
    buffer: Weak<HeldBuffer>,
    sealed_at: Seqno,
}

/// A flushed buffer that takes memory for those alone who hold it.
pub struct PinnedBuffer {
    pub buffer: Arc<HeldBuffer>,
    pub table: Arc<Memtable>,
    /// Nothing in it is newer.
    pub sealed_at: Seqno,
    pub bytes: u64,
}

/// What is held, for the store.
#[derive(Debug, Default)]
pub struct Holdings {
    /// Of the snapshot that was taken last.
    last: Mutex<Weak<Views>>,
    /// Buffers that were flushed while somebody held them.
    flushed: Mutex<Vec<Flushed>>,
    /// Bytes of those that count as write buffers still, until they were spilled.
    awaited_bytes: AtomicU64,
}

impl Holdings {
    /// The views of this moment, for a snapshot. REQUIRES: the commit lock is held.
    pub fn hold(&self, catalogue: &Catalogue) -> Arc<Views> {
        let mut last = self.last.lock();
        let before = last.upgrade();
        let views = Arc::new(Views::of(catalogue, before.as_deref()));
        *last = Arc::downgrade(&views);
        views
    }

    /// What is held of these buffers counts as write memory until [`end_relief`](super::Store).
    pub fn await_relief(&self, retired: &[Arc<WriteBuffer>]) {
        let held = retired.iter().filter(|buffer| buffer.is_held());
        self.awaited_bytes.fetch_add(held.map(|buffer| buffer.table.memory_bytes()).sum(), Relaxed);
    }

    /// Bytes that count as write memory although they were flushed.
    pub fn awaited_bytes(&self) -> u64 {
        self.awaited_bytes.load(Relaxed)
    }

    /// Nothing counts as write memory any more that was flushed; whether anything did.
    pub fn end_awaiting(&self) -> bool {
        self.awaited_bytes.swap(0, Relaxed) > 0
    }

    /// These buffers are part of their trees, and in no view that is published.
    pub fn record_flushed(&self, buffers: impl Iterator<Item = Arc<WriteBuffer>>) {
        let held = buffers.filter(|buffer| buffer.is_held());
        self.flushed.lock().extend(
            held.map(|buffer| Flushed {
                buffer: Arc::downgrade(buffer.held()),
                sealed_at: buffer.sealed_at(),
            }),
        );
    }

    /// The flushed buffers that are still held in memory.
    pub fn pinned(&self) -> Vec<PinnedBuffer> {
        let mut pinned = Vec::new();
        self.flushed.lock().retain(|Flushed { buffer, sealed_at }| {
            let in_memory = || {
                let buffer = buffer.upgrade()?;
                let table = buffer.memtable()?;
                let bytes = table.memory_bytes();
                Some(PinnedBuffer { buffer, table, sealed_at: *sealed_at, bytes })
            };
            let found = in_memory();
            let is_there = found.is_some();
            pinned.extend(found);
            is_there
        });
        pinned
    }
}
