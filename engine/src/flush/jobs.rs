//! Jobs of trees, done one at a time while nothing is to be flushed.
//!
//! `pick_job → tree.run_job → sync data → commit edit → publish`
//!
//! **Invariants**
//! - A job runs under `flush_lock`, as a round of flushing does.

use testudo_base::{
    Result,
    sync::{Arc, atomic::Ordering::Relaxed},
};
use testudo_contract::{Job, Progress, TreeEdit};
use testudo_storage::Change;

use crate::store::{Store, view::KeyspaceCore};

impl Store {
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
            // What a job writes replaces what it frees, and may be what is in the way of winning space. But
            // that is free late: a step of reclaiming, and removals on top, must be possible at any time.
            let outcome = if self.nearly_full.is_short() {
                let rest_bytes = self.nearly_full.reclaiming_bytes();
                self.with_held_space(rest_bytes, || self.run_job_of(&keyspace, &job))
            } else {
                self.run_job_of(&keyspace, &job)
            };
            self.give_back_what_failed(&outcome)?;
            if self.nearly_full.is_on() && !self.has_failed() {
                self.hold_space()?;
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
        self.beginning.begin().inspect_err(|error| self.poison(error))?;
        let edit = tree.run_job(&work, job).inspect_err(|error| self.record_failure(error))?;
        let Some(edit) = edit else { return Ok(()) };
        self.commit_job(keyspace, edit).inspect_err(|error| self.poison(error))
    }

    /// Makes what a job or a step of reclaiming did durable, and shows it. REQUIRES: `flush_lock` is held.
    pub(crate) fn commit_job(&self, keyspace: &Arc<KeyspaceCore>, edit: TreeEdit) -> Result<()> {
        debug_assert!(self.flush_lock.is_locked(), "one round or job at a time");
        let mut changes = edit.changes;
        changes.push(Change::NextRun(self.run_ids.next()));
        self.data.sync()?;
        self.commit_edit(&changes)?;
        let commit = self.commits.lock();
        keyspace.publish(edit.tree, None, None);
        drop(commit);
        self.counters.jobs.fetch_add(1, Relaxed);
        self.fit_caches();
        Ok(())
    }
}
