//! Processes that end at random moments: a real process is killed, exits or aborts while it writes. The store
//! must contain a prefix of the writes, including everything acknowledged.
//!
//! The test starts itself as the writing process. Both processes generate the same script from a seed; the
//! writer reports the number of acknowledged steps on a pipe. Another pipe orders a thread of the writer to
//! exit or to abort. After each end, the store must equal the model after some number of steps, at least the
//! reported one; then the next writer continues there. `TESTUDO_KILLS` sets the minimum number of ends per
//! scenario, `TESTUDO_KILL_SEED` the seed of the script.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "kill/script.rs"]
mod script;

use std::{
    collections::BTreeMap,
    env,
    io::{BufRead, BufReader, Read, Write},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{self, Child, ChildStdout, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use script::{KEYSPACES, MARKER, Model, Script, Step, step};
use testudo::{Db, Durability, Keyspace, KeyspaceOptions, KeyspaceStats, Tree, VerifyLevel};
use testudo_db::maintenance::Stepping as _;
use testudo_env::{Env, RealEnv, SplitMix};
use testudo_share::part_of;

const MEMORY_BYTES: u64 = 8 << 20;
/// Default number of ends.
const KILLS: u64 = 100;
const KILLS_BETWEEN_VERIFICATIONS: u64 = 10;
/// A scenario continues until this many ends, or its share of them, have left a store of interest.
const KILLS_OF_INTEREST: u64 = 5;
/// A scenario fails if it needs more than this multiple of the requested ends.
const KILLS_MAX_FACTOR: u64 = 20;

/// Workload of a writing process.
struct Scenario {
    name: &'static str,
    /// Trees between which keyspaces move, with parts so small that a move takes a while.
    trees: [Tree; 2],
    keys: u64,
    hot_percent: u8,
    loaded: u64,
    flushes: u64,
    moves: u64,
    long_values: u64,
    /// Values are placed by size, not all with their keys.
    is_parallax: bool,
    /// Whether a store is in the state that this scenario must produce several times.
    is_of_interest: fn(&Db) -> bool,
}

const SCENARIOS: [Scenario; 3] = [
    Scenario {
        name: "runs",
        trees: [
            Tree::turtle().with_run_bytes(4 << 10).with_max_pivots(8),
            Tree::leveled().with_run_bytes(4 << 10).with_growth_factor(4).with_level1_flushes(2),
        ],
        keys: 2000,
        hot_percent: 0,
        loaded: 0,
        flushes: 1,
        moves: 3,
        long_values: 10,
        is_parallax: false,
        is_of_interest: is_moving,
    },
    // Small updates spread over many pages.
    Scenario {
        name: "pages",
        trees: [
            Tree::treeline().with_run_bytes(64 << 10).with_growth_factor(64).with_level1_flushes(2),
            Tree::splinter().with_run_bytes(16 << 10).with_max_pivots(8),
        ],
        keys: 3000,
        hot_percent: 92,
        loaded: 1000,
        flushes: 200,
        moves: 0,
        long_values: 10,
        is_parallax: false,
        is_of_interest: has_replaced_pages,
    },
    // Most bytes are in value logs, value segments and pieces.
    Scenario {
        name: "values",
        trees: [
            Tree::lsbm()
                .with_run_bytes(16 << 10)
                .with_growth_factor(4)
                .with_level1_flushes(2)
                .with_retained_percent(100),
            Tree::turtle().with_run_bytes(16 << 10).with_max_pivots(8),
        ],
        keys: 1000,
        hot_percent: 0,
        loaded: 0,
        flushes: 20,
        moves: 3,
        long_values: 100,
        is_parallax: true,
        is_of_interest: has_value_segments,
    },
];
/// Steps that most writers acknowledge before they end.
const STEPS_AT_LEAST: u64 = 50;
/// A writer without a report for this long is considered hung.
const HANGS_AFTER: Duration = Duration::from_secs(300);

fn number_from_env(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

impl Scenario {
    fn script(&self, seed: u64) -> Script {
        let Self { keys, hot_percent, loaded, flushes, moves, long_values, .. } = *self;
        Script { seed, keys, hot_percent, loaded, flushes, moves, long_values }
    }

    fn options(&self) -> KeyspaceOptions {
        let options = if self.is_parallax { KeyspaceOptions::parallax() } else { KeyspaceOptions::default() };
        options.tree(self.trees[0])
    }
}

fn open(dir: &Path) -> Db {
    Db::builder(dir).memory_bytes(MEMORY_BYTES).open().unwrap()
}

/// Entry point of the writing process; does nothing as a test by itself.
#[test]
fn writing_process() {
    let Ok(dir) = env::var("TESTUDO_KILL_DIR") else { return };
    let seed = number_from_env("TESTUDO_KILL_SEED").unwrap();
    let name = env::var("TESTUDO_KILL_SCENARIO").unwrap();
    let scenario = SCENARIOS.iter().find(|scenario| scenario.name == name).unwrap();
    let script = scenario.script(seed);
    thread::Builder::new().spawn(end_when_told).unwrap();
    let db = open(Path::new(&dir));
    let keyspaces = KEYSPACES.map(|name| db.keyspace(name, scenario.options()).unwrap());
    for number in number_from_env("TESTUDO_KILL_FIRST").unwrap().. {
        perform(&db, &keyspaces, &scenario.trees, step(&script, number));
        // Bypasses the test harness, which would buffer the output. An error means that the parent has
        // exited.
        if std::io::stdout().write_all(format!("\nacknowledged {}\n", number + 1).as_bytes()).is_err() {
            return;
        }
        std::io::stdout().flush().unwrap();
    }
}

/// Ways to end a writing process.
#[derive(Clone, Copy, Debug)]
enum End {
    /// Killed by SIGKILL.
    Kill,
    /// Calls `exit`, which runs no destructor of the store.
    Exit,
    /// Calls `abort`.
    Abort,
}

// Signal numbers on Linux.
const SIGABRT: i32 = 6;
const SIGKILL: i32 = 9;
/// Orders that the parent writes to end the process.
const EXIT: u8 = b'e';
const ABORT: u8 = b'a';

/// Ends this process when the parent orders it.
fn end_when_told() {
    let mut order = [0];
    match std::io::stdin().read_exact(&mut order) {
        Ok(()) if order == [EXIT] => process::exit(0),
        Ok(()) if order == [ABORT] => process::abort(),
        Ok(()) => panic!("{order:?} is not an order"),
        // The parent has exited, or kills this process.
        Err(_) => {}
    }
}

/// Performs one step.
fn perform(db: &Db, keyspaces: &[Keyspace; 2], trees: &[Tree; 2], step: Step) {
    match step {
        Step::InPieces(write) => {
            let value = write.value.unwrap_or_default();
            let reader = &value[..];
            keyspaces[write.keyspace].insert_reader(write.key, value.len() as u64, reader).unwrap();
        }
        Step::Single(write) => {
            let keyspace = &keyspaces[write.keyspace];
            match write.value {
                Some(value) => keyspace.insert(write.key, value).unwrap(),
                None => keyspace.remove(write.key).unwrap(),
            }
        }
        Step::Batch { writes, synced } => {
            let mut batch = db.batch();
            for write in writes {
                let keyspace = &keyspaces[write.keyspace];
                match write.value {
                    Some(value) => batch.insert(keyspace, write.key, value),
                    None => batch.remove(keyspace, write.key),
                }
            }
            let durability = if synced { Durability::Sync } else { Durability::Buffered };
            batch.durability(durability).commit().unwrap();
        }
        Step::Persist => db.persist(Durability::Sync).unwrap(),
        Step::Flush => db.flush().unwrap(),
        Step::SetTree { keyspace, choice } => keyspaces[keyspace].set_tree(trees[choice]).unwrap(),
    }
}

/// Writing process that is killed on drop.
struct Writer {
    child: Child,
    acknowledged: Arc<AtomicU64>,
    reader: Option<thread::JoinHandle<()>>,
}

impl Writer {
    fn start(dir: &Path, scenario: &Scenario, seed: u64, first: u64) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "writing_process", "--nocapture", "--test-threads", "1"]);
        command.env("TESTUDO_KILL_DIR", dir).env("TESTUDO_KILL_SEED", seed.to_string());
        command.env("TESTUDO_KILL_SCENARIO", scenario.name);
        command.env("TESTUDO_KILL_FIRST", first.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let acknowledged = Arc::new(AtomicU64::new(0));
        let reports = child.stdout.take().unwrap();
        let told = Arc::clone(&acknowledged);
        let read = move || read_reports(reports, &told);
        let reader = thread::Builder::new().spawn(read).unwrap();
        Self { child, acknowledged, reader: Some(reader) }
    }

    /// Ends the process; returns the number of acknowledged steps.
    fn end(mut self, end: End) -> u64 {
        let mut order = |order: u8| {
            let pipe = self.child.stdin.as_mut().unwrap();
            pipe.write_all(&[order]).unwrap();
        };
        match end {
            End::Kill => self.child.kill().unwrap(),
            End::Exit => order(EXIT),
            End::Abort => order(ABORT),
        }
        let status = self.child.wait().unwrap();
        // Another signal, such as SIGBUS from a store to a truncated mapping, is not an abort.
        let expected = match end {
            End::Kill => (None, Some(SIGKILL)),
            End::Exit => (Some(0), None),
            End::Abort => (None, Some(SIGABRT)),
        };
        assert_eq!((status.code(), status.signal()), expected, "the writer ended by itself: {status}");
        self.reader.take().unwrap().join().unwrap();
        self.acknowledged.load(Ordering::SeqCst)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_reports(reports: ChildStdout, acknowledged: &AtomicU64) {
    for line in BufReader::new(reports).split(b'\n') {
        let line = String::from_utf8(line.unwrap()).unwrap();
        // A line truncated by the kill contains a smaller number, which `fetch_max` ignores.
        if let Some(number) = line.strip_prefix("acknowledged ").and_then(|number| number.parse::<u64>().ok())
        {
            acknowledged.fetch_max(number, Ordering::SeqCst);
        }
    }
}

/// Whether a keyspace is moving between families of trees.
fn is_moving(db: &Db) -> bool {
    has_keyspace(db, |stats| stats.moving.from.is_some())
}

/// Whether a keyspace has replaced pages.
fn has_replaced_pages(db: &Db) -> bool {
    has_keyspace(db, |stats| stats.tree.replaced_pages > 0)
}

/// Whether a keyspace has values outside its runs.
fn has_value_segments(db: &Db) -> bool {
    has_keyspace(db, |stats| stats.values.segments > 0)
}

fn has_keyspace(db: &Db, is_wanted: impl Fn(&KeyspaceStats) -> bool) -> bool {
    let mut keyspaces = KEYSPACES.iter().filter_map(|name| db.open_keyspace(name).unwrap());
    keyspaces.any(|keyspace| is_wanted(&keyspace.stats()))
}

/// Complete contents of the store.
fn state_of(db: &Db) -> Model {
    KEYSPACES.map(|name| {
        let Some(keyspace) = db.open_keyspace(name).unwrap() else { return BTreeMap::new() };
        let pair = |entry: testudo::Result<testudo::Entry>| {
            let entry = entry.unwrap();
            (entry.key().to_vec(), entry.value().unwrap().to_vec())
        };
        keyspace.iter().unwrap().map(pair).collect()
    })
}

/// Largest number of steps, at least `done`, after which the model equals `state`; advances `model` to it.
fn steps_in(state: &Model, model: &mut Model, script: &Script, done: u64) -> Option<u64> {
    let marked =
        state[0].get(MARKER).map_or(0, |value| u64::from_be_bytes(value[..].try_into().unwrap()) + 1);
    let mut number = done;
    while number < marked {
        script::apply(model, step(script, number));
        number += 1;
    }
    let mut ahead = model.clone();
    let mut found = None;
    loop {
        if ahead == *state {
            model.clone_from(&ahead);
            found = Some(number);
        }
        match step(script, number) {
            // A batch would have changed the marker.
            Step::Batch { .. } => return found,
            unmarked => script::apply(&mut ahead, unmarked),
        }
        number += 1;
    }
}

#[test]
fn killed_writer_leaves_an_acknowledged_prefix() {
    kill_writers(&SCENARIOS[0], number_from_env("TESTUDO_KILLS").unwrap_or(part_of(KILLS)));
}

#[test]
fn killed_writer_with_page_updates_leaves_an_acknowledged_prefix() {
    kill_writers(&SCENARIOS[1], number_from_env("TESTUDO_KILLS").unwrap_or(part_of(KILLS / 2)));
}

#[test]
fn killed_writer_with_value_segments_leaves_an_acknowledged_prefix() {
    kill_writers(&SCENARIOS[2], number_from_env("TESTUDO_KILLS").unwrap_or(part_of(KILLS / 2)));
}

#[derive(Debug, Default)]
struct Counts {
    kills: u64,
    of_interest: u64,
    steps: u64,
}

/// Ends at least `kills` writers, and more until the share of [`KILLS_OF_INTEREST`] stores were of interest.
/// Their number depends on the seed and the machine.
fn kill_writers(scenario: &Scenario, kills: u64) {
    let of_interest = part_of(KILLS_OF_INTEREST);
    let machine = RealEnv::new();
    let seed = number_from_env("TESTUDO_KILL_SEED").unwrap_or_else(|| machine.random_u64() >> 32);
    println!("replay with TESTUDO_KILL_SEED={seed} TESTUDO_KILLS={kills}");
    let script = scenario.script(seed);
    let place = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let dir = place.path().join("store");
    let mut chance = SplitMix::new(seed);
    let mut model = Model::default();
    let mut done = 0;
    // Writers that ran until they had acknowledged something: each of them advances by at least one step.
    let mut heard = 0;
    let mut counts = Counts::default();
    while counts.kills < kills || counts.of_interest < of_interest {
        assert!(counts.kills < kills.max(KILLS) * KILLS_MAX_FACTOR, "{counts:?}");
        counts.kills += 1;
        let kill = counts.kills;
        let writer = Writer::start(&dir, scenario, seed, done);
        if chance.percent(75) {
            heard += 1;
            let started = machine.monotonic();
            while writer.acknowledged.load(Ordering::SeqCst) < done + STEPS_AT_LEAST {
                assert!(machine.monotonic() - started < HANGS_AFTER, "the writer never writes");
                machine.sleep(Duration::from_millis(1));
            }
            machine.sleep(Duration::from_millis(chance.below(120)));
        } else {
            // May hit the creation or recovery of the store.
            machine.sleep(Duration::from_micros(chance.below(60_000)));
        }
        let end = [End::Kill, End::Kill, End::Exit, End::Abort][usize::try_from(chance.below(4)).unwrap()];
        let acknowledged = writer.end(end).max(done);
        if !dir.exists() {
            continue;
        }
        let verified = kill % KILLS_BETWEEN_VERIFICATIONS == 0;
        let reader = Db::builder(&dir).memory_bytes(MEMORY_BYTES).read_only();
        // Half of the kills leave recovery to the next writer, so that recovery can be killed as well.
        let db = if verified || chance.percent(50) {
            open(&dir)
        } else {
            match reader.open() {
                Ok(db) => db,
                // Killed before the store was created.
                Err(error) if done == 0 && acknowledged == 0 => {
                    println!("kill {kill}: {error}");
                    continue;
                }
                Err(error) => panic!("kill {kill}: {error}"),
            }
        };
        counts.of_interest += u64::from((scenario.is_of_interest)(&db));
        db.check_invariants().unwrap();
        if verified {
            let report = db.verify(VerifyLevel::Full).unwrap();
            assert!(report.is_valid(), "kill {kill}: {:?}", report.findings);
        }
        let found = steps_in(&state_of(&db), &mut model, &script, done);
        db.close().unwrap();
        let survived =
            found.unwrap_or_else(|| panic!("{end:?} {kill}: the survivors are not a prefix (seed {seed})"));
        assert!(
            survived >= acknowledged,
            "{end:?} {kill}: {acknowledged} steps were acknowledged, {survived} survived (seed {seed})"
        );
        done = survived;
    }
    counts.steps = done;
    println!("{}: {counts:?}", scenario.name);
    assert!(done >= heard, "{heard} writers acknowledged something, {done} steps survived");
}
