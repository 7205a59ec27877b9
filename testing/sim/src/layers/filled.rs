//! A device that other programs fill: the store accepts every removal immediately, in any state, and then has
//! space for writes again.
//!
//! The others take the free space at once, while the store is open with full write buffers, closed, or
//! killed, and leave little or nothing. The store is not notified.
//!
//! **Invariants**
//! - Background work had time before the others fill the device, as on any machine: it checks the device each
//!   time it becomes idle.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use testudo::{Db, Durability, Error, Keyspace, Result};
use testudo_base::num::{u64_of, usize_of};
use testudo_db::maintenance::Stepping as _;
use testudo_env::{CrashPolicy, MemEnv, SplitMix};
use testudo_testkit::{
    configuration::{Configuration, crash_configurations},
    engine_store::EngineOpener,
};

use crate::{
    LayerReport, Limits,
    layers::removals::rest,
    sweep::{Enough, Outcome, chosen, judge, search},
};

pub(crate) const NAME: &str = "filled";
pub(crate) const UNIT: &str = "removals";

const REMOVALS_SHORT: u64 = 300_000;
/// Size of the device in bytes.
const DEVICE_BYTES: u64 = 64 << 20;
/// Maximum bytes that others leave.
const LEFT_BYTES: u64 = 1 << 20;
/// Writes that must succeed once everything is removed.
const WRITES_AFTERWARDS: u64 = 10;
/// Writes per background step while a store is loaded.
const WRITES_PER_STEP: u64 = 200;

/// Runs the layer.
pub fn run(limits: &Limits) -> Outcome {
    let configurations = chosen(NAME, limits, crash_configurations())?;
    let enough = Enough { unit: UNIT, count: limits.share_or(REMOVALS_SHORT) };
    search(
        limits,
        &configurations,
        enough,
        |_| Ok(()),
        |configuration, seed| {
            judge(NAME, Some(&configuration.name), Some(seed), || {
                let mut device = Device::new(configuration, seed);
                let outcome = device.run();
                outcome.map_err(|what| format!("{what} ({})", device.name))
            })
        },
    )
}

/// State in which others find the store.
#[derive(Clone, Copy, Debug)]
enum Found {
    Open,
    Closed,
    Killed,
}

struct Device {
    name: String,
    random: SplitMix,
    machine: Arc<MemEnv>,
    opener: EngineOpener,
    found: Found,
    left_bytes: u64,
    records: u64,
    value_bytes: u64,
    overwrites_percent: u64,
    model: BTreeMap<Vec<u8>, Vec<u8>>,
}

type Open = (Db, Keyspace);

fn failed(what: &str, error: &Error) -> String {
    format!("{what}: {error:?}")
}

impl Device {
    fn new(configuration: &Configuration, seed: u64) -> Self {
        let mut random = SplitMix::new(seed);
        let memory_bytes = (1 << 20) << random.below(6);
        let value_bytes = [20, 100, 400, 2_000][usize_of(random.below(4))];
        let records = (1 << 19) / (value_bytes + 20) * (1 + random.below(6));
        let found = [Found::Open, Found::Closed, Found::Killed][usize_of(random.below(3))];
        let left_bytes = if random.percent(50) { 0 } else { random.below(LEFT_BYTES) };
        let overwrites_percent = random.below(60);
        let machine = MemEnv::new(seed);
        machine.space_limit(Some(DEVICE_BYTES));
        Self {
            name: format!(
                "budget {memory_bytes}, {records} records of {value_bytes}, {overwrites_percent} % written \
                 again, found {found:?}, {left_bytes} bytes left"
            ),
            random,
            machine,
            opener: EngineOpener { memory_bytes, ..configuration.opener.clone() },
            found,
            left_bytes,
            records,
            value_bytes,
            overwrites_percent,
            model: BTreeMap::new(),
        }
    }

    fn open(&self) -> std::result::Result<Open, String> {
        let open = || -> Result<Open> {
            let db = self.opener.open_db(self.machine.clone(), Path::new("/db"))?;
            let keyspace = db.keyspace("k", || self.opener.options)?;
            Ok((db, keyspace))
        };
        open().map_err(|error| failed("open", &error))
    }

    fn run(&mut self) -> std::result::Result<LayerReport, String> {
        let open = self.open()?;
        self.load(&open).map_err(|error| failed("load", &error))?;
        let (db, keyspace) = self.meet_others(open)?;
        let mut keys: Vec<Vec<u8>> = self.model.keys().cloned().collect();
        if self.random.percent(70) {
            self.shuffle(&mut keys);
        }
        let count = u64_of(keys.len());
        for (number, key) in keys.into_iter().enumerate() {
            if let Err(error) = keyspace.remove(&key) {
                return Err(format!("removal {number} of {count}: {error:?}, {:?}", db.stats()));
            }
            self.model.remove(&key);
            if self.random.percent(1) && self.random.percent(30) {
                let _ = db.step();
            }
            if number % 8_000 == 7_999 {
                self.check(&keyspace)?;
            }
        }
        self.check(&keyspace)?;
        // All work is done, and there is space again.
        rest(&db)?;
        for number in 0..WRITES_AFTERWARDS {
            let inserted = keyspace.insert(key(number), vec![1; usize_of(self.value_bytes)]);
            inserted.map_err(|error| format!("write {number}: {error:?}, {:?}", db.stats()))?;
        }
        db.check_invariants().map_err(|error| failed("structure", &error))?;
        db.close().map_err(|error| failed("close", &error))?;
        let mut report = LayerReport::default();
        report.add("devices", 1);
        report.add(UNIT, count);
        Ok(report)
    }

    fn load(&mut self, (db, keyspace): &Open) -> Result<()> {
        let overwrites = self.records * self.overwrites_percent / 100;
        for write in 0..self.records + overwrites {
            let number = if write < self.records { write } else { self.random.below(self.records) };
            let mut value = vec![0; usize_of(self.value_bytes)];
            self.random.fill(&mut value);
            keyspace.insert(key(number), &value)?;
            self.model.insert(key(number), value);
            if write % WRITES_PER_STEP == 0 {
                let _ = db.step()?;
            }
        }
        db.step().map(drop)
    }

    /// Lets others fill the device.
    fn meet_others(&mut self, open: Open) -> std::result::Result<Open, String> {
        match self.found {
            Found::Open => {
                self.fill();
                return Ok(open);
            }
            Found::Closed => {
                let (db, keyspace) = open;
                drop(keyspace);
                db.close().map_err(|error| failed("close", &error))?;
                self.fill();
            }
            Found::Killed => {
                open.0.persist(Durability::Buffered).map_err(|error| failed("persist", &error))?;
                self.machine = self.machine.crash_image(&CrashPolicy::KEEP_ALL, self.random.next_u64());
                self.fill();
                drop(open);
            }
        }
        let open = self.open()?;
        self.check(&open.1)?;
        Ok(open)
    }

    fn fill(&self) {
        self.machine.space_limit(Some(self.machine.used_bytes() + self.left_bytes));
    }

    fn shuffle(&mut self, keys: &mut [Vec<u8>]) {
        for at in (1..keys.len()).rev() {
            keys.swap(at, usize_of(self.random.below(u64_of(at) + 1)));
        }
    }

    /// Checks that the store holds the content of the model.
    fn check(&self, keyspace: &Keyspace) -> std::result::Result<(), String> {
        let mut left = self.model.iter();
        for entry in keyspace.iter().map_err(|error| failed("scan", &error))? {
            let (key, value) =
                entry.and_then(testudo::Entry::into_pair).map_err(|error| failed("scan", &error))?;
            if left.next().is_none_or(|(k, v)| *key != **k || *value != **v) {
                return Err(format!("{key:?} is unexpected or has a wrong value"));
            }
        }
        left.next().map_or(Ok(()), |(key, _)| Err(format!("{key:?} is missing")))
    }
}

/// Returns a key; keys are spread over the key space.
fn key(number: u64) -> Vec<u8> {
    let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [spread.to_be_bytes(), number.to_be_bytes()].concat()
}
