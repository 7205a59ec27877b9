//! The apply step of a flush: merges the sealed buffers of several keyspaces into their trees, in parallel.
//!
//! **Invariants**
//! - Nothing is published or made durable here: a failed round leaves only free space behind.

use testudo_base::{
    Result, Seqno, planted,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};
use testudo_contract::{Task, Updates as _, Work};
use testudo_options::stored_tree::with_placement;
use testudo_store::{
    Store,
    background::drop_totals::Dropped,
    commits::backpressure::Part,
    keyspace::{KeyspaceCore, WriteBuffer},
};
use testudo_values::LoggedValues;

use crate::{
    manifest_edit::references_of,
    round::{
        flushed::Flushed,
        updates::{KeptValues, MemtableUpdates},
    },
};

/// A sealed buffer and its keyspace.
pub type Waiting = (Arc<KeyspaceCore>, Arc<WriteBuffer>);

/// Where a flush puts buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Into their trees, by the trees' own rules.
    InTree,
    /// On top of their trees, for lack of space.
    OnTop,
}

/// A buffer being applied to its tree.
struct Applying {
    keyspace: Arc<KeyspaceCore>,
    buffer: Arc<WriteBuffer>,
    /// Boxed: a round can have thousands of these.
    work: Box<Work>,
}

/// The values that commits appended to the buffer's value log, as a segment; `None` if there are none.
fn logged_values(buffer: &WriteBuffer) -> Result<Option<Arc<LoggedValues>>> {
    let Some(log) = buffer.value_log() else { return Ok(None) };
    match log.finish(buffer.logs_transient()) {
        // Then the flush writes the values from memory, if there is space.
        Err(error) if error.is_shortage() => Ok(None),
        outcome => outcome,
    }
}

impl Applying {
    fn apply(&self, placement: Placement) -> Result<Flushed> {
        let Self { keyspace, buffer, work } = self;
        debug_assert!(buffer.sealed_at() > Seqno(0), "a buffer is sealed before it is flushed");
        buffer.table.freeze();
        // A failed attempt before this one may have left drop counts.
        let _ = work.progress.take_drops();
        let edit = if buffer.table.is_empty() {
            None
        } else {
            let updates = MemtableUpdates::new(Arc::clone(&buffer.table), buffer.sealed_at());
            let kept = match placement {
                Placement::InTree => KeptValues::IfMany,
                Placement::OnTop => KeptValues::Always,
            };
            let updates = Arc::new(updates.with_logged(logged_values(buffer)?, kept));
            let view = keyspace.view.load();
            // Small trees keep all values inline.
            let tree = with_placement(Arc::clone(&view.tree), &view.options, updates.bytes());
            Some(match placement {
                Placement::InTree => tree.apply(work, updates)?,
                Placement::OnTop => tree.apply_on_top(work, updates)?,
            })
        };
        if let Some(edit) = edit.as_ref().filter(|_| planted!("extent-freed-before-edit")) {
            work.data.extents().apply_durable(references_of(&edit.changes));
        }
        let dropped = Dropped { in_buffers: buffer.table.drops(), in_merges: work.progress.take_drops() };
        Ok(Flushed { keyspace: Arc::clone(keyspace), buffer: Arc::clone(buffer), edit, dropped })
    }
}

/// The buffers of one round; workers take them in turn.
struct Round {
    placement: Placement,
    applying: Vec<Applying>,
    next: AtomicUsize,
    has_failed: AtomicBool,
    flushed: Mutex<Vec<(usize, Result<Flushed>)>>,
}

impl Round {
    fn work(&self) {
        while !self.has_failed.load(Relaxed) {
            let number = self.next.fetch_add(1, Relaxed);
            let Some(applying) = self.applying.get(number) else { return };
            let outcome = applying.apply(self.placement);
            let outcome = outcome.map_err(|error| error.in_keyspace(&applying.keyspace.name));
            if outcome.is_err() {
                self.has_failed.store(true, Relaxed);
            }
            self.flushed.lock().push((number, outcome));
        }
    }
}

/// Applies every buffer to its tree, several in parallel.
pub fn apply_all(
    store: &Store,
    waiting: Vec<Waiting>,
    parts: &[Part],
    placement: Placement,
) -> Result<Vec<Flushed>> {
    debug_assert!(store.is_flush_locked(), "one round at a time");
    debug_assert!(waiting.len() <= parts.len(), "a part for each buffer");
    let applying = waiting.into_iter().zip(parts).map(|((keyspace, buffer), (_, progress))| Applying {
        work: Box::new(store.work(&keyspace, Arc::clone(progress))),
        keyspace,
        buffer,
    });
    let round = Arc::new(Round {
        placement,
        applying: applying.collect(),
        next: AtomicUsize::new(0),
        has_failed: AtomicBool::new(false),
        flushed: Mutex::new(Vec::new()),
    });
    let workers = store.background.executor.workers().min(round.applying.len());
    let task = || -> Task {
        let round = Arc::clone(&round);
        Box::new(move || round.work())
    };
    store.background.executor.run_all((0..workers).map(|_| task()).collect());
    let mut flushed = std::mem::take(&mut *round.flushed.lock());
    debug_assert!(
        flushed.len() == round.applying.len() || round.has_failed.load(Relaxed),
        "each buffer was applied"
    );
    flushed.sort_unstable_by_key(|(number, _)| *number);
    debug_assert!(flushed.iter().map(|(number, _)| *number).is_sorted_by(|a, b| a < b), "each once");
    flushed.into_iter().map(|(_, outcome)| outcome).collect()
}
