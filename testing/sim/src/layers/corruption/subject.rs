//! The stores that are damaged, and the checks of a damaged one.
//!
//! **Invariants**
//! - An error counts as an answer only if it names a file of the store; `Corruption` also its offset.

use std::{path::PathBuf, sync::Arc};

use testudo_base::{Error, ErrorKind};
use testudo_env::{CrashPolicy, Env, MemEnv};
use testudo_testkit::{
    Runner, Script,
    configuration::Configuration,
    engine_store::EngineOpener,
    model::Model,
    op::Op,
    read_state,
    state::{State, show_key, show_value},
    store::{Opener, RawScan, RawWalk, Store},
};

use super::damage::Damage;

/// Script of a store with everything: flushed data of several ages, a dropped keyspace, a log with its tail.
const SCRIPT: &str = include_str!("../scripts/corruption.txt");
/// The state of the store that was closed cleanly.
const CLOSED: &str = "closed";
/// Distance of the bytes that a short run damages in the killed store, and in the others, whose files are
/// nearly the same.
const SAMPLE_STRIDE: usize = 23;
const SAMPLE_STRIDE_OF_OTHERS: usize = 97;
/// The state of the store that was killed.
const KILLED: &str = "killed";
/// The state of the store whose commits are in the log only.
const UNFLUSHED: &str = "killed before a flush";
/// The state of a store with one log segment, which alone proves the syncs since the superblock was written.
const UNPROVEN: &str = "killed in its first segment, its watermark lost";
/// Its last write, which proves the earlier syncs.
const LAST_WRITE: &str = "\nbatch buffered 0/tail/5=24:100\nstep 3\n";
/// Maximum I/O operations of a creation before its superblock exists.
const CREATION_OPERATIONS_MAX: u64 = 200;

/// A file and its content.
pub(super) struct StoredFile {
    pub(super) path: PathBuf,
    pub(super) bytes: Vec<u8>,
}

/// A store in its final state, and its expected content.
pub(super) struct Subject {
    pub(super) configuration: String,
    /// The way the store ended.
    pub(super) state: &'static str,
    pub(super) files: Vec<StoredFile>,
    /// Files at earlier times.
    pub(super) earlier: Vec<(PathBuf, Vec<u8>)>,
    /// Files of another store with the same history, by number of the file that they replace.
    pub(super) foreign: Vec<(usize, Arc<[u8]>)>,
    opener: EngineOpener,
    machine: Arc<MemEnv>,
    model: Model,
}

/// The store of the script: closed cleanly, killed, killed with all data only in the log, killed early
/// without its watermark, and killed during creation.
pub(super) fn subjects(configuration: &Configuration) -> Result<Vec<Subject>, String> {
    let mut subjects = Vec::new();
    let unflushed = SCRIPT.replace("\nflush\n", "\n");
    for (state, script) in [(CLOSED, SCRIPT), (KILLED, SCRIPT), (UNFLUSHED, &unflushed)] {
        let (machine, model, earlier) = perform(configuration, script, 1, state == CLOSED)?;
        // The same sizes, different values, another store id.
        let (other, _, _) = perform(configuration, &script.replace(" 1:100", " 2:100"), 2, state == CLOSED)?;
        let mut subject = Subject::new(configuration, state, machine, model);
        subject.earlier = earlier;
        for (number, file) in subject.files.iter().enumerate() {
            if let Ok(bytes) = other.file_bytes(&file.path) {
                subject.foreign.push((number, bytes.into()));
            }
        }
        subjects.push(subject);
    }
    subjects.push(unproven(configuration, &unflushed)?);
    subjects.push(unfinished(configuration)?);
    Ok(subjects)
}

type Performed = (Arc<MemEnv>, Model, Vec<(PathBuf, Vec<u8>)>);

fn perform(configuration: &Configuration, script: &str, seed: u64, clean: bool) -> Result<Performed, String> {
    let script: Script = script.parse()?;
    let mut runner = Runner::new(&configuration.opener, seed);
    let mut earlier = Vec::new();
    for op in &script.0 {
        runner.op(op)?;
        if *op == Op::Flush {
            let machine = runner.machine();
            let read = |path: PathBuf| machine.file_bytes(&path).ok().map(|bytes| (path, bytes));
            earlier.extend(machine.all_files().into_iter().filter_map(read));
        }
    }
    let (machine, model) =
        if clean { runner.close()? } else { (Arc::clone(runner.machine()), runner.model().clone()) };
    // As after a power loss: everything is durable and no lock is held.
    Ok((machine.crash_image(&CrashPolicy::KEEP_ALL, 1), model, earlier))
}

/// A store killed in its first log segment, without the file `watermark`.
fn unproven(configuration: &Configuration, script: &str) -> Result<Subject, String> {
    let (first, _) = script.split_once("\nkill\n").ok_or("the script kills nothing")?;
    let (machine, model, _) = perform(configuration, &format!("{first}{LAST_WRITE}"), 1, false)?;
    let files = machine.all_files();
    let watermark = files.iter().find(|path| path.ends_with("watermark")).ok_or("there is no watermark")?;
    machine.remove_file(watermark).map_err(|error| format!("the watermark cannot be removed: {error}"))?;
    Ok(Subject::new(configuration, UNPROVEN, machine, model))
}

/// The last moment before creation of the store is complete.
fn unfinished(configuration: &Configuration) -> Result<Subject, String> {
    let mut last = None;
    for after in 0..CREATION_OPERATIONS_MAX {
        let machine = MemEnv::new(3);
        machine.crash_after(after);
        drop(configuration.opener.open(Arc::clone(&machine) as Arc<dyn Env>));
        if machine.all_files().iter().any(|path| path.ends_with("CREATING")) {
            last = Some(machine.crash_image(&CrashPolicy::KEEP_ALL, 1));
        }
    }
    let machine = last.ok_or("creation leaves no mark")?;
    Ok(Subject::new(configuration, "being created", machine, Model::default()))
}

impl Subject {
    fn new(configuration: &Configuration, state: &'static str, machine: Arc<MemEnv>, model: Model) -> Self {
        let read = |path: PathBuf| {
            let bytes = machine.file_bytes(&path).unwrap_or_default();
            StoredFile { path, bytes }
        };
        let files = machine.all_files().into_iter().map(read).collect();
        Self {
            configuration: configuration.name.clone(),
            state,
            files,
            earlier: Vec::new(),
            foreign: Vec::new(),
            opener: configuration.opener.clone(),
            machine,
            model,
        }
    }

    /// Whether this file is damaged. In a store without its watermark, only the log is.
    pub(super) fn is_damaged(&self, file: usize) -> bool {
        self.state != UNPROVEN || self.is_log(file)
    }

    /// Whether the file is a segment of the log.
    pub(super) fn is_log(&self, file: usize) -> bool {
        self.files[file].path.to_string_lossy().contains("wal-")
    }

    /// Whether this is the killed store, which has all kinds of data.
    pub(super) fn is_killed(&self) -> bool {
        self.state == KILLED
    }

    /// Whether a short run damages every header byte of a page: first pages of all files, and every page in
    /// the killed store and in superblocks.
    pub(super) fn has_header(&self, file: usize, page: usize) -> bool {
        page == 0 || self.is_killed() || self.files[file].path.ends_with("superblock")
    }

    /// Distance of the bytes that a short run damages elsewhere.
    pub(super) fn stride(&self) -> usize {
        if self.is_killed() { SAMPLE_STRIDE } else { SAMPLE_STRIDE_OF_OTHERS }
    }

    /// Opens a damaged copy and reads everything: true if all answers were right, false if some were errors.
    pub(super) fn read_damaged(&self, damage: &Damage) -> Result<bool, String> {
        let copy = self.machine.crash_image(&CrashPolicy::KEEP_ALL, 1);
        damage.apply(self, &copy).map_err(|error| format!("the damage cannot be applied: {error}"))?;
        let store = match self.opener.open(copy as Arc<dyn Env>) {
            Ok(store) => store,
            Err(error) => return named(&error).map(|()| false),
        };
        let mut complete = true;
        match read_state(&*store) {
            Ok(state) => {
                self.model.clone().recover(&state)?;
                self.compare_backward(&*store, &state)?;
            }
            Err(error) => {
                named(&error)?;
                complete = false;
            }
        }
        complete &= self.read_keys(&*store)?;
        if !complete && store.verify().is_ok() {
            return Err("reads fail, but the verification finds nothing".into());
        }
        Ok(complete)
    }

    fn compare_backward(&self, store: &dyn Store, forward: &State) -> Result<(), String> {
        for slot in forward.slots() {
            let backward = store.scan(slot, &RawScan::all(RawWalk::Backward));
            let backward = backward.map_err(|error| format!("only backward: {error:?}"))?;
            let expected = forward.scan(slot, &RawScan::all(RawWalk::Backward));
            if !backward.iter().map(|(key, value)| (&**key, &**value)).eq(expected) {
                return Err(format!("keyspace {slot} reads differently from the back"));
            }
        }
        Ok(())
    }

    /// Whether every key with the same value in all allowed states could be read.
    fn read_keys(&self, store: &dyn Store) -> Result<bool, String> {
        let mut complete = true;
        for slot in self.model.live().slots() {
            for (key, value) in self.model.live().scan(slot, &RawScan::all(RawWalk::Forward)) {
                if self.model.unsynced_count() > 0 && key.starts_with(b"tail") {
                    continue;
                }
                match store.get(slot, key) {
                    Ok(found) if found.as_deref() == Some(value) => {}
                    Ok(found) => {
                        let (expected, found) = (show_value(Some(value)), show_value(found.as_deref()));
                        return Err(format!("{}: expected {expected}, found {found}", show_key(key)));
                    }
                    Err(error) => {
                        named(&error)?;
                        complete = false;
                    }
                }
            }
        }
        Ok(complete)
    }
}

/// Fails unless the error names the damaged file and the offset.
fn named(error: &Error) -> Result<(), String> {
    const FILES: [&str; 5] = ["superblock", "manifest", "data", "wal", "LOCK"];
    let names_a_file = |text: &str| FILES.iter().any(|file| text.contains(file));
    let is_named = match error.kind() {
        ErrorKind::Corruption => error.location().is_some_and(|(file, _)| names_a_file(file)),
        ErrorKind::Io | ErrorKind::Unsupported | ErrorKind::Invalid => names_a_file(&error.to_string()),
        _ => false,
    };
    if is_named { Ok(()) } else { Err(format!("the error does not name file and offset: {error:?}")) }
}
