//! A real device is filled completely and then emptied by removals, with kills in between: every removal is
//! eventually accepted, and then at least half as many records fit again as at first.
//!
//! **Invariants**
//! - A kill ends all writing: from one moment on every call of the process fails.
//! - The number of refusals is not judged, only whether there is progress: background work may take as long
//!   as it needs.

use std::{path::Path, sync::Arc, time::Duration};

use testudo::{Db, Durability, ErrorKind, Keyspace, KeyspaceOptions, Tree, VerifyLevel};
use testudo_base::num::{u64_of, usize_of};
use testudo_env::{Env, FaultError, FaultPlan, FaultyEnv, RealEnv, SplitMix};
use testudo_testkit::engine_store::EngineOpener;

use super::{Device, close};
use crate::{Amount, LayerReport, Limits, sweep::counted};

/// Maximum time of a refusal without background work, and maximum rounds and jobs to free space. On a busy
/// machine each can take long; this only detects a hang.
const PATIENCE: Duration = Duration::from_secs(120);
const WORK_MAX: u64 = 2_000;
/// A store that refuses writes for this long, through several checks of the background, is full.
const FULL_AFTER: Duration = Duration::from_secs(2);
/// Delay before a refused call is retried.
const PAUSE: Duration = Duration::from_millis(20);
/// Parts in which a device is emptied; after each the store is closed, killed or flushed.
const PARTS: u64 = 9;
/// Divisor of the first fill: this part of its records must fit again.
const AGAIN_PARTS: u64 = 2;

/// A device, and the store on it.
#[derive(Clone, Debug)]
pub(super) struct Emptying {
    /// `tree/size-budget`, in MiB.
    pub(super) name: String,
    tree: Tree,
    device_mib: u64,
    budget_mib: u64,
}

/// The selected devices: the one named `tree/size-budget`, of any size. Otherwise one small device for each
/// tree in the short form, the first in its tenth, and devices known to be difficult in the long form.
pub(super) fn selected(limits: &Limits) -> Vec<Emptying> {
    if let Some(name) = &limits.configuration {
        return Emptying::of_name(name).into_iter().collect();
    }
    let sizes: &[(u64, u64)] = if limits.amount == Amount::Short {
        &[(32, 4)]
    } else {
        &[(32, 4), (80, 4), (80, 8), (80, 16), (180, 4), (180, 16)]
    };
    let trees = limits.some_of(["turtle", "splinter", "leveled"], 3);
    let names = trees.flat_map(|tree| {
        sizes.iter().map(move |(device_mib, budget_mib)| format!("{tree}/{device_mib}-{budget_mib}"))
    });
    names.filter_map(|name| Emptying::of_name(&name)).collect()
}

/// A store with a process that can be killed.
struct Running {
    faults: Arc<FaultyEnv>,
    db: Db,
    keyspace: Keyspace,
}

fn failed(what: &str, error: &testudo::Error) -> String {
    format!("{what}: {error:?}")
}

impl Emptying {
    /// Parses the device of a name, if it is one of these.
    fn of_name(name: &str) -> Option<Self> {
        let (tree, sizes) = name.split_once('/')?;
        let tree = tree.parse().ok()?;
        let (device_mib, budget_mib) = sizes.split_once('-')?;
        let (device_mib, budget_mib) = (device_mib.parse().ok()?, budget_mib.parse().ok()?);
        Some(Self { name: name.into(), tree, device_mib, budget_mib })
    }

    pub(super) fn image_bytes(&self) -> u64 {
        self.device_mib << 20
    }

    fn open(&self, device: &Path) -> Result<Running, String> {
        let faults = FaultyEnv::new(RealEnv::new());
        let options = KeyspaceOptions::default().tree(self.tree);
        let opener = EngineOpener { options, memory_bytes: self.budget_mib << 20 };
        let db = opener.open_db(faults.clone(), &device.join("db"));
        let db = db.map_err(|error| failed("open", &error))?;
        let keyspace = db.keyspace("k", || options).map_err(|error| failed("keyspace", &error))?;
        Ok(Running { faults, db, keyspace })
    }

    /// Runs it on a mounted device.
    pub(super) fn run(&self, device: &Device) -> Result<LayerReport, String> {
        let directory = device.directory();
        let mut running = self.open(&directory)?;
        let taken = fill(&running, 0)?;
        if taken * u64_of(pair(0).1.len()) < self.image_bytes() / 8 {
            return Err(format!("only {taken} records fit at first: {:?}", running.db.stats()));
        }
        for part in 0..PARTS {
            let (from, to) = (taken * part / PARTS, taken * (part + 1) / PARTS);
            for number in from..to {
                remove(&running, number)?;
            }
            running = match part % 3 {
                0 => self.kill(running, &directory)?,
                1 => self.reopen(running, &directory)?,
                _ => running,
            };
            check(&running, to..taken)?;
        }
        let again = fill(&running, taken)?;
        if again < taken / AGAIN_PARTS {
            return Err(format!("{taken} records fit at first, then only {again}: {:?}", running.db.stats()));
        }
        check(&running, taken..taken + again)?;
        let found = running.db.verify(VerifyLevel::Full).map_err(|error| failed("verify", &error))?;
        if let Some(finding) = found.findings.first() {
            return Err(format!("verify: {finding}"));
        }
        let Running { db, keyspace, .. } = running;
        close(db, keyspace, "at the end")?;
        let mut report = counted("devices emptied", 1);
        report.add("writes until full", taken + again);
        report.add("removals while full", taken);
        Ok(report)
    }

    fn reopen(&self, running: Running, device: &Path) -> Result<Running, String> {
        let Running { db, keyspace, .. } = running;
        close(db, keyspace, "while it is emptied")?;
        self.open(device)
    }

    /// Ends the process; background work may be in the middle of freeing space.
    fn kill(&self, running: Running, device: &Path) -> Result<Running, String> {
        running.db.persist(Durability::Buffered).map_err(|error| failed("persist", &error))?;
        running.faults.set_plan(Some(FaultPlan::once(0, FaultError::Device).for_good()));
        drop(running);
        self.open(device)
    }
}

fn pair(number: u64) -> (Vec<u8>, Vec<u8>) {
    let mut value = vec![0; 700 + usize_of(number % 5) * 150];
    SplitMix::new(number).fill(&mut value);
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec(), value)
}

/// Writes until every write is refused for a while; returns the number of records written.
fn fill(running: &Running, first: u64) -> Result<u64, String> {
    let clock = RealEnv::new();
    let mut number = first;
    let mut refused_since = None;
    loop {
        let (key, value) = pair(number);
        match running.keyspace.insert(&key, &value) {
            Ok(()) => (number, refused_since) = (number + 1, None),
            Err(error) if error.kind() == ErrorKind::OutOfSpace => {
                let now = clock.monotonic();
                if now - *refused_since.get_or_insert(now) >= FULL_AFTER {
                    return Ok(number - first);
                }
                clock.sleep(PAUSE);
            }
            Err(error) => return Err(failed("insert", &error)),
        }
    }
}

fn remove(running: &Running, number: u64) -> Result<(), String> {
    let clock = RealEnv::new();
    let work = || running.db.stats().flush.count + running.db.stats().jobs.count;
    let mut refused: Option<(u64, u64, Duration)> = None;
    while let Err(error) = running.keyspace.remove(pair(number).0) {
        let (done, now) = (work(), clock.monotonic());
        let (first, last, since) = refused.get_or_insert((done, done, now));
        if done > *last {
            (*last, *since) = (done, now);
        }
        let is_patient = now - *since < PATIENCE && done - *first < WORK_MAX;
        if error.kind() != ErrorKind::OutOfSpace || !is_patient {
            return Err(format!("removal {number}: {error:?}, {:?}", running.db.stats()));
        }
        clock.sleep(PAUSE);
    }
    Ok(())
}

/// Checks that the store holds exactly these records.
fn check(running: &Running, numbers: std::ops::Range<u64>) -> Result<(), String> {
    let mut expected: Vec<(Vec<u8>, u64)> = numbers.map(|number| (pair(number).0, number)).collect();
    expected.sort_unstable();
    let mut left = expected.into_iter();
    for entry in running.keyspace.iter().map_err(|error| failed("scan", &error))? {
        let (key, value) =
            entry.and_then(testudo::Entry::into_pair).map_err(|error| failed("scan", &error))?;
        let is_right = left.next().is_some_and(|(wanted, number)| wanted == *key && pair(number).1 == *value);
        if !is_right {
            return Err("scan: an unexpected or wrong pair".into());
        }
    }
    left.next().map_or(Ok(()), |(_, number)| Err(format!("scan: record {number} is missing")))
}
