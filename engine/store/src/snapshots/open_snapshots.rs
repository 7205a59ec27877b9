//! The live snapshots of a store.
//!
//! **Invariants**
//! - A snapshot is registered under the commit lock, so that no commit misses it.

use std::collections::BTreeMap;

use testudo_base::{
    Seqno,
    sync::{
        Mutex,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Release},
        },
    },
};

use crate::snapshots::held_views::Holdings;

/// Live snapshots.
#[derive(Debug, Default)]
pub struct Snapshots {
    /// Number of snapshots at each seqno.
    pub live: Mutex<BTreeMap<Seqno, usize>>,
    newest: AtomicU64,
    /// The views and buffers that they hold.
    pub holdings: Holdings,
}

impl Snapshots {
    /// The newest live snapshot. Exact under the commit lock.
    pub fn newest(&self) -> Option<Seqno> {
        Some(Seqno(self.newest.load(Acquire))).filter(|seqno| seqno.0 > 0)
    }

    /// The seqnos of all live snapshots, ascending.
    pub fn seqnos(&self) -> Vec<Seqno> {
        self.live.lock().keys().copied().collect()
    }

    /// Registers a snapshot. REQUIRES: the commit lock is held.
    pub fn register(&self, seqno: Seqno) {
        let mut live = self.live.lock();
        debug_assert!(
            live.last_key_value().is_none_or(|(newest, _)| *newest <= seqno),
            "snapshots are registered in the order of their seqnos"
        );
        *live.entry(seqno).or_default() += 1;
        self.newest.store(live.last_key_value().map_or(0, |(seqno, _)| seqno.0), Release);
    }

    pub fn release(&self, seqno: Seqno) {
        let mut live = self.live.lock();
        if let Some(count) = live.get_mut(&seqno) {
            *count -= 1;
            if *count == 0 {
                live.remove(&seqno);
            }
        }
        self.newest.store(live.last_key_value().map_or(0, |(seqno, _)| seqno.0), Release);
    }
}
