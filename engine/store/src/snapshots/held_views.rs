//! Held views of all keyspaces, shared between holders as far as nothing has changed.
//!
//! Views are grouped by keyspace id, and a snapshot shares the unchanged groups of the previous one. A held
//! view also keeps write buffers that were flushed since, because a tree has only the newest version of a
//! key. If those use too much memory, they are spilled once for all their holders
//! (`engine/flush/src/round/spill.rs`).
//!
//! **Invariants**
//! - A held view never changes, nor do the contents of its buffers at the seqno of a holder.

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

/// Number of keyspace ids whose views are shared as a group.
const GROUP: u32 = 64;

/// A keyspace and a view of it.
type Held = (KeyspaceId, Arc<HeldView>);

/// Views of all keyspaces, in order of their ids.
#[derive(Clone, Debug, Default)]
pub struct Views(Vec<(u32, Arc<[Held]>)>);

impl Views {
    /// The current views. REQUIRES: the commit lock is held.
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
        debug_assert!(self.0.last().is_none_or(|(last, _)| *last < number), "groups ascend");
        debug_assert!(group.is_sorted_by_key(|(id, _)| *id), "in the order of their ids");
        debug_assert!(group.iter().all(|(id, _)| id.0 / GROUP == number), "of one group");
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

    /// All views with the ids of their keyspaces.
    pub fn iter(&self) -> impl Iterator<Item = (KeyspaceId, &Arc<HeldView>)> {
        self.0.iter().flat_map(|(_, group)| group.iter().map(|(id, view)| (*id, view)))
    }
}

/// A buffer that was held when it was flushed.
#[derive(Debug)]
struct Flushed {
    buffer: Weak<HeldBuffer>,
    sealed_at: Seqno,
}

/// A flushed buffer whose memory is used by its holders only.
pub struct PinnedBuffer {
    pub buffer: Arc<HeldBuffer>,
    pub table: Arc<Memtable>,
    /// Upper bound of its seqnos.
    pub sealed_at: Seqno,
    pub bytes: u64,
}

/// The held views and buffers of a store.
#[derive(Debug, Default)]
pub struct Holdings {
    /// Views of the last snapshot.
    last: Mutex<Weak<Views>>,
    /// Buffers that were held when they were flushed.
    flushed: Mutex<Vec<Flushed>>,
    /// Bytes of flushed buffers that count as write memory until they are spilled.
    awaited_bytes: AtomicU64,
}

impl Holdings {
    /// The current views, for a snapshot. REQUIRES: the commit lock is held.
    pub fn hold(&self, catalogue: &Catalogue) -> Arc<Views> {
        let mut last = self.last.lock();
        let before = last.upgrade();
        let views = Arc::new(Views::of(catalogue, before.as_deref()));
        *last = Arc::downgrade(&views);
        views
    }

    /// Counts the held buffers among `retired` as write memory until `end_relief`.
    pub fn await_relief(&self, retired: &[Arc<WriteBuffer>]) {
        let held = retired.iter().filter(|buffer| buffer.is_held());
        self.awaited_bytes.fetch_add(held.map(|buffer| buffer.table.memory_bytes()).sum(), Relaxed);
    }

    /// Bytes of flushed buffers that count as write memory.
    pub fn awaited_bytes(&self) -> u64 {
        self.awaited_bytes.load(Relaxed)
    }

    /// Stops counting flushed buffers as write memory; returns whether any was counted.
    pub fn end_awaiting(&self) -> bool {
        self.awaited_bytes.swap(0, Relaxed) > 0
    }

    /// Records buffers that are part of their trees and in no published view.
    pub fn record_flushed(&self, buffers: impl Iterator<Item = Arc<WriteBuffer>>) {
        let held = buffers.filter(|buffer| buffer.is_held());
        self.flushed.lock().extend(
            held.map(|buffer| Flushed {
                buffer: Arc::downgrade(buffer.held()),
                sealed_at: buffer.sealed_at(),
            }),
        );
    }

    /// The flushed buffers that holders still keep in memory.
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
