//! Runs a script against a store and the model, and compares every answer.
//!
//! **Invariants**
//! - A run is a function of the opener, the seed of the environment, the fault plan and the script.
//! - An error is accepted only while the power is off or, with [`Rules::tolerate_faults`], if its kind
//!   indicates a device failure; an answer is accepted only if the model allows it.
//! - If power is lost during an op, the store is recovered from a crash image before the next op.

mod reads;
mod recovery;
mod writes;

use std::{collections::BTreeMap, fmt, sync::Arc};

pub use recovery::read_state;
use testudo_base::{Error, ErrorKind};
use testudo_env::{Env, FaultyEnv, MemEnv};

use crate::{
    Key, Script,
    model::Model,
    op::{Crash, Op, Slot},
    state::State,
    store::{Opener, RawScan, Store, View},
};

/// Strictness of a run.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Whether errors that indicate a device failure are accepted.
    pub tolerate_faults: bool,
    /// Whether a store that failed permanently or was closed is then accepted.
    pub may_fail_for_good: bool,
    /// Whether errors that report damage, with file and offset, are accepted; a store that cannot be opened
    /// because of damage ends the run.
    pub tolerate_damage: bool,
    /// Maximum ops between runs of `check_invariants`; ops on the files always run it.
    pub ops_between_checks: usize,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            tolerate_faults: false,
            may_fail_for_good: true,
            tolerate_damage: false,
            ops_between_checks: 32,
        }
    }
}

/// Counters of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Ops run.
    pub ops: usize,
    /// Clean closes.
    pub reopens: usize,
    /// Process ends without closing.
    pub kills: usize,
    /// Crash images opened.
    pub crash_images: usize,
    /// Of these, images taken during recovery.
    pub nested_images: usize,
    /// Of these, images taken in the middle of a call.
    pub armed_images: usize,
    /// Of these, images in which a keyspace is moving to another tree family.
    pub moving_images: usize,
    /// Of these, images with pages that were updated in place.
    pub replaced_images: usize,
    /// Unsynced commits that crashes and kills lost.
    pub lost_commits: usize,
    /// Unsynced commits that survived one.
    pub kept_commits: usize,
    /// Background jobs run.
    pub steps: usize,
    /// Errors accepted because of injected faults.
    pub tolerated_errors: usize,
}

impl std::ops::AddAssign for Report {
    fn add_assign(&mut self, other: Self) {
        self.ops += other.ops;
        self.reopens += other.reopens;
        self.kills += other.kills;
        self.crash_images += other.crash_images;
        self.nested_images += other.nested_images;
        self.armed_images += other.armed_images;
        self.moving_images += other.moving_images;
        self.replaced_images += other.replaced_images;
        self.lost_commits += other.lost_commits;
        self.kept_commits += other.kept_commits;
        self.steps += other.steps;
        self.tolerated_errors += other.tolerated_errors;
    }
}

/// A wrong answer.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Index of the op in the script, or the script's length if the final comparison failed.
    pub step: usize,
    /// The op.
    pub op: String,
    /// Description of the failure.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}, {}: {}", self.step, self.op, self.message)
    }
}

/// Description of the violation by one op.
type Wrong = String;
/// A result of the store.
type Answer<T> = testudo_base::Result<T>;

struct TakenSnapshot {
    view: Box<dyn View>,
    /// Content at the time it was taken; `None` if it was in doubt.
    state: Option<State>,
}

/// A layer between the store and its machine, for every machine of the run.
pub trait Overlay: Send + Sync {
    /// Returns the environment for the store on this machine.
    fn over(&self, machine: &Arc<MemEnv>) -> Arc<dyn Env>;
    /// Ends all faults except the machine's own.
    fn heal(&self);
}

/// A store, its machine and its model.
pub struct Runner<'a> {
    opener: &'a dyn Opener,
    rules: Rules,
    machine: Arc<MemEnv>,
    faulty: Option<Arc<FaultyEnv>>,
    overlay: Option<Arc<dyn Overlay>>,
    /// Before `store`: they are dropped first.
    snapshots: BTreeMap<u8, TakenSnapshot>,
    store: Option<Box<dyn Store>>,
    model: Model,
    arm: Option<Crash>,
    report: Report,
    healed: bool,
    /// Damage prevents the store from being opened or fully read; the run is over.
    ended: bool,
    /// Whether a machine without power is left as it is.
    stays_dead: bool,
}

impl<'a> Runner<'a> {
    /// Creates a runner on a fresh machine. The first op opens the store.
    pub fn new(opener: &'a dyn Opener, seed: u64) -> Self {
        Self::on(opener, MemEnv::new(seed))
    }

    /// Creates a runner on a given, empty machine.
    pub fn on(opener: &'a dyn Opener, machine: Arc<MemEnv>) -> Self {
        Self {
            opener,
            rules: Rules::default(),
            machine,
            faulty: None,
            overlay: None,
            snapshots: BTreeMap::new(),
            store: None,
            model: Model::default(),
            arm: None,
            report: Report::default(),
            healed: false,
            ended: false,
            stays_dead: false,
        }
    }

    /// Creates a runner on a machine that already holds a store, with the model of its allowed contents.
    pub fn resume(opener: &'a dyn Opener, machine: Arc<MemEnv>, model: Model) -> Self {
        Self { model, ..Self::on(opener, machine) }
    }

    /// Sets the rules.
    #[must_use]
    pub fn with_rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// Adds an environment with injected faults and tolerates device errors.
    #[must_use]
    pub fn with_faults(mut self) -> (Self, Arc<FaultyEnv>) {
        let machine: Arc<dyn Env> = Arc::clone(&self.machine) as _;
        let faulty = FaultyEnv::new(machine);
        self.faulty = Some(Arc::clone(&faulty));
        self.rules.tolerate_faults = true;
        (self, faulty)
    }

    /// Adds an overlay between the store and its machines.
    #[must_use]
    pub fn with_overlay(mut self, overlay: Arc<dyn Overlay>) -> Self {
        self.overlay = Some(overlay);
        self
    }

    /// From now on device errors are failures again.
    pub fn require_health(&mut self) {
        self.rules.tolerate_faults = false;
    }

    /// From now on a permanently failed store is a failure, regardless of the device.
    pub fn require_resuming(&mut self) {
        self.rules.may_fail_for_good = false;
    }

    /// From now on errors that indicate a device failure are accepted.
    pub fn tolerate_faults(&mut self) {
        self.rules.tolerate_faults = true;
    }

    /// From now on syncs guarantee nothing, see [`Model::distrust`].
    pub fn distrust(&mut self) {
        self.model.distrust();
    }

    /// Whether the store is open now.
    pub fn is_open(&self) -> bool {
        self.store.is_some()
    }

    /// Whether a power loss is planned.
    pub fn is_armed(&self) -> bool {
        self.arm.is_some()
    }

    /// Whether damage has ended the run.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Counters so far.
    pub fn report(&self) -> Report {
        self.report
    }

    /// The machine that the store currently runs on; every crash replaces it.
    pub fn machine(&self) -> &Arc<MemEnv> {
        &self.machine
    }

    /// Whether a fault prevented the store from opening, so that the device had to be healed.
    pub fn fault_was_healed(&self) -> bool {
        self.healed
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Runs all ops, then compares everything, reopens and compares again.
    pub fn run(&mut self, script: &Script) -> Result<Report, Failure> {
        self.run_ops(script)?;
        let failure = |message| Failure { step: script.0.len(), op: "the final comparison".into(), message };
        for op in [Op::Verify, Op::Reopen, Op::Verify] {
            self.op(&op).map_err(failure)?;
        }
        Ok(self.report)
    }

    /// Runs all ops.
    pub fn run_ops(&mut self, script: &Script) -> Result<Report, Failure> {
        for (step, op) in script.0.iter().enumerate() {
            self.op(op).map_err(|message| Failure { step, op: op.to_string(), message })?;
        }
        Ok(self.report)
    }

    /// Runs one op, recovers if power was lost, and checks the invariants.
    pub fn op(&mut self, op: &Op) -> Result<(), Wrong> {
        if self.ended {
            return Ok(());
        }
        self.report.ops += 1;
        if self.store.is_none() {
            if matches!(op, Op::Arm { .. }) {
                // The first open may also lose power.
                return self.perform(op);
            }
            self.compact()?;
        }
        if !self.ended {
            self.perform(op)?;
            self.recover_if_crashed()?;
        }
        if self.ended {
            return Ok(());
        }
        if op.is_structural() || self.report.ops.is_multiple_of(self.rules.ops_between_checks) {
            self.check_invariants()?;
            self.recover_if_crashed()?;
        }
        Ok(())
    }

    /// Opens the store if needed, runs one op and loses power permanently after `after` of its I/O
    /// operations. Returns false if the op makes fewer. The caller inspects the machine.
    pub fn lose_power_within(&mut self, op: &Op, after: u64) -> Result<bool, Wrong> {
        if self.store.is_none() {
            self.compact()?;
        }
        self.stays_dead = true;
        self.machine.crash_after(after);
        self.perform(op)?;
        Ok(self.machine.is_crashed())
    }

    fn perform(&mut self, op: &Op) -> Result<(), Wrong> {
        match op {
            Op::Create { keyspace } => self.create(*keyspace),
            Op::Drop { keyspace } => self.drop_keyspace(*keyspace),
            Op::SetTree { keyspace, choice } => self.set_tree(*keyspace, *choice),
            Op::Insert { keyspace, key, value } => self.put(*keyspace, &key.bytes(), Some(*value)),
            Op::Remove { keyspace, key } => self.put(*keyspace, &key.bytes(), None),
            Op::Merge { keyspace, key, operand } => self.merge(*keyspace, &key.bytes(), *operand),
            Op::Batch { writes, synced } => self.batch(writes, *synced),
            Op::Get { keyspace, key } => self.get(*keyspace, &key.bytes()),
            Op::MultiGet { keyspace, keys } => {
                self.multi_get(*keyspace, &keys.iter().map(Key::bytes).collect::<Vec<_>>())
            }
            Op::Scan { keyspace, scan } => self.scan(*keyspace, scan),
            Op::Update { keyspace, key, change } => self.update(*keyspace, &key.bytes(), *change),
            Op::Swap { keyspace, key, right, value } => self.swap(*keyspace, &key.bytes(), *right, *value),
            Op::Snapshot { slot } => self.snapshot(*slot),
            Op::SnapshotGet { slot, keyspace, key } => self.snapshot_get(*slot, *keyspace, &key.bytes()),
            Op::SnapshotScan { slot, keyspace, scan } => {
                self.snapshot_scan(*slot, *keyspace, &RawScan::of(scan))
            }
            Op::SnapshotCheck { slot } => self.snapshot_check(*slot),
            Op::SnapshotDrop { slot } => {
                self.snapshots.remove(slot);
                Ok(())
            }
            Op::Persist => self.sync(|store| store.persist()),
            Op::Flush => self.sync(|store| store.flush()),
            Op::CompactRange { keyspace, span } => self.compact_range(*keyspace, span),
            Op::Step { count } => self.steps(*count),
            Op::Reopen => self.reopen(),
            Op::Kill => self.kill(),
            Op::Crash(crash) => self.crash(crash),
            Op::Arm { after, crash } => {
                self.machine.crash_after(*after);
                self.arm = Some(crash.clone());
                Ok(())
            }
            Op::Verify => self.verify(),
        }
    }

    fn store(&self) -> &dyn Store {
        &**self.store.as_ref().expect("every op starts with an open store")
    }

    fn store_mut(&mut self) -> &mut dyn Store {
        &mut **self.store.as_mut().expect("every op starts with an open store")
    }

    /// Whether ops on the keyspace currently apply.
    fn applies(&self, keyspace: Slot) -> bool {
        self.model.live().has(keyspace) && !self.model.is_doubtful_keyspace(keyspace)
    }

    /// Returns the answer, or `None` for a tolerated error.
    fn excuse<T>(&mut self, result: Answer<T>) -> Result<Option<T>, Wrong> {
        match result {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if self.is_excused(&error) => Ok(None),
            Err(error) => Err(format!("unexpected error: {error:?}")),
        }
    }

    fn is_excused(&mut self, error: &Error) -> bool {
        let by_fault = self.rules.tolerate_faults
            && match error.kind() {
                ErrorKind::Io | ErrorKind::OutOfSpace => true,
                ErrorKind::Poisoned | ErrorKind::Closed => self.rules.may_fail_for_good,
                _ => false,
            };
        let by_damage = self.rules.tolerate_damage
            && error.kind() == ErrorKind::Corruption
            && error.location().is_some_and(|(file, _)| !file.is_empty());
        self.report.tolerated_errors += usize::from(by_fault || by_damage);
        by_fault || by_damage || self.machine.is_crashed()
    }

    fn sync(&mut self, call: impl FnOnce(&dyn Store) -> Answer<()>) -> Result<(), Wrong> {
        let result = call(self.store());
        if self.excuse(result)?.is_some() {
            self.model.sync();
        }
        Ok(())
    }

    fn steps(&mut self, count: u32) -> Result<(), Wrong> {
        for _ in 0..count {
            let result = self.store().step();
            if self.excuse(result)? != Some(true) {
                break;
            }
            self.report.steps += 1;
            self.check_invariants()?;
        }
        Ok(())
    }

    fn check_invariants(&mut self) -> Result<(), Wrong> {
        let result = self.store().check_invariants();
        self.excuse(result).map(drop).map_err(|wrong| format!("broken invariant: {wrong}"))
    }
}

#[cfg(test)]
mod tests;
