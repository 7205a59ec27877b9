//! Flushing: sealed buffers go into their trees, in rounds that share one sync and one manifest edit.
//!
//! `seal → wait for commits under way → sync log → freeze → tree.apply → sync data → commit edit → publish →
//! release log`
//!
//! **Invariants**
//! - One round at a time (`flush_lock`); of each keyspace only the oldest sealed buffer takes part.
//! - The largest buffers are sealed, as `sealing.rs` says, and of a keyspace only one at a time, but for
//!   whole flushes.
//! - The log is synced before a run is written: no run on disk holds what the log could still lose.
//! - A failure before the edit is committed changes nothing; a failed commit poisons the store.

use testudo_base::{
    Error, ErrorKind, ExtentSpan, Result, Seqno, planted,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};
use testudo_contract::{Job, Progress, Task, TreeEdit, Work};
use testudo_records::KeyspaceRecords;
use testudo_storage::Change;

use crate::{
    flush::{
        sealing::{self, Fill},
        stages::{Stage, StageClock},
        updates::MemtableUpdates,
    },
    store::{
        Store,
        view::{KeyspaceCore, WriteBuffer},
    },
    write::backpressure::Part,
};

/// A renewal of the log flushes so many rounds of buffers that were sealed before.
const RENEWAL_ROUNDS: u32 = 4;

/// A sealed buffer and its keyspace.
type Waiting = (Arc<KeyspaceCore>, Arc<WriteBuffer>);

/// A buffer, its keyspace, and the tree that it has become part of.
struct Flushed {
    keyspace: Arc<KeyspaceCore>,
    buffer: Arc<WriteBuffer>,
    /// `None` if the buffer turned out to be empty.
    edit: Option<TreeEdit>,
}

/// A buffer on its way into its tree.
struct Applying {
    keyspace: Arc<KeyspaceCore>,
    buffer: Arc<WriteBuffer>,
    work: Work,
}

impl Applying {
    fn apply(&self, placement: Placement) -> Result<Flushed> {
        let Self { keyspace, buffer, work } = self;
        buffer.table.freeze();
        let edit = if buffer.table.is_empty() {
            None
        } else {
            let updates = Arc::new(MemtableUpdates::new(Arc::clone(&buffer.table), buffer.sealed_at()));
            let tree = Arc::clone(&keyspace.view.load().tree);
            Some(match placement {
                Placement::InTree => tree.apply(work, updates)?,
                Placement::OnTop => tree.apply_on_top(work, updates)?,
            })
        };
        if let Some(edit) = edit.as_ref().filter(|_| planted!("extent-freed-before-edit")) {
            work.data.extents().apply_durable(references_of(&edit.changes));
        }
        Ok(Flushed { keyspace: Arc::clone(keyspace), buffer: Arc::clone(buffer), edit })
    }
}

/// Where buffers go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placement {
    /// Into their trees, as those would have it.
    InTree,
    /// On top, for want of space.
    OnTop,
}

/// The buffers of one round, which the workers take in turn.
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
            if outcome.is_err() {
                self.has_failed.store(true, Relaxed);
            }
            self.flushed.lock().push((number, outcome));
        }
    }
}

impl Store {
    /// Seals the largest active buffers if it is time.
    pub(crate) fn seal_if_full(&self) {
        // First of all: whoever sees from now on that it may be time wakes it again.
        self.backpressure.checking();
        if !self.backpressure.may_be_full() {
            return;
        }
        let mut candidates = Vec::new();
        let fill = self.check_buffers(|bytes, keyspace| candidates.push((bytes, Arc::clone(keyspace))));
        let write_buffers = self.backpressure.write_buffers();
        let _commit = self.commit.lock();
        if fill.is_time(write_buffers).is_ok() {
            let sizes: Vec<u64> = candidates.iter().map(|(bytes, _)| *bytes).collect();
            for buffer in sealing::choose(&sizes, write_buffers) {
                self.seal(&candidates[buffer].1);
            }
        }
        self.recount_buffers();
    }

    /// How full the write buffers are. `candidate` is told of active ones that can be sealed, because nothing
    /// of their keyspace is sealed already, and of their bytes.
    fn check_buffers(&self, mut candidate: impl FnMut(u64, &Arc<KeyspaceCore>)) -> Fill {
        let mut fill = Fill::default();
        for keyspace in self.catalogue.read().by_id.values() {
            let view = keyspace.view.load();
            if view.active.first_commit().is_some() {
                let bytes = view.active.table.memory_bytes();
                fill.active += bytes;
                fill.largest = bytes.max(fill.largest);
                if view.sealed.is_empty() {
                    candidate(bytes, keyspace);
                }
            }
            fill.sealed += view.sealed.iter().map(|buffer| buffer.table.memory_bytes()).sum::<u64>();
        }
        fill
    }

    /// Seals the active buffer of a keyspace that has outgrown its own share, unless one is sealed already.
    pub(crate) fn seal_one(&self, keyspace: &KeyspaceCore) {
        let _commit = self.commit.lock();
        if keyspace.view.load().sealed.is_empty() && !keyspace.is_dropped() {
            self.seal(keyspace);
            self.recount_buffers();
            self.wakeup.wake();
        }
    }

    /// Seals every active buffer that was written, for a flush of the whole store.
    pub(crate) fn seal_all(&self) {
        let _commit = self.commit.lock();
        for keyspace in self.keyspaces() {
            if keyspace.view.load().active.first_commit().is_some() {
                self.seal(&keyspace);
            }
        }
        self.recount_buffers();
        self.wakeup.wake();
    }

    /// Seals buffers that hold commits at or before `seqno`, the oldest first, as many as make a round, so
    /// that the log can be released.
    /// REQUIRES: the commit lock is not held.
    fn seal_older_than(&self, seqno: Seqno) {
        let mut old: Vec<(Seqno, Arc<KeyspaceCore>)> = Vec::new();
        for keyspace in self.catalogue.read().by_id.values() {
            let first = keyspace.view.load().active.first_commit();
            old.extend(first.filter(|first| *first <= seqno).map(|first| (first, Arc::clone(keyspace))));
        }
        old.sort_unstable_by_key(|(first, keyspace)| (*first, keyspace.id));
        let _commit = self.commit.lock();
        let sizes = old.iter().map(|(_, keyspace)| keyspace.view.load().active.table.memory_bytes());
        let count = sealing::count_of_round(sizes, self.backpressure.write_buffers());
        for (_, keyspace) in &old[..count] {
            self.seal(keyspace);
        }
        self.recount_buffers();
    }

    fn seal(&self, keyspace: &KeyspaceCore) {
        keyspace.seal_active(self.last_seqno(), self.new_table(&keyspace.folding));
    }

    /// Counts the bytes of write buffers, right after some were sealed or flushed. REQUIRES: the commit lock
    /// is held.
    pub(crate) fn recount_buffers(&self) {
        let fill = self.check_buffers(|_, _| ());
        let check_at = fill.is_time(self.backpressure.write_buffers()).err().unwrap_or(fill.active);
        self.backpressure.set_counted(fill.active, fill.sealed, check_at);
    }

    /// Whether a sealed buffer is waiting.
    pub(crate) fn has_sealed(&self) -> bool {
        self.catalogue.read().by_id.values().any(|keyspace| !keyspace.view.load().sealed.is_empty())
    }

    /// Makes room in stepped execution: seals, and flushes what is sealed.
    pub(crate) fn flush_for_memory(&self) -> Result<()> {
        self.look_for_space()?;
        self.seal_if_full();
        self.flush_sealed().map(|_| ())
    }

    /// Drains the oldest sealed buffer of every keyspace that has one; `false` if there was none.
    ///
    /// Errors: also poisons the store, unless the disk is full and nothing was changed.
    pub(crate) fn flush_sealed(&self) -> Result<bool> {
        let _flush = self.flush_lock.lock();
        self.check_writable()?;
        let mut waiting = Vec::new();
        for keyspace in self.catalogue.read().by_id.values() {
            if let Some(buffer) = keyspace.view.load().sealed.last() {
                waiting.push((Arc::clone(keyspace), Arc::clone(buffer)));
            }
        }
        if waiting.is_empty() {
            return Ok(false);
        }
        let part = |(_, buffer): &Waiting| (buffer.table.memory_bytes(), Arc::new(Progress::default()));
        let parts: Vec<Part> = waiting.iter().map(part).collect();
        let started = self.env.monotonic();
        self.data.begin_round();
        self.backpressure.flush_started(&*self.env, parts.clone());
        let outcome = self.flush_where_it_fits(waiting, &parts);
        let bytes = parts.iter().map(|(bytes, _)| bytes).sum();
        self.counters.stages.record_round(bytes, self.env.monotonic().saturating_sub(started));
        self.backpressure.flush_ended(&*self.env);
        self.give_back_what_failed(&outcome)?;
        if !self.has_failed() {
            self.look_at_space()?;
        }
        outcome?;
        if !self.has_failed()
            && let Err(error) = self.data.end_round()
            // The round has succeeded; what cannot be given back on a full device stays free.
            && error.kind() != ErrorKind::OutOfSpace
        {
            self.poison(&error);
            return Err(error);
        }
        // What could not be replaced stays in memory; the next round tries again.
        let _ = self.relieve_snapshots();
        Ok(true)
    }

    /// Drains into the trees as they would have it, or, if there is not enough space, on top of them. There
    /// only as many buffers as fit; at least one.
    fn flush_where_it_fits(&self, mut waiting: Vec<Waiting>, parts: &[Part]) -> Result<()> {
        if !self.nearly_full.is_short() {
            let outcome = self.flush_waiting(waiting.clone(), parts, Placement::InTree);
            let is_full = outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::OutOfSpace);
            if !is_full || self.has_failed() {
                return outcome;
            }
            self.data.give_back_space()?;
            self.look_at_space()?;
            if !self.nearly_full.is_on() {
                return outcome;
            }
        }
        let mut left = self.takeable_bytes();
        let mut fits = |(keyspace, buffer): &Waiting| {
            let bytes = keyspace.view.load().tree.on_top_bytes(buffer.table.memory_bytes());
            left.checked_sub(bytes).inspect(|&rest| left = rest).is_some()
        };
        let count = waiting.iter().take_while(|waiting| fits(waiting)).count();
        waiting.truncate(count.max(1));
        self.with_held_space(|| self.flush_waiting(waiting, parts, Placement::OnTop))
    }

    fn flush_waiting(&self, waiting: Vec<Waiting>, parts: &[Part], placement: Placement) -> Result<()> {
        let mut clock = StageClock::start(&*self.env, &self.counters.stages);
        let newest = waiting.iter().map(|(_, buffer)| buffer.sealed_at()).max().unwrap_or_default();
        if !planted!("sealed-buffer-not-awaited") {
            self.in_flight.wait_for(newest);
        }
        // During recovery there is no log yet; what it reads was synced before.
        if let Some(wal) = self.wal.as_ref().filter(|_| !planted!("log-unsynced-at-drain")) {
            wal.sync_to(newest).inspect_err(|error| self.poison(error))?;
        }
        clock.end(Stage::Log);
        let applied = self.apply_all(waiting, parts, placement);
        clock.end(Stage::Apply);
        let flushed = applied.inspect_err(|error| self.record_failure(error))?;
        self.set_stall(None);
        self.commit_flushed(flushed, &mut clock).inspect_err(|error| self.poison(error))
    }

    /// A full disk stops writers until there is room again; whatever else fails before anything was committed
    /// stops them for good.
    fn record_failure(&self, error: &Error) {
        if error.kind() == ErrorKind::OutOfSpace {
            self.set_stall(Some(error.clone()));
        } else {
            self.poison(error);
        }
    }

    /// What was written in vain on a full device goes back to the file system at once: log and manifest may
    /// need it. Nothing goes back when the edit itself failed: it may be durable all the same, and then
    /// refers to what was written.
    fn give_back_what_failed(&self, outcome: &Result<()>) -> Result<()> {
        let is_full = outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::OutOfSpace);
        if is_full && !self.has_failed() {
            self.data.give_back_space()?;
        }
        Ok(())
    }

    /// Applies every buffer to its tree, several at once.
    fn apply_all(&self, waiting: Vec<Waiting>, parts: &[Part], placement: Placement) -> Result<Vec<Flushed>> {
        let applying = waiting.into_iter().zip(parts).map(|((keyspace, buffer), (_, progress))| Applying {
            work: self.work(&keyspace, Arc::clone(progress)),
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
        let workers = self.executor.workers().min(round.applying.len());
        let task = || -> Task {
            let round = Arc::clone(&round);
            Box::new(move || round.work())
        };
        self.executor.run_all((0..workers).map(|_| task()).collect());
        let mut flushed = std::mem::take(&mut *round.flushed.lock());
        flushed.sort_unstable_by_key(|(number, _)| *number);
        flushed.into_iter().map(|(_, outcome)| outcome).collect()
    }

    fn commit_flushed(&self, mut flushed: Vec<Flushed>, clock: &mut StageClock<'_>) -> Result<()> {
        let mut edit = Vec::new();
        for Flushed { keyspace, buffer, edit: tree_edit } in &mut flushed {
            if let Some(tree_edit) = tree_edit {
                edit.append(&mut tree_edit.changes);
            }
            let is_too_high = planted!("flushed-seqno-too-high");
            let flushed = if is_too_high { self.last_seqno() } else { buffer.sealed_at() };
            edit.push(Change::Flushed(keyspace.id, flushed));
        }
        edit.push(Change::NextRun(self.run_ids.next()));
        if !planted!("data-unsynced-at-edit") {
            self.data.sync()?;
        }
        clock.end(Stage::Data);
        if planted!("extent-freed-before-edit") {
            self.manifest.commit(&edit)?;
        } else {
            self.commit_edit(&edit)?;
        }
        clock.end(Stage::Edit);
        let records = self.advance_records(&flushed)?;
        // To free a memtable takes milliseconds, during which nobody should wait for the commit lock.
        let mut retired = Vec::with_capacity(flushed.len());
        let now = self.background_time();
        let commit = self.commit.lock();
        for (Flushed { keyspace, buffer, edit }, records) in flushed.into_iter().zip(records) {
            let tree = edit.map_or_else(|| Arc::clone(&keyspace.view.load().tree), |edit| edit.tree);
            keyspace.publish(tree, Some(&buffer), records);
            keyspace.idle.lock().record_flush(now);
            retired.push((keyspace.id, buffer));
            keyspace.expect_jobs();
        }
        self.recount_buffers();
        drop(commit);
        self.holdings.record_flushed(retired.into_iter());
        self.counters.flushes.fetch_add(1, Relaxed);
        let released = self.release_log();
        clock.end(Stage::Publish);
        released
    }

    /// The cached records as the flushed trees see them; `None` where nothing was flushed.
    fn advance_records(&self, flushed: &[Flushed]) -> Result<Vec<Option<KeyspaceRecords>>> {
        let since = |now: u64, before: &AtomicU64| now.saturating_sub(before.swap(now, Relaxed));
        let counters = &self.counters;
        let reads = since(self.records.reads(), &counters.reads_flushed);
        let writes = since(counters.user_writes.load(Relaxed), &counters.writes_flushed);
        // What was written lately is read again before long, if anything is read.
        let admits = reads >= writes / 2;
        let advance = |flushed: &Flushed| {
            flushed.edit.as_ref()?;
            let records = flushed.keyspace.view.load().records.clone();
            let mut updates = flushed.buffer.table.cursor(Seqno(u64::MAX));
            Some(records.advance(&mut updates, admits && reads > 0))
        };
        flushed.iter().map(|flushed| advance(flushed).transpose()).collect()
    }

    /// Commits an edit and applies its reference changes.
    pub(crate) fn commit_edit(&self, edit: &[Change]) -> Result<()> {
        self.manifest.commit(edit)?;
        self.data.extents().apply_durable(references_of(edit));
        Ok(())
    }

    /// The last seqno that no buffer needs from the log. REQUIRES: the commit lock is held.
    fn releasable_seqno(&self) -> Seqno {
        let mut seqno = self.last_seqno();
        for keyspace in self.catalogue.read().by_id.values() {
            for buffer in keyspace.view.load().buffers() {
                if let Some(first) = buffer.first_commit() {
                    seqno = seqno.min(Seqno(first.0 - 1));
                }
            }
        }
        seqno
    }

    /// Releases the segments of the log that nothing needs any more.
    fn release_log(&self) -> Result<()> {
        let Some(wal) = &self.wal else { return Ok(()) };
        let commit = self.commit.lock();
        let seqno = self.releasable_seqno();
        drop(commit);
        let segment = wal.first_needed_segment(seqno);
        if segment > self.manifest.with_state(|state| state.log_segment) {
            // Flushed commits were synced before their flush, those of dropped keyspaces before the drop.
            debug_assert!(wal.durable_seqno() >= seqno, "what is released is durable");
            self.commit_edit(&[Change::LogStart(segment, seqno)])?;
            wal.release_below(seqno)?;
        }
        Ok(())
    }

    /// Flushes all write buffers if the log has more than `most` segments, so that it begins anew; leaves
    /// what is written meanwhile.
    pub(crate) fn renew_log(&self, most: usize) -> Result<()> {
        let Some(wal) = &self.wal else { return Ok(()) };
        if wal.segments().len() <= most || self.has_failed() || planted!("log-never-renewed") {
            return Ok(());
        }
        for _ in 0..RENEWAL_ROUNDS {
            if !self.has_sealed() {
                break;
            }
            self.flush_sealed()?;
        }
        self.seal_all();
        self.flush_sealed()?;
        self.release_log()
    }

    /// Drains what pins the log if it has outgrown its bound; `false` if it has not.
    pub(crate) fn shorten_log(&self) -> Result<bool> {
        let wal = self.wal()?;
        if wal.live_bytes() <= self.log_bound() || self.has_sealed() {
            return Ok(false);
        }
        let commit = self.commit.lock();
        let oldest = self.releasable_seqno();
        let last = wal.last_reserved_seqno();
        drop(commit);
        // Everything in the older half of what the log holds.
        self.seal_older_than(Seqno(oldest.0 + (last.0 - oldest.0) / 2 + 1));
        let had_sealed = self.flush_sealed()?;
        if !had_sealed {
            self.release_log()?;
        }
        Ok(had_sealed)
    }

    /// Does one job of one tree; `false` if no tree has one. `is_idle` as in
    /// [`testudo_contract::Tree::pick_job`], for each keyspace.
    pub(crate) fn run_job(&self, is_idle: impl Fn(&KeyspaceCore) -> bool) -> Result<bool> {
        for keyspace in self.keyspaces() {
            let is_idle = is_idle(&keyspace);
            let has_new_reasons = keyspace.view.load().tree.has_new_reasons();
            if !keyspace.take_expected_jobs(is_idle) && !has_new_reasons {
                continue;
            }
            let Some(job) = keyspace.view.load().tree.pick_job(is_idle) else { continue };
            keyspace.expect_jobs();
            let _flush = self.flush_lock.lock();
            self.check_writable()?;
            // What a job writes replaces what it frees, and may be what is in the way of winning space.
            let outcome = if self.nearly_full.is_short() {
                self.with_held_space(|| self.run_job_of(&keyspace, &job))
            } else {
                self.run_job_of(&keyspace, &job)
            };
            self.give_back_what_failed(&outcome)?;
            if self.nearly_full.is_on() && !self.has_failed() {
                self.look_at_space()?;
            }
            return outcome.map(|()| true);
        }
        Ok(false)
    }

    fn run_job_of(&self, keyspace: &Arc<KeyspaceCore>, job: &Job) -> Result<()> {
        if keyspace.is_dropped() {
            return Ok(());
        }
        let tree = Arc::clone(&keyspace.view.load().tree);
        let work = self.work(keyspace, Arc::new(Progress::default()));
        let edit = tree.run_job(&work, job).inspect_err(|error| self.record_failure(error))?;
        let Some(edit) = edit else { return Ok(()) };
        self.commit_job(keyspace, edit).inspect_err(|error| self.poison(error))
    }

    pub(crate) fn commit_job(&self, keyspace: &Arc<KeyspaceCore>, edit: TreeEdit) -> Result<()> {
        let mut changes = edit.changes;
        changes.push(Change::NextRun(self.run_ids.next()));
        self.data.sync()?;
        self.commit_edit(&changes)?;
        let _commit = self.commit.lock();
        keyspace.publish(edit.tree, None, None);
        self.counters.jobs.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Gives space back to the file system if a good part of that of the file is free.
    pub(crate) fn give_back_space(&self) -> Result<()> {
        let stats = self.data.space_stats();
        let space_bytes = stats.file_bytes - stats.hole_bytes;
        if stats.free_bytes > space_bytes / 8 && stats.free_bytes > 1 << 20 {
            self.give_back_all_space()?;
        }
        Ok(())
    }

    /// Gives all free space back to the file system, unless the store has failed: pages of an edit that
    /// failed count as free, but the edit may be durable. Edits are committed, and fail, under `flush_lock`.
    pub(crate) fn give_back_all_space(&self) -> Result<()> {
        let _flush = self.flush_lock.lock();
        if self.has_failed() { Ok(()) } else { self.data.give_back_space() }
    }
}

fn references_of(edit: &[Change]) -> impl Iterator<Item = (ExtentSpan, i32)> + '_ {
    edit.iter().filter_map(|change| match change {
        Change::References(span, delta) => Some((*span, *delta)),
        _ => None,
    })
}
