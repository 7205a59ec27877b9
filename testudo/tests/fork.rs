//! Forks: every call on a handle inherited by a child fails, and harms nothing.
//!
//! The test starts itself as the process that forks: a store under load, handles of every kind, and a child
//! that uses and drops all of them while other processes try to open the store. `TESTUDO_FORKS` sets the
//! number of forks, `TESTUDO_FORK_SEED` the seed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "fork/calls.rs"]
mod calls;
#[path = "fork/child.rs"]
mod child;
#[path = "fork/scenarios.rs"]
mod scenarios;

use std::{
    env,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
};

use testudo::{Db, ErrorKind};
use testudo_env::{Env, RealEnv};
use testudo_share::part_of;

/// Forks of all scenarios together, in the short form.
const FORKS: u64 = 200;

fn number_from_env(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// A process that forks; does nothing when run as a test.
#[test]
fn forking_process() {
    let Ok(scenario) = env::var("TESTUDO_FORK_SCENARIO") else { return };
    let directory = env::var("TESTUDO_FORK_DIR").unwrap();
    let (first, count) = (number_from_env("TESTUDO_FORK_SEED").unwrap(), number_from_env("TESTUDO_FORKS"));
    let run = scenarios::find(&scenario);
    for seed in first..first + count.unwrap() {
        run(Path::new(&directory), seed);
    }
}

/// A process that tries to open a store and prints the outcome; does nothing when run as a test.
#[test]
fn opening_process() {
    let Ok(directory) = env::var("TESTUDO_FORK_OPEN") else { return };
    for is_reader in [false, true] {
        let builder = Db::builder(&directory).memory_bytes(1 << 20).create(false);
        let opened = if is_reader { builder.read_only().open() } else { builder.open() };
        let said = match opened {
            Ok(db) => db.close().map_or_else(|error| error.to_string(), |()| "opened".to_owned()),
            Err(error) if error.kind() == ErrorKind::Locked => format!("locked: {error}"),
            Err(error) => error.to_string(),
        };
        std::io::stdout().write_all(format!("\nsaid {said}\n").as_bytes()).unwrap();
    }
}

/// Outcomes of another process that opens the store for writing, and for reading.
fn tell_from_outside(directory: &Path) -> [String; 2] {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "opening_process", "--nocapture", "--test-threads", "1"]);
    command.env_remove("TESTUDO_FORK_SCENARIO").env("TESTUDO_FORK_OPEN", directory);
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    let lines = BufReader::new(&output.stdout[..]).lines().map(Result::unwrap);
    let said: Vec<String> =
        lines.filter_map(|line| line.strip_prefix("said ").map(ToOwned::to_owned)).collect();
    said.try_into().unwrap_or_else(|said| panic!("{said:?}, {}", output.status))
}

/// Fails unless other processes can open the store neither for writing nor for reading.
fn require_locked(directory: &Path) {
    for said in tell_from_outside(directory) {
        assert!(said.starts_with("locked: "), "{said}");
    }
}

/// A process that runs a scenario `forks` times.
fn forking(scenario: &str, directory: &Path, forks: u64) -> Command {
    let seed = number_from_env("TESTUDO_FORK_SEED").unwrap_or_else(|| RealEnv::new().random_u64() >> 32);
    println!("replay with TESTUDO_FORK_SEED={seed} TESTUDO_FORKS={forks}");
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "forking_process", "--nocapture", "--test-threads", "1"]);
    command.env("TESTUDO_FORK_SCENARIO", scenario).env("TESTUDO_FORK_DIR", directory);
    command.env("TESTUDO_FORK_SEED", seed.to_string()).env("TESTUDO_FORKS", forks.to_string());
    command
}

fn play(scenario: &str, forks: u64) {
    let place = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let status = forking(scenario, place.path(), forks).status().unwrap();
    assert!(status.success(), "{scenario}: {status}");
}

/// A scenario's percentage of all forks.
fn forks_for(part: u64) -> u64 {
    (number_from_env("TESTUDO_FORKS").unwrap_or(part_of(FORKS)) * part / 100).max(1)
}

#[test]
fn every_call_of_a_child_fails_and_harms_no_writer() {
    play("writer", forks_for(50));
}

#[test]
fn calls_of_a_child_fail_and_harm_no_reader() {
    play("reader", forks_for(14));
}

#[test]
fn a_child_does_not_keep_a_closed_store_locked() {
    play("closed", forks_for(14));
}

#[test]
fn calls_fail_in_a_child_forked_by_a_callback() {
    play("callbacks", forks_for(14));
}

#[test]
fn a_dead_owner_is_named_while_its_child_holds_the_lock() {
    for _ in 0..forks_for(8) {
        let place = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mut command = forking("daemon", place.path(), 1);
        let mut owner = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut orders, answers) = (owner.stdin.take().unwrap(), owner.stdout.take().unwrap());
        let mut lines = BufReader::new(answers).lines().map(Result::unwrap);
        let mut wait_for = |word: &str| assert!(lines.any(|line| line == word), "the child says {word}");
        wait_for("forked");
        assert!(owner.wait().unwrap().success());
        let [writer, reader] = tell_from_outside(&place.path().join("db"));
        for said in [writer, reader] {
            assert!(said.contains(&format!("process {}, which does not run", owner.id())), "{said}");
        }
        // The child still runs, but has no handle.
        orders.write_all(b"use\n").unwrap();
        wait_for("dropped");
        assert_eq!(tell_from_outside(&place.path().join("db")), ["opened", "opened"]);
        let db = Db::builder(place.path().join("db")).memory_bytes(1 << 20).open().unwrap();
        calls::check(&db, scenarios::SYNCED);
        drop(orders);
    }
}
