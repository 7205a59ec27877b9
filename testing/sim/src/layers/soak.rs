#![expect(clippy::unwrap_used, reason = "the layer reports a panic as a failure")]
//! One real store for a long time: rounds of reads and writes, each with another device fault, followed by a
//! close, an open and a check of every key. Answers stay right, and memory, descriptors and space stay flat.
//!
//! Two writers own half of the keys each and track the allowed versions of each key. All trees are keyspaces
//! of the same store. The process is measured between rounds; the last third must not exceed the middle
//! third.
//!
//! **Invariants**
//! - In a round without a fault no error is tolerated.
//! - Measurements are taken while no writer runs. Rounds of the first third are not judged, because caches
//!   fill. Space is judged only in runs of at least 30 rounds.

mod gauges;
mod writer;

use std::{path::PathBuf, sync::Arc, thread};

use gauges::{Gauges, Sample};
use testudo::{Db, Keyspace, VerifyLevel};
use testudo_db::maintenance::Stepping as _;
use testudo_env::{Env, FaultError, FaultPlan, FaultyEnv, IoClass, RealEnv, SplitMix};
use testudo_testkit::{
    Profile,
    campaign::catch_panic,
    configuration::{Configuration, trees},
    engine_store::EngineOpener,
};
use writer::Writer;

use crate::{
    Amount, LayerReport, Limits,
    sweep::{Outcome, chosen, counted, judge, require},
};

pub(crate) const NAME: &str = "soak";
pub(crate) const UNIT: &str = "rounds";

const ROUNDS_SHORT: u64 = 9;
const MEMORY_BYTES: u64 = 16 << 20;
/// Operations per writer and round, in a short run and in a longer one.
const OPS_PER_ROUND_SHORT: u64 = 2_500;
const OPS_PER_ROUND: u64 = 6_000;
const KEYS_PER_WRITER: u32 = 12_000;
const WRITERS: u32 = 2;
/// A keyspace that exists for one round.
const SCRATCH: &str = "scratch";
const SCRATCH_ENTRIES: u32 = 2_000;

/// Faults by round; `None` is a round without a fault.
const FAULTS: [Option<(&str, IoClass, FaultError, bool)>; 9] = [
    None,
    Some(("a failed write", IoClass::Write, FaultError::Device, false)),
    Some(("failed syncs", IoClass::Sync, FaultError::Device, true)),
    None,
    Some(("failed reads", IoClass::Read, FaultError::Device, true)),
    Some(("a full device", IoClass::Write, FaultError::NoSpace, true)),
    Some(("no descriptor", IoClass::Create, FaultError::NoDescriptor, true)),
    Some(("a failed removal", IoClass::Remove, FaultError::Device, false)),
    Some(("no space ahead", IoClass::Allocate, FaultError::NoSpace, true)),
];

/// The store and its expected state.
struct Soak {
    env: Arc<FaultyEnv>,
    opener: EngineOpener,
    directory: PathBuf,
    random: SplitMix,
    writers: Vec<Writer>,
    ops_per_round: u64,
    report: LayerReport,
    _guard: tempfile::TempDir,
}

/// The permanent keyspaces: one for each tree.
fn configurations() -> Vec<Configuration> {
    let of_tree = |(tree, options)| Configuration {
        name: format!("{tree}/soak"),
        opener: EngineOpener { options, memory_bytes: MEMORY_BYTES },
        profile: Profile::default(),
    };
    trees().into_iter().map(of_tree).collect()
}

/// Runs the layer.
pub fn run(limits: &Limits) -> Outcome {
    let configurations = chosen(NAME, limits, configurations())?;
    let clock = RealEnv::new();
    let seed = limits.seed.unwrap_or_else(|| clock.random_u64() >> 16);
    let started = clock.monotonic();
    let is_over = |rounds| match limits.amount {
        Amount::Time(time) => clock.monotonic().saturating_sub(started) >= time,
        Amount::Short | Amount::Count(_) => rounds >= limits.count_or(ROUNDS_SHORT),
    };
    let report = judge(NAME, limits.configuration.as_deref(), Some(seed), || {
        let is_short = limits.amount == Amount::Short;
        let ops_per_round = if is_short { OPS_PER_ROUND_SHORT } else { OPS_PER_ROUND };
        let mut soak = Soak::new(&configurations, seed, ops_per_round)?;
        soak.fill(&configurations);
        let mut samples = Vec::new();
        let mut rounds = 0;
        while !is_over(rounds) {
            samples.push(soak.round(&configurations, rounds));
            rounds += 1;
            limits.tick(1);
        }
        let mut report = soak.report;
        report.merge(Gauges(samples).judge()?);
        report.merge(counted(UNIT, usize::try_from(rounds).unwrap()));
        Ok(report)
    })?;
    require(NAME, limits, &report, &[("faults met", 4), ("keys checked", 100_000)])?;
    Ok(report)
}

impl Soak {
    fn new(configurations: &[Configuration], seed: u64, ops_per_round: u64) -> Result<Self, String> {
        let guard = tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
        let opener = configurations[0].opener.clone();
        let keyspaces = u32::try_from(configurations.len()).unwrap();
        let writers = (0..WRITERS)
            .map(|number| Writer::new(number, WRITERS, KEYS_PER_WRITER, keyspaces, seed ^ u64::from(number)));
        Ok(Self {
            env: FaultyEnv::new(RealEnv::new()),
            opener,
            directory: guard.path().join("db"),
            random: SplitMix::new(seed),
            writers: writers.collect(),
            ops_per_round,
            report: LayerReport::default(),
            _guard: guard,
        })
    }

    fn open(&self, configurations: &[Configuration]) -> (Db, Vec<Keyspace>) {
        let env: Arc<dyn Env> = Arc::clone(&self.env) as _;
        let db = self.opener.open_db(env, &self.directory).unwrap();
        let keyspace = |each: &Configuration| db.keyspace(&each.name, || each.opener.options).unwrap();
        let keyspaces = configurations.iter().map(keyspace).collect();
        (db, keyspaces)
    }

    /// Writes every key once, so that later writes replace and do not add.
    fn fill(&mut self, configurations: &[Configuration]) {
        let (db, keyspaces) = self.open(configurations);
        self.writers.iter_mut().for_each(|writer| writer.fill(&keyspaces).unwrap());
        drop(keyspaces);
        db.close().unwrap();
    }

    /// Works under one fault, closes, opens, checks everything and measures.
    fn round(&mut self, configurations: &[Configuration], number: u64) -> Sample {
        let fault = FAULTS[usize::try_from(number).unwrap() % FAULTS.len()];
        let (db, keyspaces) = self.open(configurations);
        if let Some((_, class, error, is_lasting)) = fault {
            // Every round makes more reads, writes and syncs than these at any speed, so such faults always
            // strike.
            let skip = self.random.below(match class {
                IoClass::Read => 200,
                IoClass::Write => 20,
                IoClass::Sync => 5,
                // Rare calls.
                _ => 3,
            });
            let plan = FaultPlan::once(skip, error).of_class(class);
            self.env.set_plan(Some(if is_lasting { plan.for_good() } else { plan }));
        }
        let errors = self.work(&db, &keyspaces);
        let resident = gauges::resident_bytes();
        drop(keyspaces);
        let closed = db.close();
        let failures = self.env.failures();
        self.env.set_plan(None);
        if let Some(error) = errors.first().or(closed.as_ref().err())
            && failures.is_empty()
        {
            panic!("round {number}: an error though no call failed: {error}");
        }
        if let Some((name, ..)) = fault
            && !failures.is_empty()
        {
            self.report.add("faults met", 1);
            self.report.add(format!("rounds with {name}"), 1);
        }
        let is_clean = failures.is_empty();
        self.report.add("ops", self.ops_per_round * u64::from(WRITERS));
        self.report.add("errors told", errors.len().try_into().unwrap());
        self.check(configurations, number, is_clean, resident)
    }

    /// Runs the writers and the temporary keyspace of this round; returns the errors.
    fn work(&mut self, db: &Db, keyspaces: &[Keyspace]) -> Vec<testudo::Error> {
        let mut errors = Vec::new();
        let ops = self.ops_per_round;
        if let Err(error) = churn_keyspace(db) {
            errors.push(error);
        }
        thread::scope(|scope| {
            let threads: Vec<_> = self
                .writers
                .iter_mut()
                .map(|writer| scope.spawn(|| catch_panic(|| writer.work(db, keyspaces, ops))))
                .collect();
            for thread in threads {
                match thread.join().expect("panics are caught") {
                    Ok(found) => errors.extend(found),
                    Err(panic) => panic!("{panic}"),
                }
            }
        });
        errors
    }

    /// Opens the store after the fault, checks every key and measures.
    fn check(
        &mut self,
        configurations: &[Configuration],
        number: u64,
        is_clean: bool,
        resident: u64,
    ) -> Sample {
        let (db, keyspaces) = self.open(configurations);
        let mut live_bytes = 0;
        for writer in &mut self.writers {
            live_bytes += writer.check(&keyspaces, is_clean);
            self.report.add("keys checked", u64::from(KEYS_PER_WRITER));
        }
        db.drop_keyspace(SCRATCH).unwrap();
        db.flush().unwrap();
        db.compact().unwrap();
        if number.is_multiple_of(5) {
            db.check_invariants().unwrap();
            let verified = db.verify(VerifyLevel::Full).unwrap();
            assert!(verified.is_valid(), "round {number}: {verified:?}");
        }
        let sample = Sample {
            resident_bytes: resident.max(gauges::resident_bytes()),
            descriptors: gauges::descriptors(),
            disk_bytes: db.stats().space.disk_bytes,
            live_bytes,
        };
        drop(keyspaces);
        db.close().unwrap();
        sample
    }
}

/// Creates and drops a keyspace, which must not leave anything behind.
fn churn_keyspace(db: &Db) -> testudo::Result<()> {
    let keyspace = db.keyspace(SCRATCH, testudo::KeyspaceOptions::default)?;
    for number in 0..SCRATCH_ENTRIES {
        keyspace.insert(number.to_be_bytes(), [7; 100])?;
    }
    let mut count = 0;
    for entry in keyspace.iter()? {
        entry?;
        count += 1;
    }
    assert_eq!(count, SCRATCH_ENTRIES, "entries of a new keyspace");
    drop(keyspace);
    db.drop_keyspace(SCRATCH).map(|_| ())
}
