//! Closing, process ends, power losses, and the content required afterwards.
//!
//! **Invariants**
//! - A successful open makes the content it shows durable: the model continues from there.
//! - The store of a machine without power is dropped only after its power is permanently off, so that the
//!   drop cannot change the source of the image.

use std::sync::Arc;

use testudo_base::ErrorKind;
use testudo_env::{Env, FaultyEnv, MemEnv};

use super::{Answer, Runner, Wrong};
use crate::{
    model::Model,
    op::Crash,
    state::State,
    store::{RawScan, RawWalk, Store},
};

impl Runner<'_> {
    /// Takes the machine's disk as a power loss leaves it, and opens the store there.
    pub(super) fn recover_if_crashed(&mut self) -> Result<(), Wrong> {
        if !self.machine.is_crashed() || self.stays_dead {
            return Ok(());
        }
        let crash = self.arm.clone().expect("only an armed machine loses power in the middle of a call");
        self.report.armed_images += 1;
        self.crash(&crash)
    }

    /// Fails if the open store can be opened a second time.
    fn check_lock(&self) -> Result<(), Wrong> {
        let is_told = self.opener.is_exclusive() && self.faulty.is_none() && !self.machine.is_crashed();
        match is_told.then(|| self.opener.open(self.env())) {
            Some(Ok(_)) => Err("the store was opened twice at once".into()),
            Some(Err(error)) if error.kind() != ErrorKind::Locked && !self.machine.is_crashed() => {
                Err(format!("a second open: {error:?}, not Locked"))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn reopen(&mut self) -> Result<(), Wrong> {
        self.check_lock()?;
        self.snapshots.clear();
        let store = self.store.take().expect("every op starts with an open store");
        let result = store.close();
        if self.excuse(result).map_err(|wrong| format!("close: {wrong}"))?.is_some() {
            self.model.sync();
            // Operands without their operator are kept, and merged once the operator is available again.
            if self.report.reopens.is_multiple_of(2) {
                let worked = self.opener.work_without_operators(self.env());
                self.excuse(worked).map_err(|wrong| format!("without merge operators: {wrong}"))?;
            }
        }
        self.report.reopens += 1;
        self.compact()
    }

    /// Closes the store; returns the machine and the content of the store.
    pub fn close(mut self) -> Result<(Arc<MemEnv>, Model), Wrong> {
        self.snapshots.clear();
        let store = self.store.take().expect("every op starts with an open store");
        store.close().map_err(|error| format!("close: {error:?}"))?;
        self.model.sync();
        Ok((Arc::clone(&self.machine), self.model.clone()))
    }

    pub(super) fn kill(&mut self) -> Result<(), Wrong> {
        let image = self.machine.live_image();
        self.move_to(image);
        // Acknowledged writes survive the process.
        self.model.sync();
        self.report.kills += 1;
        self.compact()
    }

    pub(super) fn crash(&mut self, crash: &Crash) -> Result<(), Wrong> {
        self.crash_and_open(crash)?;
        let is_moving = self.store.as_ref().is_some_and(|store| store.is_moving());
        self.report.moving_images += usize::from(is_moving);
        let has_replaced_pages = self.store.as_ref().is_some_and(|store| store.has_replaced_pages());
        self.report.replaced_images += usize::from(has_replaced_pages);
        Ok(())
    }

    fn crash_and_open(&mut self, crash: &Crash) -> Result<(), Wrong> {
        let mut seed = crash.seed;
        let mut image = self.machine.crash_image(&crash.policy, seed);
        for &after in &crash.nested {
            self.report.crash_images += 1;
            self.move_to(image);
            self.machine.crash_after(after);
            let opened = self.opener.open(self.env());
            if !self.machine.is_crashed() {
                self.machine.crash_after(u64::MAX);
                return match opened {
                    Ok(store) => self.adopt(store),
                    Err(error) => {
                        let fail = |wrong| format!("open after a crash: {wrong}");
                        self.excuse(Err::<(), _>(error)).map_err(fail)?;
                        self.compact()
                    }
                };
            }
            drop(opened);
            self.report.nested_images += 1;
            seed = seed.wrapping_add(1);
            image = self.machine.crash_image(&crash.policy, seed);
        }
        self.report.crash_images += 1;
        self.move_to(image);
        self.compact()
    }

    /// Switches to another machine. The store on the old one ends without further I/O.
    fn move_to(&mut self, machine: Arc<MemEnv>) {
        self.machine.crash_after(0);
        self.snapshots.clear();
        self.store = None;
        self.arm = None;
        self.machine = machine;
        if self.faulty.is_some() {
            self.faulty = Some(FaultyEnv::new(Arc::clone(&self.machine) as _));
        }
    }

    /// Returns the environment that the store is opened with.
    pub fn env(&self) -> Arc<dyn Env> {
        match (&self.overlay, &self.faulty) {
            (Some(overlay), _) => overlay.over(&self.machine),
            (None, Some(faulty)) => Arc::clone(faulty) as _,
            (None, None) => Arc::clone(&self.machine) as _,
        }
    }

    /// Opens the store on the current machine and checks its content. Heals a device that fails or is full.
    pub(super) fn compact(&mut self) -> Result<(), Wrong> {
        for attempt in 0.. {
            let opened = self.opener.open(self.env());
            let result = match opened {
                Ok(store) => self.adopt_or_excuse(store),
                Err(error) => self.excuse(Err(error)),
            };
            if result.map_err(|wrong| format!("open: {wrong}"))?.is_some() {
                return Ok(());
            }
            if self.machine.is_crashed() {
                return self.recover_if_crashed();
            }
            if self.rules.tolerate_damage {
                self.ended = true;
                return Ok(());
            }
            assert!(attempt == 0, "a healthy device must not cause a tolerated error");
            self.machine.space_limit(None);
            if let Some(overlay) = &self.overlay {
                overlay.heal();
                self.healed = true;
            }
            if let Some(faulty) = &self.faulty {
                faulty.set_plan(None);
                self.healed = true;
            }
        }
        Ok(())
    }

    fn adopt(&mut self, store: Box<dyn Store>) -> Result<(), Wrong> {
        // Retry a failed read by opening once more, on a healed device.
        if self.adopt_or_excuse(store)?.is_none() { self.compact() } else { Ok(()) }
    }

    /// Compares the content of a freshly opened store with the allowed contents, and continues with it.
    fn adopt_or_excuse(&mut self, store: Box<dyn Store>) -> Result<Option<()>, Wrong> {
        let checked = store.check_invariants().and_then(|()| read_state(&*store));
        let Some(found) = self.excuse(checked)? else {
            return Ok(None);
        };
        let unsynced = self.model.unsynced_count();
        let lost = self.model.recover(&found)?;
        self.report.lost_commits += lost;
        self.report.kept_commits += unsynced.saturating_sub(lost);
        self.store = Some(store);
        Ok(Some(()))
    }
}

/// Reads all content of a store.
pub fn read_state(store: &dyn Store) -> Answer<State> {
    let slots = store.keyspaces()?;
    let read = |slot| Ok((slot, store.scan(slot, &RawScan::all(RawWalk::Forward))?));
    slots.into_iter().map(read).collect()
}
