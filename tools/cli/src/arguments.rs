//! What can be typed: the verbs, and the arguments that many of them share.
//!
//! **Invariants**
//! - Every verb but `demo` and `bench` takes the store's directory first.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::{
    backup, bench, checkpoint, compact, context::Context, del, demo, dump, failure::Outcome, get, info,
    keyspace, load, ls, manifest, merge, page, put, repair, salvage, scan, scrub, size::parse_size, space,
    stat, tree, verify, wal,
};

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "testudo",
    version,
    about = "Look into, change and check Testudo stores",
    after_help = "Exit codes: 0 done; 1 damage found, or not found; 2 could not (the reason is on standard error).\n\
                  SIZE is in bytes, or has a unit: KiB, MiB, GiB (powers of 1024), k, M, G (powers of 1000)."
)]
pub(crate) struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// The one-minute tour: load, read, scan, snapshots, a killed writer, verification, figures
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
    /// The value of a key (exit code 1 if there is none)
    Get(get::GetArguments),
    /// Records in the order of their keys
    Scan(scan::ScanArguments),
    /// Sets the value of a key, durably (changes the store)
    Put(put::PutArguments),
    /// Change the value of one key by an operand of its merge operator
    Merge(merge::MergeArguments),
    /// Removes a key, durably (changes the store; exit code 1 if it is not there)
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
    /// Puts right what can be derived from sound parts (changes the store; exit code 1 if more is damaged)
    Repair(repair::RepairArguments),
    /// Makes a new store out of what is left of a damaged one (exit code 1 if anything is lost)
    Salvage(salvage::SalvageArguments),
    /// Reads everything from the device at a chosen pace and can be resumed (exit code 1 if something is damaged)
    Scrub(scrub::ScrubArguments),
    /// The log as it stands in the files: commits with their operations, and damage
    Wal(wal::WalArguments),
    /// Superblock and manifests as they stand in the files: edits with their changes, and damage
    Manifest(manifest::ManifestArguments),
    /// Pages as they stand in the data file: header, entries, and why a damaged one is damaged
    Page(page::PageArguments),
    /// Empties the write buffers and waits until background work is done (changes the store)
    Compact(compact::CompactArguments),
    /// Creates, drops or lists keyspaces
    Keyspace(keyspace::KeyspaceArguments),
    /// Workloads, traces and what the device itself gives
    Bench(bench::BenchArguments),
    /// The child that `demo` kills.
    #[command(hide = true)]
    DemoWriter(demo::WriterArguments),
}

impl Verb {
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
            Self::DemoWriter(arguments) => demo::run_writer(context, &arguments),
        }
    }
}

/// Which store, and how the answer looks.
#[derive(Args, Debug)]
pub(crate) struct StoreArguments {
    /// Directory of the store
    pub(crate) dir: PathBuf,
    /// Answer in JSON: one document, or one line a record
    #[arg(long)]
    pub(crate) json: bool,
    /// Memory that the store may use
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) memory: Option<u64>,
}

/// Which keyspace, and how keys and values are written.
#[derive(Args, Debug)]
pub(crate) struct RecordArguments {
    /// Keyspace
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) keyspace: String,
    /// Keys and values are hex, on the command line and in the answer
    #[arg(long)]
    pub(crate) hex: bool,
}
