//! Inspects a store while a real process writes it; the process takes orders on its standard input.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use serde_json::Value;
use testudo::{Db, KeyspaceOptions};
use testudo_env::{Env, RealEnv};

use crate::program::Place;

/// Timeout of tests that cannot succeed.
const WITHIN: Duration = Duration::from_secs(60);

/// Entry point of the writing process; does nothing as a test by itself.
#[test]
fn writing_process() {
    let Ok(dir) = env::var("TESTUDO_BESIDE_DIR") else { return };
    let db = Db::open(dir).unwrap();
    let records = db.keyspace("records", KeyspaceOptions::default).unwrap();
    let mut next = 0;
    for order in BufReader::new(std::io::stdin()).lines() {
        match order.unwrap().as_str() {
            "flush" => db.flush().unwrap(),
            "create" => drop(db.keyspace("a\tb", KeyspaceOptions::default).unwrap()),
            "close" => break,
            count => {
                for _ in 0..count.parse::<u32>().unwrap() {
                    records.insert(format!("key {next:06}"), "value").unwrap();
                    next += 1;
                }
            }
        }
        // Bypasses the test harness, which would buffer the output.
        std::io::stdout().write_all(b"\ndone\n").unwrap();
    }
    db.close().unwrap();
}

struct Writer {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Writer {
    fn start(place: &Place) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "beside_writer::writing_process", "--nocapture", "--test-threads", "1"]);
        command.env("TESTUDO_BESIDE_DIR", place.store()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (orders, answers) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, orders, answers: BufReader::new(answers) }
    }

    fn order(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
        let mut line = String::new();
        while line.trim_end() != "done" {
            line.clear();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "the writer ended");
        }
    }

    fn process(&self) -> u64 {
        self.child.id().into()
    }

    fn close(mut self) {
        writeln!(self.orders, "close").unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `verb` until its output satisfies `is_right`: statistics are published once a second.
#[track_caller]
fn until(place: &Place, verb: &[&str], is_right: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let machine = RealEnv::new();
    let started = machine.monotonic();
    loop {
        let answer = place.run(&[&["--json"], verb].concat()).json_lines();
        if is_right(&answer) {
            return answer;
        }
        assert!(machine.monotonic() - started < WITHIN, "{verb:?}: {answer:?}");
        machine.sleep(Duration::from_millis(20));
    }
}

#[test]
fn inspecting_verbs_work_while_a_writer_runs() {
    let place = Place::new();
    let mut writer = Writer::start(&place);
    writer.order("1000");
    writer.order("flush");
    writer.order("50");
    let process = writer.process();
    let ls = until(&place, &["ls", "STORE"], |lines| lines[0]["buffer_entries"] == 50);
    assert_eq!((&ls[0]["entries"], &ls[0]["tree_entries"]), (&1050.into(), &1000.into()));
    assert_eq!(ls[0]["in_use"]["process"], process);
    assert!(ls[0]["in_use"]["age_ms"].is_u64());
    // Live counters, not zeros. A write may be in its buffer just before it is counted.
    let stat = until(&place, &["stat", "STORE"], |lines| lines[0]["store"]["user_writes"] == 1050).remove(0);
    assert_eq!(stat["in_use"]["process"], process);
    assert!(
        stat["store"]["flushes"].as_u64() > Some(0) && stat["store"]["wal_bytes_written"].as_u64() > Some(0)
    );
    assert_eq!(stat["keyspaces"]["records"]["memtable_entries"], 50);
    let stat = place.run(&["stat", "STORE", "--json", "--keyspace", "records"]).json();
    assert_eq!((&stat["entries"], &stat["tree"]), (&1000.into(), &"turtle".into()));
    writer.order("7");
    until(&place, &["stat", "STORE"], |lines| lines[0]["store"]["user_writes"] == 1057);
    writer.order("create");
    let info = place.run(&["info", "STORE", "--json"]).json();
    assert_eq!(info["keyspaces"].as_array().unwrap().len(), 2, "the catalogue comes from the manifest");
    assert_eq!((&info["in_use"]["process"], info["store_id"].as_str().unwrap().len()), (&process.into(), 32));
    let tree = place.run(&["tree", "STORE", "--keyspace", "records", "--json"]).json_lines();
    assert_eq!(tree[0]["in_use"]["process"], process);
    assert!(tree[1..].iter().any(|line| line["entries"] == 1000), "{tree:?}");
    let space = place.run(&["space", "STORE", "--json"]).json();
    assert!(space["live_bytes"].as_u64() > Some(0) && space["in_use"]["process"] == process, "{space}");
    for verb in ["info", "stat", "ls", "space", "tree"] {
        let keyspace: &[&str] = if verb == "tree" { &["--keyspace", "records"] } else { &[] };
        let text = place.run(&[&[verb, "STORE"], keyspace].concat()).fine();
        assert!(
            text.starts_with(&format!("in use by process {process}, statistics from ")),
            "{verb}: {text}"
        );
    }
    place.run(&["stat", "STORE", "--keyspace", "none"]).missing(&["'none'"]);
    place.run(&["tree", "STORE", "--keyspace", "none"]).missing(&["'none'"]);
    // Other verbs name the writing process.
    for verb in [&["get", "STORE", "k"][..], &["put", "STORE", "k", "v"], &["verify", "STORE"]] {
        place.run(verb).refused(&["STORE", &format!("process {process}")]);
    }
    writer.close();
    assert!(!place.store_files().contains_key("status"));
    let ls = place.run(&["ls", "STORE", "--json"]).json_lines();
    let records = ls.iter().find(|line| line["keyspace"] == "records").unwrap();
    assert_eq!((&records["entries"], records.get("in_use")), (&1057.into(), None));
}

#[test]
fn statistics_of_a_killed_writer_are_ignored() {
    let place = Place::new();
    let mut writer = Writer::start(&place);
    writer.order("100");
    until(&place, &["ls", "STORE"], |lines| lines[0]["buffer_entries"] == 100);
    drop(writer);
    assert!(place.store_files().contains_key("status"), "the killed writer did not remove it");
    let ls = place.run(&["ls", "STORE", "--json"]).json();
    assert!(ls.get("in_use").is_none(), "{ls}");
    place.run(&["verify", "STORE"]).fine();
    let mut writer = Writer::start(&place);
    writer.order("1");
    let ls = until(&place, &["ls", "STORE"], |lines| lines[0]["in_use"]["age_ms"].is_u64());
    assert_eq!(ls[0]["in_use"]["process"], writer.process());
    writer.close();
}

#[test]
fn keyspace_sizes_include_entries_only_in_the_log() {
    let place = Place::with_records();
    let counts =
        |line: &Value| ["entries", "tree_entries", "buffer_entries"].map(|name| line[name].as_u64().unwrap());
    let [all, tree, buffers] = counts(&place.run(&["ls", "STORE", "--json"]).json());
    assert_eq!((all, tree + buffers), (100, 100));
    place.run(&["compact", "STORE"]).fine();
    assert_eq!(counts(&place.run(&["ls", "STORE", "--json"]).json()), [100, 100, 0]);
    place.run(&["put", "STORE", "new", "1"]).fine();
    let [all, tree, buffers] = counts(&place.run(&["ls", "STORE", "--json"]).json());
    assert_eq!((all, tree + buffers), (101, 101));
    assert!(place.run(&["ls", "STORE"]).fine().lines().nth(1).unwrap().contains(" 101 "));
}
