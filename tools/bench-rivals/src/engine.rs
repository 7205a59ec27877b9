//! The engines that can be measured, by name.
//!
//! **Invariants**
//! - An engine that cannot run reports the reason before anything is measured.

use clap::ValueEnum;
use testudo::Result;
use testudo_bench::{Context, Outcome, QueueArgs, Testudo, YcsbArgs, run_on, run_queue_on};

use crate::{fjall_store::Fjall, lmdb::Lmdb, redb_store::Redb, rocksdb, rocksdb::RocksDb};

/// Testudo or one of its rivals.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Engine {
    /// This project's store
    Testudo,
    /// Testudo with splinter trees
    TestudoSplinter,
    /// Testudo with leveled trees
    TestudoLeveled,
    /// Testudo with leveled trees and values placed by size
    TestudoParallax,
    /// Testudo with LSbM-trees
    TestudoLsbm,
    /// Testudo with pages updated in place
    TestudoTreeline,
    /// RocksDB, leveled
    Rocksdb,
    /// RocksDB with values of at least 512 bytes in blob files
    Blobdb,
    /// RocksDB with a hash index in data blocks, another cache and pipelined writes
    RocksdbTuned,
    /// RocksDB with manual_wal_flush: a process loses its last writes when it ends
    RocksdbManualWal,
    /// LMDB
    Lmdb,
    /// fjall
    Fjall,
    /// redb
    Redb,
}

impl Engine {
    /// Returns the name on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Returns the worst event that every acknowledged write survives.
    pub(crate) fn survives(self, is_synced: bool) -> &'static str {
        match self {
            _ if is_synced => "power loss",
            // Their commits stay in process memory until a buffer is full or half a second has passed.
            Self::RocksdbManualWal | Self::Redb => "nothing",
            _ => "process end",
        }
    }

    /// Checks that the engine can run here; returns the reason if it cannot.
    pub(crate) fn check(self) -> std::result::Result<(), String> {
        match self {
            Self::Rocksdb | Self::Blobdb | Self::RocksdbTuned | Self::RocksdbManualWal => rocksdb::check(),
            Self::Testudo | Self::TestudoSplinter | Self::TestudoLeveled => Ok(()),
            Self::TestudoParallax | Self::TestudoLsbm | Self::TestudoTreeline => Ok(()),
            Self::Lmdb | Self::Fjall | Self::Redb => Ok(()),
        }
    }

    /// Runs the workloads in this process.
    pub(crate) fn run(self, args: &YcsbArgs, context: &Context) -> Result<Outcome> {
        match self {
            Self::Testudo => run_on::<Testudo>(args, context),
            Self::TestudoSplinter => run_on::<Testudo>(&with_tree(args, "splinter"), context),
            Self::TestudoLeveled => run_on::<Testudo>(&with_tree(args, "leveled"), context),
            Self::TestudoParallax => run_on::<Testudo>(&with_tree(args, "parallax"), context),
            Self::TestudoLsbm => run_on::<Testudo>(&with_tree(args, "lsbm"), context),
            Self::TestudoTreeline => run_on::<Testudo>(&with_tree(args, "treeline"), context),
            Self::Rocksdb => run_on::<RocksDb<0>>(args, context),
            Self::Blobdb => run_on::<RocksDb<1>>(args, context),
            Self::RocksdbTuned => run_on::<RocksDb<2>>(args, context),
            Self::RocksdbManualWal => run_on::<RocksDb<3>>(args, context),
            Self::Lmdb => run_on::<Lmdb>(args, context),
            Self::Fjall => run_on::<Fjall>(args, context),
            Self::Redb => run_on::<Redb>(args, context),
        }
    }

    /// Runs queues in this process.
    pub(crate) fn run_queue(self, args: &QueueArgs, context: &Context) -> Result<Outcome> {
        let with_tree = |tree| run_queue_on::<Testudo>(&queue_with_tree(args, tree), context);
        match self {
            Self::Testudo => run_queue_on::<Testudo>(args, context),
            Self::TestudoSplinter => with_tree("splinter"),
            Self::TestudoLeveled => with_tree("leveled"),
            Self::TestudoParallax => with_tree("parallax"),
            Self::TestudoLsbm => with_tree("lsbm"),
            Self::TestudoTreeline => with_tree("treeline"),
            Self::Rocksdb => run_queue_on::<RocksDb<0>>(args, context),
            Self::Blobdb => run_queue_on::<RocksDb<1>>(args, context),
            Self::RocksdbTuned => run_queue_on::<RocksDb<2>>(args, context),
            Self::RocksdbManualWal => run_queue_on::<RocksDb<3>>(args, context),
            Self::Lmdb => run_queue_on::<Lmdb>(args, context),
            Self::Fjall => run_queue_on::<Fjall>(args, context),
            Self::Redb => run_queue_on::<Redb>(args, context),
        }
    }
}

fn queue_with_tree(args: &QueueArgs, tree: &str) -> QueueArgs {
    let mut args = args.clone();
    tree.clone_into(&mut args.store.tree);
    args
}

fn with_tree(args: &YcsbArgs, tree: &str) -> YcsbArgs {
    let mut args = args.clone();
    tree.clone_into(&mut args.store.tree);
    args
}
