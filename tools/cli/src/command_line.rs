//! The command line: verbs and global flags.
//!
//! **Invariants**
//! - Every verb on a store takes its directory first. `TESTUDO_DIR` is used only if the command line is one
//!   argument short: typed arguments take precedence.
//! - `--json` is accepted before and after the verb.

use std::ffi::OsString;

use clap::{
    Arg, ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches, Parser, Subcommand, error::ErrorKind,
};
use testudo_base::planted;

use crate::{
    context::Context,
    failure::Outcome,
    verbs::{
        backup, bench, checkpoint, compact, completions, count, del, demo, dump, estimate, get, info,
        keyspace, load, ls, man, manifest, merge, page, put, repair, salvage, scan, scrub, space, stat, tree,
        verify, wal,
    },
};

const AFTER_HELP: &str = "\
Exit codes:
  0  success; no damage found. An empty range, prefix or file is a success
  1  damage was found, or the named store, keyspace, key, page or backup
     does not exist (with --json: {\"damaged\": true, ...} or
     {\"found\": false, \"missing\": \"key\"})
  2  failure: bad arguments or input, store in use by another process,
     permission denied, I/O error; or there is no store to verify, scrub,
     repair or salvage. The reason is on standard error

Keys, values and keyspace names are read and printed escaped: \\\\ \\t \\n \\r
and \\xNN denote bytes, other text is literal. --key-format and --value-format
select another format, see `testudo get --help`.

SIZE is in bytes, or has a unit: KiB, MiB, GiB (powers of 1024), k, M, G
(powers of 1000).

TESTUDO_DIR names the directory of the store if none is given:
`testudo get KEY`.";
/// Name of the flag of all verbs except those with an output format of their own.
const JSON: &str = "json";
const WITHOUT_JSON: [&str; 4] = ["bench", "completions", "man", "demo-writer"];

/// Command line.
#[derive(Debug, Parser)]
#[command(
    name = "testudo",
    version,
    about = "Inspect, change and verify Testudo stores",
    after_help = AFTER_HELP
)]
pub(crate) struct Arguments {
    /// Verb to run.
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// Verb to run.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Runs a one-minute tour: load, read, scan, snapshots, a killed writer, verification, statistics
    Demo(demo::DemoArguments),
    /// Prints the store's id, format, keyspaces, sizes and files
    Info(info::InfoArguments),
    /// Prints all counters and gauges
    Stat(stat::StatArguments),
    /// Outlines a keyspace's tree
    Tree(tree::TreeArguments),
    /// Breaks down disk space by use
    Space(space::SpaceArguments),
    /// Lists the keyspaces
    Ls(ls::LsArguments),
    /// Prints the value of a key
    Get(get::GetArguments),
    /// Prints records in key order
    Scan(scan::ScanArguments),
    /// Counts records
    Count(count::CountArguments),
    /// Estimates the bytes that records take, without reading them
    Estimate(estimate::EstimateArguments),
    /// Sets the value of a key, durably (changes the store)
    Put(put::PutArguments),
    /// Merges an operand into the value of a key (changes the store)
    Merge(merge::MergeArguments),
    /// Removes keys durably: by name, from a file, or by prefix (changes the store)
    #[command(visible_alias = "rm")]
    Del(del::DelArguments),
    /// Inserts the records of a file (changes the store)
    Load(load::LoadArguments),
    /// Writes all records of a keyspace as text that `load` reads
    Dump(dump::DumpArguments),
    /// Checks everything on disk (exit code 1 if anything is damaged)
    Verify(verify::VerifyArguments),
    /// Manages backups in a repository directory: create, list, verify, restore, delete
    Backup(backup::BackupArguments),
    /// Creates a second, complete store with the same contents in another directory
    Checkpoint(checkpoint::CheckpointArguments),
    /// Repairs damage in place where valid parts suffice (changes the store; exit code 1 if other damage
    /// remains)
    Repair(repair::RepairArguments),
    /// Creates a new store from the intact parts of a damaged one (exit code 1 if anything is lost)
    Salvage(salvage::SalvageArguments),
    /// Checks everything on the device at a chosen rate; can be resumed (exit code 1 if anything is damaged)
    Scrub(scrub::ScrubArguments),
    /// Prints the log as stored: commits with their operations, and damage
    Wal(wal::WalArguments),
    /// Prints superblock and manifests as stored: edits with their changes, and damage
    Manifest(manifest::ManifestArguments),
    /// Prints pages as stored in the data file: header, entries, and why a damaged page is damaged
    Page(page::PageArguments),
    /// Does all pending background work, or compacts a keyspace or range completely (changes the store)
    Compact(compact::CompactArguments),
    /// Creates, converts, drops or lists keyspaces (all but list change the store)
    Keyspace(keyspace::KeyspaceArguments),
    /// Runs workloads and traces, and measures the device itself
    Bench(Box<bench::BenchArguments>),
    /// Prints shell completions
    Completions(completions::CompletionsArguments),
    /// Prints the manual page of the program or of a verb
    Man(man::ManArguments),
    /// Child process that `demo` kills.
    #[command(hide = true)]
    DemoWriter(demo::WriterArguments),
}

impl Verb {
    /// Whether the verb checks a store for damage. Such a verb fails with exit code 2 if there is no store.
    pub(crate) fn is_check(&self) -> bool {
        match self {
            Self::Verify(_) | Self::Scrub(_) | Self::Repair(_) | Self::Salvage(_) => true,
            Self::Backup(arguments) => arguments.is_check(),
            _ => false,
        }
    }

    /// Runs the verb.
    pub(crate) fn run(self, context: &mut Context) -> Outcome {
        match self {
            Self::Demo(arguments) => demo::run(context, &arguments),
            Self::Info(arguments) => info::run(context, &arguments),
            Self::Stat(arguments) => stat::run(context, &arguments),
            Self::Tree(arguments) => tree::run(context, &arguments),
            Self::Space(arguments) => space::run(context, &arguments),
            Self::Ls(arguments) => ls::run(context, &arguments),
            Self::Get(arguments) => get::run(context, &arguments),
            Self::Scan(arguments) => scan::run(context, &arguments),
            Self::Count(arguments) => count::run(context, &arguments),
            Self::Estimate(arguments) => estimate::run(context, &arguments),
            Self::Put(arguments) => put::run(context, &arguments),
            Self::Merge(arguments) => merge::run(context, &arguments),
            Self::Del(arguments) => del::run(context, &arguments),
            Self::Load(arguments) => load::run(context, &arguments),
            Self::Dump(arguments) => dump::run(context, &arguments),
            Self::Verify(arguments) => verify::run(context, &arguments),
            Self::Backup(arguments) => backup::run(context, &arguments),
            Self::Checkpoint(arguments) => checkpoint::run(context, &arguments),
            Self::Repair(arguments) => repair::run(context, &arguments),
            Self::Salvage(arguments) => salvage::run(context, &arguments),
            Self::Scrub(arguments) => scrub::run(context, &arguments),
            Self::Wal(arguments) => wal::run(context, &arguments),
            Self::Manifest(arguments) => manifest::run(context, &arguments),
            Self::Page(arguments) => page::run(context, &arguments),
            Self::Compact(arguments) => compact::run(context, &arguments),
            Self::Keyspace(arguments) => keyspace::run(context, &arguments),
            Self::Bench(arguments) => bench::run(context, &arguments),
            Self::Completions(arguments) => completions::run(context, &arguments, command()),
            Self::Man(arguments) => man::run(context, &arguments, command()),
            Self::DemoWriter(arguments) => demo::run_writer(context, &arguments),
        }
    }
}

/// Returns the command, with `--json` added to each verb that supports it.
pub(crate) fn command() -> Command {
    const HELP: &str = "Print JSON: one document, or one line per record";
    let flag = |what: &'static str| Arg::new(JSON).long("json").action(ArgAction::SetTrue).help(what);
    let before_the_verb = (!planted!("json-before-the-verb-refused")).then(|| flag(HELP));
    Arguments::command().args(before_the_verb).mut_subcommands(|verb| {
        let verb = with_numbers_below_zero(verb);
        match WITHOUT_JSON.contains(&verb.get_name()) {
            true => verb,
            false => verb.arg(flag(HELP).global(true)),
        }
    })
}

/// Accepts negative numbers as values rather than flags, so that the argument's own parser rejects them.
fn with_numbers_below_zero(verb: Command) -> Command {
    let takes_value = |argument: &Arg| argument.get_action().takes_values();
    let verb = verb.mut_args(|argument| match takes_value(&argument) {
        true => argument.allow_negative_numbers(true),
        false => argument,
    });
    verb.mut_subcommands(with_numbers_below_zero)
}

/// Parses the command line; also returns whether to print JSON. `default_dir` is the value of `TESTUDO_DIR`.
pub(crate) fn parse(
    typed: &[OsString],
    default_dir: Option<OsString>,
) -> Result<(Arguments, bool), clap::Error> {
    let matches = match (command().try_get_matches_from(typed), default_dir) {
        (Err(error), Some(dir)) if error.kind() == ErrorKind::MissingRequiredArgument => {
            let typed = with_directory(typed, dir).ok_or(error)?;
            command().try_get_matches_from(typed)?
        }
        (outcome, _) => outcome?,
    };
    let arguments = Arguments::from_arg_matches(&matches)?;
    let is_before_the_verb = matches.try_get_one(JSON).ok().flatten() == Some(&true);
    if is_before_the_verb && WITHOUT_JSON.iter().any(|verb| matches.subcommand_name() == Some(verb)) {
        let message =
            "this verb has no JSON output (`bench` writes JSON to a file: --json FILE at the end)\n";
        return Err(command().error(ErrorKind::ArgumentConflict, message));
    }
    Ok((arguments, asks_for_json(&matches)))
}

fn asks_for_json(matches: &ArgMatches) -> bool {
    let here = matches.try_get_one::<bool>(JSON).ok().flatten() == Some(&true);
    here || matches.subcommand().is_some_and(|(_, matches)| asks_for_json(matches))
}

/// Inserts `dir` directly after the verb; returns `None` if the verb takes no store directory.
fn with_directory(typed: &[OsString], dir: OsString) -> Option<Vec<OsString>> {
    let mut verb = command();
    let mut end = 1;
    for (at, word) in typed.iter().enumerate().skip(1) {
        if word.to_str().is_some_and(|word| word.starts_with('-')) {
            continue;
        }
        let Some(found) = verb.find_subcommand(word) else { break };
        (verb, end) = (found.clone(), at + 1);
    }
    verb.get_positionals().find(|argument| argument.get_id() == "dir")?;
    let mut typed = typed.to_vec();
    typed.insert(end, dir);
    Some(typed)
}
