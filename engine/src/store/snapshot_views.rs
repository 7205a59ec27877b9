//! What snapshots hold: a view of each keyspace, shared as far as nothing has changed between them.
//!
//! Views come in groups of keyspaces, and a snapshot shares the groups of the one before it that are
//! still the same. A snapshot also keeps write buffers that were flushed since, for a tree has only the
//! newest version of a key. When those take more memory than is well, each snapshot gets trees of its
//! own instead: the tree beneath the buffers, with what the snapshot sees of them as a tier on top.
//! Nothing of that becomes durable; its space is given back with the snapshot.
//!
//! **Invariants**
//! - The views of a snapshot change, what they show never does.
//! - A buffer is replaced only once it was flushed: nothing is written into it any more, and what it
//!   holds is durable.

use std::collections::BTreeSet;

use testudo_base::{
    KeyspaceId, Result, Seqno, planted,
    sync::{
        Arc, ArcSwap, Mutex, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use testudo_contract::Progress;

use crate::{
    flush::updates::MemtableUpdates,
    store::{
        Catalogue, Store,
        view::{KeyspaceCore, View, WriteBuffer},
    },
};

/// Ids of keyspaces whose views are shared together.
const GROUP: u32 = 64;
/// Flushed buffers may take this part of the write memory before snapshots let go of them.
const PINNED_PART: u64 = 8;

/// A keyspace and a view of it.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    core: Arc<KeyspaceCore>,
    view: Arc<View>,
}

impl Held {
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.core, &other.core) && Arc::ptr_eq(&self.view, &other.view)
    }
}

/// Views of all keyspaces, in the order of their ids.
#[derive(Clone, Debug, Default)]
pub(crate) struct Views(Vec<(u32, Arc<[Held]>)>);

impl Views {
    /// Those of this moment. REQUIRES: the commit lock is held.
    fn of(catalogue: &Catalogue, before: Option<&Self>) -> Self {
        let (mut views, mut group, mut number) = (Self::default(), Vec::new(), 0);
        for (&id, core) in &catalogue.by_id {
            if id.0 / GROUP != number {
                views.push(number, &mut group, before);
                number = id.0 / GROUP;
            }
            group.push(Held { core: Arc::clone(core), view: core.view.load_full() });
        }
        views.push(number, &mut group, before);
        views
    }

    fn push(&mut self, number: u32, group: &mut Vec<Held>, before: Option<&Self>) {
        if group.is_empty() {
            return;
        }
        let same = before.and_then(|before| before.group(number)).filter(|before| {
            before.len() == group.len() && before.iter().zip(&*group).all(|(one, other)| one.is_same(other))
        });
        self.0.push((number, same.map_or_else(|| group.as_slice().into(), Arc::clone)));
        group.clear();
    }

    fn group(&self, number: u32) -> Option<&Arc<[Held]>> {
        let at = self.0.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(&self.0[at].1)
    }

    fn held(&self, id: KeyspaceId) -> Option<&Held> {
        let group = self.group(id.0 / GROUP)?;
        group.binary_search_by_key(&id, |held| held.core.id).ok().map(|at| &group[at])
    }

    /// The view of a keyspace.
    pub(crate) fn get(&self, id: KeyspaceId) -> Option<&Arc<View>> {
        self.held(id).map(|held| &held.view)
    }

    /// All views with the keyspaces that they are of.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (KeyspaceId, &Arc<View>)> {
        self.0.iter().flat_map(|(_, group)| group.iter().map(|held| (held.core.id, &held.view)))
    }

    /// The same views, but for one.
    fn with(&self, id: KeyspaceId, view: Arc<View>) -> Self {
        let mut views = self.clone();
        if let Some((_, group)) = views.0.iter_mut().find(|(number, _)| *number == id.0 / GROUP) {
            let mut changed = group.to_vec();
            if let Some(held) = changed.iter_mut().find(|held| held.core.id == id) {
                held.view = view;
            }
            *group = changed.into();
        }
        views
    }
}

/// The views of one snapshot.
#[derive(Debug)]
pub(crate) struct HeldViews {
    seqno: Seqno,
    views: ArcSwap<Views>,
}

impl HeldViews {
    /// The views as they are now; they show what those of any other moment do.
    pub(crate) fn load(&self) -> Arc<Views> {
        self.views.load_full()
    }
}

/// What live snapshots hold, for the store.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    /// In the order of seqnos.
    snapshots: Mutex<Vec<Weak<HeldViews>>>,
    /// Buffers that were flushed while somebody held them.
    flushed: Mutex<Vec<(KeyspaceId, Weak<WriteBuffer>)>>,
    /// Bytes of those that count as write buffers still, until snapshots have let go of them.
    awaited_bytes: AtomicU64,
}

impl Holdings {
    /// The views of this moment, for a snapshot. REQUIRES: the commit lock is held.
    pub(crate) fn hold(&self, catalogue: &Catalogue, seqno: Seqno) -> Arc<HeldViews> {
        let mut snapshots = self.snapshots.lock();
        if snapshots.len().is_power_of_two() {
            snapshots.retain(|snapshot| snapshot.strong_count() > 0);
        }
        let before = snapshots.last().and_then(Weak::upgrade).map(|before| before.load());
        let views = ArcSwap::from_pointee(Views::of(catalogue, before.as_deref()));
        let held = Arc::new(HeldViews { seqno, views });
        snapshots.push(Arc::downgrade(&held));
        held
    }

    /// What snapshots hold of these buffers counts as write memory until [`Store::end_relief`].
    pub(crate) fn await_relief(&self, retired: &[(KeyspaceId, Arc<WriteBuffer>)]) {
        if !self.snapshots.lock().iter().any(|snapshot| snapshot.strong_count() > 0) {
            return;
        }
        let held = retired.iter().filter(|(_, buffer)| Arc::strong_count(buffer) > 1);
        self.awaited_bytes.fetch_add(held.map(|(_, buffer)| buffer.table.memory_bytes()).sum(), Relaxed);
    }

    /// Bytes that count as write memory although they were flushed.
    pub(crate) fn awaited_bytes(&self) -> u64 {
        self.awaited_bytes.load(Relaxed)
    }

    /// These buffers are part of their trees, and in no view that is published.
    pub(crate) fn record_flushed(&self, buffers: impl Iterator<Item = (KeyspaceId, Arc<WriteBuffer>)>) {
        let held = buffers.filter(|(_, buffer)| Arc::strong_count(buffer) > 1);
        self.flushed.lock().extend(held.map(|(id, buffer)| (id, Arc::downgrade(&buffer))));
    }

    /// Bytes of flushed buffers that are still held, and whose they are.
    fn pinned(&self) -> (u64, BTreeSet<KeyspaceId>) {
        let mut flushed = self.flushed.lock();
        let (mut bytes, mut keyspaces) = (0, BTreeSet::new());
        flushed.retain(|(id, buffer)| {
            let Some(buffer) = buffer.upgrade() else { return false };
            bytes += buffer.table.memory_bytes();
            keyspaces.insert(*id);
            true
        });
        (bytes, keyspaces)
    }

    fn live(&self) -> Vec<Arc<HeldViews>> {
        self.snapshots.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

/// A view that was replaced, so that the next snapshot may find that it holds the same.
struct Replaced {
    before: Arc<View>,
    after: Arc<View>,
    /// The snapshot it was done for.
    seqno: Seqno,
}

impl Replaced {
    /// Whether a later snapshot sees the same of the buffers that were replaced.
    fn is_for(&self, view: &Arc<View>) -> bool {
        let has_later = |buffer: &Arc<WriteBuffer>| {
            buffer.is_flushed() && buffer.table.max_seqno().is_some_and(|max| max > self.seqno)
        };
        Arc::ptr_eq(&self.before, view) && !view.buffers().any(has_later)
    }
}

impl Store {
    /// Lets snapshots go on without flushed buffers, if those take too much memory; writers are delayed by
    /// how far that is. REQUIRES: `flush_lock` is held.
    pub(crate) fn let_snapshots_go(&self) {
        let (bytes, keyspaces) = self.snapshots.holdings.pinned();
        if bytes > self.backpressure.write_buffers() / PINNED_PART && !planted!("flushed-buffers-kept") {
            let progress = Arc::new(Progress::default());
            self.backpressure.catch_up_started(&*self.env, Arc::clone(&progress), bytes);
            // What could not be replaced stays in memory; the next round tries again.
            let _ = self.relieve_snapshots(keyspaces, &progress);
            self.backpressure.flush_ended(&*self.env);
        }
    }

    /// What snapshots still hold of flushed buffers counts as write memory no more.
    pub(crate) fn end_relief(&self) {
        if self.snapshots.holdings.awaited_bytes.swap(0, Relaxed) > 0 {
            let commit = self.commits.lock();
            self.recount_buffers();
            drop(commit);
            self.backpressure.wake_writers();
        }
    }

    /// Errors: those of writing runs; what was not replaced stays as it is.
    fn relieve_snapshots(&self, keyspaces: BTreeSet<KeyspaceId>, progress: &Arc<Progress>) -> Result<()> {
        let snapshots = self.snapshots.holdings.live();
        for id in keyspaces {
            let mut last: Option<Replaced> = None;
            for snapshot in &snapshots {
                let views = snapshot.load();
                let Some(held) = views.held(id) else { continue };
                if !held.view.buffers().any(|buffer| buffer.is_flushed()) {
                    continue;
                }
                let after = match last.as_ref().filter(|last| last.is_for(&held.view)) {
                    Some(last) => Arc::clone(&last.after),
                    None => Arc::new(self.without_flushed(held, snapshot.seqno, progress)?),
                };
                snapshot.views.store(Arc::new(views.with(id, Arc::clone(&after))));
                last = Some(Replaced { before: Arc::clone(&held.view), after, seqno: snapshot.seqno });
            }
        }
        Ok(())
    }

    /// What a snapshot at `seqno` sees, with what flushed buffers hold of it in a tree.
    fn without_flushed(&self, held: &Held, seqno: Seqno, progress: &Arc<Progress>) -> Result<View> {
        let Held { core, view } = held;
        let mut tree = Arc::clone(&view.tree);
        // Buffers are flushed oldest first.
        let oldest_first = view.sealed.iter().rev().chain([&view.active]);
        for buffer in oldest_first.filter(|buffer| buffer.is_flushed()) {
            let at = if planted!("relieved-snapshot-sees-later") { Seqno(u64::MAX) } else { seqno };
            let updates = MemtableUpdates::as_of(Arc::clone(&buffer.table), buffer.sealed_at(), at);
            tree = tree.stack(&self.work(core, Arc::clone(progress)), &updates)?;
        }
        let active = if view.active.is_flushed() {
            WriteBuffer::new(self.new_table(&view.full_merge), view.options.placement_in_force(), None)
        } else {
            Arc::clone(&view.active)
        };
        let sealed = view.sealed.iter().filter(|buffer| !buffer.is_flushed()).cloned().collect();
        let (records, full_merge) = (view.records.clone(), Arc::clone(&view.full_merge));
        Ok(View { active, sealed, tree, records, full_merge, options: Arc::clone(&view.options) })
    }
}
