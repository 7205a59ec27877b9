//! Counts the instructions of each micro-benchmark and compares them with the recorded counts.
//!
//! Times on a shared machine vary by tens of percent; instruction counts under callgrind barely vary. Each
//! case runs twice, with `OPERATIONS` operations and with twice as many: the difference is the cost of the
//! operations without setup. `testing/instructions.jsonl` records the expected counts, one line of JSON per
//! case.
//!
//! **Invariants**
//! - A case that got slower by more than the tolerance fails, and so does one that is in only one of the two
//!   lists.
//! - A case that got faster by more than that is reported and does not fail: a gain must not block a change.
//!   Record it with `--update`, so that the next regression is detected.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs, io,
    path::Path,
    process::{Command, Stdio},
    sync::Mutex,
};

use crate::runs::special_build;

const FILE: &str = "testing/instructions.jsonl";
/// Tolerance for differences between compilers, which are a few percent.
const TOLERANCE: f64 = 0.10;
const OPERATIONS: u64 = 40_000;
/// Micro-benchmarks and their cases.
const CASES: [(&str, &[&str]); 6] = [
    ("memtable", &["insert", "update", "get", "miss"]),
    ("log", &["append"]),
    ("run", &["build", "merge", "get", "absent", "scan"]),
    ("filter", &["build", "present", "absent"]),
    ("page-cache", &["hit", "miss"]),
    ("record-cache", &["hit", "fill"]),
];

/// Compares the counts (`[]`), or records them (`["--update"]`). Returns whether no case failed.
///
/// Errors: valgrind is missing, the build failed, or a benchmark did.
pub fn instructions(root: &Path, arguments: &[String]) -> io::Result<bool> {
    let is_update = arguments == ["--update"];
    if !arguments.is_empty() && !is_update {
        return Err(io::Error::other("instructions takes no argument except --update"));
    }
    if Command::new("valgrind").arg("--version").stdout(Stdio::null()).status().is_err() {
        return Err(io::Error::other("valgrind is not installed (apt-get install valgrind)"));
    }
    let program = special_build::build_profile(root, "instructions", "testudo-bench")?
        .ok_or_else(|| io::Error::other("the benchmarks do not build"))?;
    let counted = count_all(&program)?;
    let path = root.join(FILE);
    if is_update {
        fs::write(&path, lines(&counted))?;
        println!("instructions: {} cases written to {FILE}", counted.len());
        return Ok(true);
    }
    let expected = parse(&fs::read_to_string(&path)?)?;
    let Findings { complaints, gains } = compare(&expected, &counted);
    for (name, count) in &counted {
        println!(
            "{name:<22} {count:>9.1} instructions, expected {:.1}",
            expected.get(name).copied().unwrap_or(0.0)
        );
    }
    for finding in complaints.iter().chain(&gains) {
        println!("{finding}");
    }
    println!("instructions: {} cases, {} complaints", counted.len(), complaints.len());
    Ok(complaints.is_empty())
}

type Counts = BTreeMap<String, f64>;

fn count_all(program: &Path) -> io::Result<Counts> {
    let mut runs: Vec<(String, Command)> = Vec::new();
    for (micro, cases) in CASES {
        for case in cases {
            for operations in [OPERATIONS, 2 * OPERATIONS] {
                let mut command = Command::new("valgrind");
                command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program);
                command.args([
                    "micro",
                    micro,
                    "--case",
                    case,
                    "--subject",
                    "testudo",
                    "--threads",
                    "1",
                    "--ops",
                ]);
                command.arg(operations.to_string());
                runs.push((format!("{micro}/{case}"), command));
            }
        }
    }
    let (names, commands): (Vec<_>, Vec<_>) = runs.into_iter().unzip();
    let results: Vec<Mutex<io::Result<u64>>> =
        names.iter().map(|_| Mutex::new(Err(io::Error::other("was not run")))).collect();
    special_build::run_all(commands, |index, output| {
        let total = output.and_then(|output| {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            collected(&text).filter(|_| output.status.success()).ok_or_else(|| io::Error::other(text))
        });
        if let Ok(mut result) = results[index].lock() {
            *result = total;
        }
    });
    let mut totals = Vec::with_capacity(results.len());
    for result in results {
        totals.push(result.into_inner().map_err(|_| io::Error::other("a run panicked"))??);
    }
    let pairs = names.chunks(2).zip(totals.chunks(2));
    Ok(pairs.map(|(names, totals)| (names[0].clone(), per_operation(totals[0], totals[1]))).collect())
}

fn per_operation(once: u64, twice: u64) -> f64 {
    twice.saturating_sub(once) as f64 / OPERATIONS as f64
}

/// Number after callgrind's `Collected :`.
fn collected(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit(' ').next()?.parse().ok()
}

fn lines(counts: &Counts) -> String {
    let mut text = String::new();
    for (name, count) in counts {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{{\"case\":\"{name}\",\"instructions_per_op\":{count:.1}}}");
    }
    text
}

/// Parses the output of [`lines`].
fn parse(text: &str) -> io::Result<Counts> {
    let entry = |line: &str| {
        let (name, count) = line.strip_prefix("{\"case\":\"")?.split_once("\",\"instructions_per_op\":")?;
        Some((name.to_owned(), count.strip_suffix('}')?.parse().ok()?))
    };
    let malformed = |line: &str| io::Error::other(format!("{FILE}: not a line of this file: {line}"));
    text.lines().map(|line| entry(line).ok_or_else(|| malformed(line))).collect()
}

/// Messages for cases that changed by more than the tolerance, or that are in only one of the lists.
#[derive(Default)]
struct Findings {
    /// Failures.
    complaints: Vec<String>,
    gains: Vec<String>,
}

fn compare(expected: &Counts, counted: &Counts) -> Findings {
    let Findings { mut complaints, mut gains } = Findings::default();
    for (name, count) in counted {
        let Some(before) = expected.get(name) else {
            complaints.push(format!("{name} is new: run `cargo run -p xtask -- instructions --update`"));
            continue;
        };
        let change = count / before.max(1.0) - 1.0;
        let change_text = format!("{name}: {before:.1} -> {count:.1} instructions, {:+.0} %", change * 100.0);
        if change > TOLERANCE {
            complaints.push(format!("{change_text}, slower"));
        } else if change < -TOLERANCE {
            gains.push(format!("{change_text}, faster: record it with --update"));
        }
    }
    let gone = expected.keys().filter(|name| !counted.contains_key(*name));
    complaints.extend(gone.map(|name| format!("{name} is no longer counted")));
    Findings { complaints, gains }
}

#[cfg(test)]
mod tests;
