#![expect(clippy::unwrap_used, reason = "tests panic where they fail")]
//! Damaged files: every read gives the right answer or an error, never a wrong answer, never a panic.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use testudo_env::{CrashPolicy, Env, MemEnv, SplitMix};
use testudo_testkit::{
    Runner, Script,
    campaign::catch_panic,
    configuration::{Configuration, crash_configurations},
    model::Model,
    state::{State, show_key, show_value},
    store::{Opener, RawScan, RawWalk, Store},
};

/// A store with everything in it: drained data of several ages, a dropped keyspace, a log with its tail.
const SCRIPT: &str = include_str!("scripts/corruption.txt");

/// Distance of the bytes that are flipped.
const STRIDE: usize = 7;
/// In sectors without content, so many bytes apart.
const EMPTY_STRIDE: usize = 40_009;

/// A store as it was left, and what it must hold.
struct Subject {
    name: String,
    opener: Box<dyn Opener>,
    machine: Arc<MemEnv>,
    model: Model,
}

/// The store of the script, closed cleanly and killed, for every tree.
fn subjects() -> Vec<Subject> {
    let script: Script = SCRIPT.parse().unwrap();
    let mut subjects = Vec::new();
    for Configuration { name, opener, .. } in crash_configurations() {
        for clean in [true, false] {
            let mut runner = Runner::new(&opener, 1);
            runner.run_ops(&script).unwrap_or_else(|failure| panic!("{name}: {failure}"));
            let mut model = runner.model().clone();
            if clean {
                runner.op(&testudo_testkit::op::Op::Reopen).unwrap();
                model.sync();
            }
            // As after a power loss, so that everything is durable and no lock is held.
            let machine = runner.machine().crash_image(&CrashPolicy::KEEP_ALL, 1);
            let name = format!("{name}, {}", if clean { "closed" } else { "killed" });
            subjects.push(Subject { name, opener: Box::new(opener.clone()), machine, model });
        }
    }
    subjects
}

/// How many damages were met, and how they ended.
#[derive(Debug, Default)]
struct Tally {
    right: usize,
    refused: usize,
    wrong: BTreeMap<String, usize>,
}

impl Subject {
    /// Opens the damaged machine and reads everything.
    fn judge(&self, damaged: &Arc<MemEnv>, what: &str, tally: &mut Tally) {
        let outcome = catch_panic(|| self.read_all(damaged));
        match outcome {
            Ok(Ok(true)) => tally.right += 1,
            Ok(Ok(false)) => tally.refused += 1,
            Ok(Err(wrong)) => tally.note(&format!("{}: {what}: {wrong}", self.name)),
            Err(panic) => tally.note(&format!("{}: {what}: {panic}", self.name)),
        }
    }

    /// Whether everything could be read; an error is a wrong answer.
    fn read_all(&self, damaged: &Arc<MemEnv>) -> Result<bool, String> {
        let Ok(store) = self.opener.open(Arc::clone(damaged) as Arc<dyn Env>) else {
            return Ok(false);
        };
        let found = store.keyspaces().map_err(|error| format!("keyspaces: {error:?}"))?;
        let mut readable = Vec::new();
        let mut complete = true;
        for slot in found {
            match store.scan(slot, &RawScan::all(RawWalk::Forward)) {
                Ok(pairs) => {
                    self.compare_backward(&*store, slot, &pairs)?;
                    readable.push((slot, pairs));
                }
                Err(_) => complete = false,
            }
        }
        if complete {
            let state: State = readable.into_iter().collect();
            self.model.clone().recover(&state)?;
        }
        complete &= self.read_keys(&*store)?;
        // The engine's own check must not panic either.
        let _ = store.verify();
        Ok(complete)
    }

    fn compare_backward(
        &self,
        store: &dyn Store,
        slot: u8,
        forward: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<(), String> {
        match store.scan(slot, &RawScan::all(RawWalk::Backward)) {
            Ok(backward) if !backward.iter().rev().eq(forward) => {
                Err(format!("keyspace {slot} reads differently from the back"))
            }
            _ => Ok(()),
        }
    }

    /// Whether every key that all allowed states agree on could be read.
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
                    Err(_) => complete = false,
                }
            }
        }
        Ok(complete)
    }

    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let paths = self.machine.all_files();
        paths.into_iter().map(|path| (path.clone(), self.machine.file_bytes(&path).unwrap())).collect()
    }

    fn copy(&self) -> Arc<MemEnv> {
        self.machine.crash_image(&CrashPolicy::KEEP_ALL, 1)
    }
}

impl Tally {
    fn note(&mut self, wrong: &str) {
        let start: String = wrong.lines().take(4).collect::<Vec<_>>().join(" | ");
        *self.wrong.entry(start).or_default() += 1;
    }

    fn finish(self, test: &str, least_refused: usize) {
        println!("{test}: {} right, {} refused, {} wrong", self.right, self.refused, self.wrong.len());
        if !self.wrong.is_empty() {
            let shown: Vec<_> = self.wrong.keys().take(40).cloned().collect();
            panic!("{} wrong answers or panics, the first:\n{}", self.wrong.len(), shown.join("\n"));
        }
        assert!(self.refused >= least_refused, "damage must be noticed now and then");
    }
}

/// Bytes to flip: dense where there is content, sparse elsewhere.
fn offsets(bytes: &[u8]) -> Vec<usize> {
    let has_content = |offset: usize| {
        let sector = offset / 512 * 512;
        bytes[sector..bytes.len().min(sector + 512)].iter().any(|&byte| byte != 0)
    };
    let dense = (0..bytes.len()).step_by(STRIDE).filter(|&offset| has_content(offset));
    let sparse = (0..bytes.len()).step_by(EMPTY_STRIDE).filter(|&offset| !has_content(offset));
    dense.chain(sparse).collect()
}

#[test]
fn flipped_bytes_never_give_a_wrong_answer() {
    let mut tally = Tally::default();
    // Two trees are enough for the slowest of these tests.
    for subject in subjects().into_iter().filter(|subject| !subject.name.starts_with("turtle-small")) {
        for (path, bytes) in subject.files() {
            for offset in offsets(&bytes) {
                let damaged = subject.copy();
                let mask = 1 << (offset % 8);
                damaged.corrupt(&path, u64::try_from(offset).unwrap(), mask).unwrap();
                subject.judge(&damaged, &format!("{} at {offset} ^ {mask:#x}", path.display()), &mut tally);
            }
        }
    }
    tally.finish("flips", 1000);
}

#[test]
fn truncated_and_missing_files_never_give_a_wrong_answer() {
    let mut tally = Tally::default();
    for subject in subjects() {
        for (path, bytes) in subject.files() {
            let length = bytes.len();
            let content = length - bytes.iter().rev().take_while(|&&byte| byte == 0).count();
            let mut lengths: Vec<usize> =
                (0..=length).step_by(512 * 3).filter(|&cut| cut <= content + 512).collect();
            lengths.extend([
                1,
                length / 2,
                content / 2,
                content.saturating_sub(1),
                content,
                length.saturating_sub(1),
            ]);
            lengths.retain(|&cut| cut < length);
            for cut in lengths {
                let damaged = subject.copy();
                damaged.truncate(&path, u64::try_from(cut).unwrap()).unwrap();
                subject.judge(&damaged, &format!("{} cut to {cut}", path.display()), &mut tally);
            }
            let damaged = subject.copy();
            damaged.remove_file(&path).unwrap();
            subject.judge(&damaged, &format!("{} removed", path.display()), &mut tally);
        }
    }
    tally.finish("truncations", 10);
}

#[test]
fn misdirected_and_old_pages_never_give_a_wrong_answer() {
    const PAGE: usize = 4096;
    let mut tally = Tally::default();
    for subject in subjects() {
        let data = PathBuf::from("/db/data");
        let bytes = subject.machine.file_bytes(&data).unwrap();
        let pages = bytes.len() / PAGE;
        let full: Vec<usize> =
            (0..pages).filter(|page| bytes[page * PAGE..][..PAGE].iter().any(|&byte| byte != 0)).collect();
        let mut random = SplitMix::new(9);
        let mut pick =
            |count: usize| full[usize::try_from(random.below(u64::try_from(count).unwrap())).unwrap()];
        for _ in 0..400 {
            let (from, to) = (pick(full.len()), pick(full.len()));
            let mut moved = bytes.clone();
            moved.copy_within(from * PAGE..(from + 1) * PAGE, to * PAGE);
            let damaged = subject.copy();
            damaged.replace(&data, &moved).unwrap();
            subject.judge(&damaged, &format!("page {from} written over page {to}"), &mut tally);
        }
        for &page in &full {
            let mut lost = bytes.clone();
            lost[page * PAGE..(page + 1) * PAGE].fill(0);
            let damaged = subject.copy();
            damaged.replace(&data, &lost).unwrap();
            subject.judge(&damaged, &format!("page {page} never written"), &mut tally);
        }
    }
    tally.finish("misdirected pages", 100);
}

#[test]
fn files_of_another_store_never_give_a_wrong_answer() {
    let mut tally = Tally::default();
    for subject in subjects() {
        let script: Script = SCRIPT.replace(":100", ":101").parse().unwrap();
        let Some(configuration) =
            crash_configurations().into_iter().find(|one| subject.name.starts_with(&one.name))
        else {
            continue;
        };
        let mut other = Runner::new(&configuration.opener, 2);
        other.run_ops(&script).unwrap_or_else(|failure| panic!("{failure}"));
        for (path, _) in subject.files() {
            if let Ok(bytes) = other.machine().file_bytes(&path) {
                let damaged = subject.copy();
                damaged.replace(&path, &bytes).unwrap();
                subject.judge(&damaged, &format!("{} of another store", path.display()), &mut tally);
            }
        }
    }
    tally.finish("files of another store", 1);
}
