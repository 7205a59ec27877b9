//! Runs the program in a directory of its own and checks its output.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Directory for a store and some files.
pub(crate) struct Place {
    dir: TempDir,
}

/// Output of the program.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: Option<i32>,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

/// Returns a command for the program.
pub(crate) fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_testudo"))
}

/// Waits until the program catches SIGINT or has ended.
pub(crate) fn await_handler(child: &mut Child) {
    let caught = format!("/proc/{}/status", child.id());
    let catches = || {
        let status = fs::read_to_string(&caught).unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.is_some_and(|mask| mask >> (Signal::INT.as_raw() - 1) & 1 == 1)
    };
    while !catches() && child.try_wait().unwrap().is_none() {
        thread::yield_now();
    }
}

/// Sends SIGINT once the program catches it.
pub(crate) fn interrupt(child: &mut Child) {
    await_handler(child);
    kill_process(Pid::from_child(child), Signal::INT).unwrap();
}

impl Place {
    pub(crate) fn new() -> Self {
        // Next to the build: on a real disk, where direct I/O works, not in a memory file system.
        Self { dir: TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap() }
    }

    /// A place whose store has the records `k00` … `k99` with values `v00` ….
    pub(crate) fn with_records() -> Self {
        let place = Self::new();
        let lines: String = (0..100).map(|number| format!("k{number:02}\tv{number:02}\n")).collect();
        place.feed(lines.as_bytes(), &["load", "STORE", "-", "--format", "tsv", "--create"]).fine();
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.path("STORE")
    }

    /// Runs the program in this directory; the store is `STORE`.
    pub(crate) fn run(&self, arguments: &[&str]) -> Answer {
        let output =
            program().args(arguments).current_dir(self.dir.path()).stdin(Stdio::null()).output().unwrap();
        Answer::of(output)
    }

    /// Runs the program with `input` on its standard input.
    pub(crate) fn feed(&self, input: &[u8], arguments: &[&str]) -> Answer {
        let mut command = program();
        command.args(arguments).current_dir(self.dir.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // The program may end without reading everything.
        let _ = child.stdin.take().unwrap().write_all(input);
        Answer::of(child.wait_with_output().unwrap())
    }

    /// Names and contents of all files of the store.
    pub(crate) fn store_files(&self) -> BTreeMap<String, Vec<u8>> {
        files_of(&self.store())
    }
}

/// Names and contents of all files of a directory.
pub(crate) fn files_of(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let read = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.unwrap();
        (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
    };
    fs::read_dir(dir).unwrap().map(read).collect()
}

impl Answer {
    pub(crate) fn of(output: Output) -> Self {
        let err = String::from_utf8(output.stderr).unwrap();
        Self { code: output.status.code(), out: output.stdout, err }
    }

    /// Asserts success; returns the output.
    #[track_caller]
    pub(crate) fn fine(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (Some(0), ""));
        String::from_utf8(self.out).unwrap()
    }

    /// Asserts success with JSON lines as output.
    #[track_caller]
    pub(crate) fn json_lines(self) -> Vec<Value> {
        self.fine().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Asserts success with one JSON document as output.
    #[track_caller]
    pub(crate) fn json(self) -> Value {
        let mut lines = self.json_lines();
        assert_eq!(lines.len(), 1);
        lines.remove(0)
    }

    /// Asserts exit code 2 and one line that names `things`, with nothing on standard output.
    #[track_caller]
    pub(crate) fn refused(&self, things: &[&str]) {
        assert_eq!((self.code, self.out.as_slice()), (Some(2), &b""[..]), "{}", self.err);
        assert!(self.err.starts_with("testudo: ") && self.err.lines().count() == 1, "{}", self.err);
        self.names(things);
    }

    /// Asserts exit code 1 and one line that names `things`, with nothing on standard output.
    #[track_caller]
    pub(crate) fn missing(&self, things: &[&str]) {
        assert_eq!((self.code, self.out.as_slice()), (Some(1), &b""[..]), "{}", self.err);
        assert!(self.err.starts_with("testudo: ") && self.err.lines().count() == 1, "{}", self.err);
        self.names(things);
    }

    /// Asserts that the command line was rejected with an explanation.
    #[track_caller]
    pub(crate) fn not_understood(&self, things: &[&str]) {
        assert_eq!((self.code, self.out.as_slice()), (Some(2), &b""[..]), "{}", self.err);
        self.names(things);
    }

    #[track_caller]
    fn names(&self, things: &[&str]) {
        for thing in things {
            assert!(self.err.contains(thing), "'{thing}' is not in: {}", self.err);
        }
    }
}
