//! What can be typed: the verbs, and what goes for all of them.
//!
//! **Invariants**
//! - Every verb that is about a store takes its directory first. Only where that leaves an argument too few
//!   is it the one that `TESTUDO_DIR` names: what is typed always counts.
//! - `--json` is understood before and after the verb.

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
  0  done; nothing wrong was found. A range, a prefix or a file may hold nothing
  1  no: damage was found, or what was named is not there: the store, the
     keyspace, a key, a page, a backup (with --json: {\"damaged\": true, ...} or
     {\"found\": false, \"missing\": \"key\"})
  2  could not: bad arguments or input, in use by another process, not
     permitted, failed; or nothing is there to verify, scrub, repair or
     salvage. The reason is on standard error

Keys, values and names of keyspaces are read and printed escaped: \\\\ \\t \\n \\r
and \\xNN stand for bytes, all else for itself. --key-format and --value-format
choose another form, see `testudo get --help`.

SIZE is in bytes, or has a unit: KiB, MiB, GiB (powers of 1024), k, M, G
(powers of 1000).

TESTUDO_DIR names the directory of the store where none is given:
`testudo get KEY`.";
/// The flag that all verbs have but those that answer in a form of their own.
const JSON: &str = "json";
const WITHOUT_JSON: [&str; 4] = ["bench", "completions", "man", "demo-writer"];

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "testudo",
    version,
    about = "Look into, change and check Testudo stores",
    after_help = AFTER_HELP
)]
pub(crate) struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// The one-minute tour: load, read, scan, snapshots, a killed writer, verification, statistics
    Demo(demo::DemoArguments),
    /// What the store is: id, format, keyspaces, sizes, files
    Info(info::InfoArguments),
    /// All counters and gauges
    Stat(stat::StatArguments),
    /// Outline of a keyspace's tree
    Tree(tree::TreeArguments),
    /// Where the bytes on the device are
    Space(space::SpaceArguments),
    /// The keyspaces
    Ls(ls::LsArguments),
    /// The value of a key
    Get(get::GetArguments),
    /// Records in the order of their keys
    Scan(scan::ScanArguments),
    /// How many records there are
    Count(count::CountArguments),
    /// About how many bytes records take, without reading them
    Estimate(estimate::EstimateArguments),
    /// Sets the value of a key, durably (changes the store)
    Put(put::PutArguments),
    /// Changes the value of one key by an operand of its merge operator (changes the store)
    Merge(merge::MergeArguments),
    /// Removes keys, durably: those named, those of a file, or all with a prefix (changes the store)
    #[command(visible_alias = "rm")]
    Del(del::DelArguments),
    /// Puts the records of a file (changes the store)
    Load(load::LoadArguments),
    /// Writes all records of a keyspace as text that `load` reads
    Dump(dump::DumpArguments),
    /// Checks everything on disk (exit code 1 if something is damaged)
    Verify(verify::VerifyArguments),
    /// Backups of stores in a repository directory: create, list, verify, restore, delete
    Backup(backup::BackupArguments),
    /// Makes a second, complete store with the same contents in another directory
    Checkpoint(checkpoint::CheckpointArguments),
    /// Puts right what can be derived from valid parts (changes the store; exit code 1 if more is damaged)
    Repair(repair::RepairArguments),
    /// Makes a new store out of what is left of a damaged one (exit code 1 if anything is lost)
    Salvage(salvage::SalvageArguments),
    /// Reads everything from the device at a chosen rate and can be resumed (exit code 1 if something is
    /// damaged)
    Scrub(scrub::ScrubArguments),
    /// The log as it stands in the files: commits with their operations, and damage
    Wal(wal::WalArguments),
    /// Superblock and manifests as they stand in the files: edits with their changes, and damage
    Manifest(manifest::ManifestArguments),
    /// Pages as they stand in the data file: header, entries, and why a damaged one is damaged
    Page(page::PageArguments),
    /// Empties the write buffers and waits until background work is done (changes the store)
    Compact(compact::CompactArguments),
    /// Creates, converts, drops or lists keyspaces (all but the last change the store)
    Keyspace(keyspace::KeyspaceArguments),
    /// Workloads, traces and what the device itself gives
    Bench(Box<bench::BenchArguments>),
    /// Completions for a shell, on standard output
    Completions(completions::CompletionsArguments),
    /// The manual page of the program or of a verb, on standard output
    Man(man::ManArguments),
    /// The child that `demo` kills.
    #[command(hide = true)]
    DemoWriter(demo::WriterArguments),
}

impl Verb {
    /// Whether it is there to say if something is sound: where there is nothing, it cannot.
    pub(crate) fn is_check(&self) -> bool {
        match self {
            Self::Verify(_) | Self::Scrub(_) | Self::Repair(_) | Self::Salvage(_) => true,
            Self::Backup(arguments) => arguments.is_check(),
            _ => false,
        }
    }

    /// Does it.
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

/// The command line with `--json` where it belongs.
pub(crate) fn command() -> Command {
    const HELP: &str = "Answer in JSON: one document, or one line a record";
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

/// A number below zero is no flag, wherever a value is expected: what takes it says what is wrong with it.
fn with_numbers_below_zero(verb: Command) -> Command {
    let takes_value = |argument: &Arg| argument.get_action().takes_values();
    let verb = verb.mut_args(|argument| match takes_value(&argument) {
        true => argument.allow_negative_numbers(true),
        false => argument,
    });
    verb.mut_subcommands(with_numbers_below_zero)
}

/// Reads the command line: the verb, and whether to answer in JSON. `default_dir` is what `TESTUDO_DIR` says.
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
            "this verb does not answer in JSON (`bench` writes it to a file: --json FILE at the end)\n";
        return Err(command().error(ErrorKind::ArgumentConflict, message));
    }
    Ok((arguments, asks_for_json(&matches)))
}

fn asks_for_json(matches: &ArgMatches) -> bool {
    let here = matches.try_get_one::<bool>(JSON).ok().flatten() == Some(&true);
    here || matches.subcommand().is_some_and(|(_, matches)| asks_for_json(matches))
}

/// The command line with `dir` right behind the verb; `None` if the verb takes no directory of a store.
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
