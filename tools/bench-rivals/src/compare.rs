//! Runs several engines in turn, each in its own process under the same limit, and tabulates their results
//! side by side.
//!
//! **Invariants**
//! - One process runs at a time, and starts with empty operating-system caches.
//! - The engine order alternates between rounds, so drift affects all engines alike.
//! - Every result that a process reports is written, even if the process is killed later.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
};

use clap::ValueEnum;
use serde_json::{Value, json};
use testudo::{Error, Result};
use testudo_bench::{Output, Workload, human_bytes};

use crate::{
    command_line::CompareArgs, engine::Engine, machine, memory_limit::MemoryLimit, summary::Summary,
};

const MIB: u64 = 1 << 20;
/// Memory of the driver itself (program, stacks, histograms), in addition to that for each record.
const DRIVER_BYTES: u64 = 16 * MIB;

/// Runs everything and returns the exit code.
pub(crate) fn compare(args: &CompareArgs, stop: &AtomicBool) -> Result<u8> {
    let (engines, is_complete) = ready_engines(&args.engines);
    if engines.is_empty() {
        return Err(Error::invalid("--engines: none of them can run here"));
    }
    let store_bytes = store_bytes(args)?;
    let parent = args.tmp.clone().unwrap_or_else(|| PathBuf::from("."));
    let mut output = Output::new(args.json.as_deref())?;
    let mut run = Comparison { args, store_bytes, parent, summary: Summary::new(&engines), unfinished: 0 };
    'rounds: for round in 0..args.rounds {
        let mut order = engines.clone();
        if round % 2 == 1 {
            order.reverse();
        }
        for engine in order {
            if stop.load(Ordering::Relaxed) {
                break 'rounds;
            }
            run.run_engine(engine, round, &mut output)?;
        }
    }
    output.text(&run.summary.limits())?;
    output.table(&run.summary.rows())?;
    Ok(match (run.summary.wrong_answers(), is_complete && run.unfinished == 0) {
        (0, true) => 0,
        (0, false) => 3,
        _ => 1,
    })
}

/// Returns the engines that can run, in the order given, and whether these are all of them.
fn ready_engines(asked: &[Engine]) -> (Vec<Engine>, bool) {
    let mut ready = Vec::new();
    for engine in asked {
        match engine.check() {
            Ok(()) if ready.contains(engine) => {}
            Ok(()) => ready.push(*engine),
            Err(reason) => eprintln!("SKIPPED: {}: {reason}", engine.name()),
        }
    }
    let is_complete = asked.iter().all(|engine| ready.contains(engine));
    (ready, is_complete)
}

/// Memory budget of an engine: the limit minus what the driver needs.
fn store_bytes(args: &CompareArgs) -> Result<u64> {
    // Inserts of workloads d and e add records.
    let mut driver_bytes = DRIVER_BYTES + args.records / 2 + args.records / 8;
    if args.workloads.contains(&Workload::ClusterOverwrite) {
        // The order of the keys.
        driver_bytes += 4 * args.records;
    }
    match args.store_memory.or(args.memory.checked_sub(driver_bytes)) {
        Some(bytes) if bytes >= 8 * MIB => Ok(bytes),
        _ => {
            let message = format!("--memory: the driver alone needs {}", human_bytes(driver_bytes));
            Err(Error::invalid(message))
        }
    }
}

struct Comparison<'a> {
    args: &'a CompareArgs,
    store_bytes: u64,
    parent: PathBuf,
    summary: Summary,
    unfinished: u64,
}

impl Comparison<'_> {
    fn run_engine(&mut self, engine: Engine, round: u16, output: &mut Output) -> Result<()> {
        let name = engine.name();
        let dir = self.parent.join(format!("bench-rivals-{}-{name}-{round}", std::process::id()));
        fs::create_dir_all(&dir).map_err(|error| Error::io(dir.display().to_string(), error))?;
        let limit =
            MemoryLimit::new(&format!("bench-rivals-{}-{name}", std::process::id()), self.args.memory);
        let limit = limit.inspect_err(|reason| self.summary.note_no_limit(reason)).ok();
        if !machine::drop_caches() {
            self.summary.note_warm_caches();
        }
        eprintln!("round {}: {name}", round + 1);
        let done = self.run_process(engine, (&dir, round), limit.as_ref(), output);
        if let Err(error) = fs::remove_dir_all(&dir) {
            eprintln!("warning: {} could not be removed: {error}", dir.display());
        }
        done
    }

    fn run_process(
        &mut self,
        engine: Engine,
        (dir, round): (&Path, u16),
        limit: Option<&MemoryLimit>,
        output: &mut Output,
    ) -> Result<()> {
        let program = std::env::current_exe().map_err(|error| Error::io("bench-rivals", error))?;
        let mut command = Command::new(program);
        command.args(self.arguments(engine, dir, limit));
        // glibc creates one arena per thread by default, and each arena retains freed memory. Under a memory
        // limit that gets the process killed.
        command.env("MALLOC_ARENA_MAX", "2");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| Error::io("bench-rivals run", error))?;
        // A run prints its table and its complaints to standard error; only the complaints are passed on.
        let pipe = child.stderr.take();
        let complaints = std::thread::Builder::new()
            .name("complaints".to_owned())
            .spawn(move || pipe.map_or((), show_complaints))
            .map_err(|error| Error::io("bench-rivals", error))?;
        for line in child.stdout.take().into_iter().flat_map(|pipe| BufReader::new(pipe).lines()) {
            let line = line.map_err(|error| Error::io("bench-rivals run", error))?;
            let result: Value = serde_json::from_str(&line)
                .map_err(|error| Error::invalid(format!("a result that is not JSON: {error}")))?;
            let result = self.completed(result, engine, round, limit);
            self.summary.add(engine, &result);
            output.result(&result)?;
        }
        let status = child.wait().map_err(|error| Error::io("bench-rivals run", error))?;
        // The thread ends with the process; output it could not print is lost.
        let _ = complaints.join();
        if !status.success() && status.code() != Some(1) {
            self.unfinished += 1;
            let reason = match limit.map_or(0, MemoryLimit::kills) {
                0 => status.to_string(),
                _ => format!("killed at the memory limit of {}", human_bytes(self.args.memory)),
            };
            eprintln!("NOT FINISHED: {}: {reason}", engine.name());
            self.summary.note_unfinished(engine, &reason);
        }
        Ok(())
    }

    /// Adds the fields that only the parent process can fill in to a result.
    fn completed(&self, mut result: Value, engine: Engine, round: u16, limit: Option<&MemoryLimit>) -> Value {
        result["survives"] = json!(engine.survives(self.args.sync));
        result["round"] = json!(round + 1);
        result["memory_limit_bytes"] = json!(self.args.memory);
        result["memory_limit_enforced"] = json!(limit.is_some());
        if let Some(peak) = limit.and_then(MemoryLimit::peak_bytes) {
            result["peak_memory_bytes_with_page_cache"] = json!(peak);
        }
        result
    }

    fn arguments(&self, engine: Engine, dir: &Path, limit: Option<&MemoryLimit>) -> Vec<String> {
        let args = self.args;
        let workloads: Vec<String> = args.workloads.iter().map(|workload| workload.name()).collect();
        let warmup = args.warmup_seconds.unwrap_or(args.seconds / 3.0);
        let mut given = vec!["run".to_owned(), engine.name()];
        if let Some(limit) = limit {
            given.extend(["--group".to_owned(), limit.dir().display().to_string()]);
        }
        for (flag, value) in [
            ("--dir", dir.display().to_string()),
            ("--json", "-".to_owned()),
            ("--memory", self.store_bytes.to_string()),
            ("--workloads", workloads.join(",")),
            ("--records", args.records.to_string()),
            ("--key-bytes", args.key_bytes.to_string()),
            ("--threads", args.threads.to_string()),
            ("--seconds", args.seconds.to_string()),
            ("--warmup-seconds", warmup.to_string()),
            ("--settle-seconds", args.settle_seconds.to_string()),
            ("--seed", args.seed.to_string()),
        ] {
            given.extend([flag.to_owned(), value]);
        }
        match args.mix.as_ref().and_then(ValueEnum::to_possible_value) {
            Some(mix) => given.extend(["--mix".to_owned(), mix.get_name().to_owned()]),
            None => given.extend(["--value-bytes".to_owned(), args.value_bytes.to_string()]),
        }
        if let Some(placement) = &args.placement {
            given.extend(["--placement".to_owned(), placement.to_string()]);
        }
        given.push("--reopen".to_owned());
        if args.sync {
            given.push("--sync".to_owned());
        }
        if args.reopen_each {
            given.push("--reopen-each".to_owned());
        }
        if args.ordered_load.contains(&engine) {
            given.push("--ordered-load".to_owned());
        }
        given
    }
}

/// Passes on the complaints of a run, without its table.
fn show_complaints(pipe: impl std::io::Read) {
    for line in BufReader::new(pipe).lines().map_while(std::result::Result::ok) {
        if ["wrong", "warning", "error"].iter().any(|word| line.starts_with(word)) {
            eprintln!("{line}");
        }
    }
}
