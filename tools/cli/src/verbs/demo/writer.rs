//! Child process that the demo kills: writes numbered records in batches across two keyspaces.
//!
//! Batch `n` contains the records `n × RECORDS_PER_BATCH ..`, each in both keyspaces. Every `sync_every`-th
//! batch is committed with `Sync` and then reported: one line with the number of batches that must survive.
//!
//! **Invariants**
//! - A line is printed only after the store acknowledged that everything up to it is durable.
//! - The process ends when its reports are no longer read.

use std::{path::PathBuf, sync::Arc};

use clap::Args;
use testudo::{Db, Durability, KeyspaceOptions};
use testudo_env::Env;

use super::made_up;
use crate::{
    context::Context,
    failure::{Failure, Outcome, Verdict},
};

/// Records per batch, in each of the keyspaces.
pub(super) const RECORDS_PER_BATCH: u64 = 20;
/// Keyspaces that the child writes to.
pub(super) const KEYSPACES: [&str; 2] = ["survivors", "survivors-mirror"];
const VALUE_BYTES: usize = 120;
/// Maximum batches, in case the child is never killed.
const BATCHES_MAX: u64 = 1_000_000;

/// Arguments of the hidden verb.
#[derive(Args, Debug)]
pub(crate) struct WriterArguments {
    /// Directory of the store
    pub(super) dir: PathBuf,
    /// Number of the first batch
    #[arg(long)]
    pub(super) first_batch: u64,
    /// Sync every n-th batch
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) sync_every: u64,
    /// Memory budget of the store
    #[arg(long)]
    pub(super) memory: u64,
}

/// Writes until killed.
pub(crate) fn run_writer(context: &mut Context, arguments: &WriterArguments) -> Outcome {
    let env: Arc<dyn Env> = context.env.clone();
    let builder = Db::builder(&arguments.dir).env(env).create(false).memory_bytes(arguments.memory);
    let db = builder.open().map_err(|error| Failure::store(&arguments.dir, &error))?;
    let keyspaces = [
        db.keyspace(KEYSPACES[0], KeyspaceOptions::default)?,
        db.keyspace(KEYSPACES[1], KeyspaceOptions::default)?,
    ];
    for number in arguments.first_batch..BATCHES_MAX {
        let mut batch = db.batch();
        for record in number * RECORDS_PER_BATCH..(number + 1) * RECORDS_PER_BATCH {
            for keyspace in &keyspaces {
                batch.insert(keyspace, key(record), value(record));
            }
        }
        let synced = (number + 1).is_multiple_of(arguments.sync_every);
        let durability = if synced { Durability::Sync } else { Durability::Buffered };
        batch.durability(durability).commit()?;
        if synced {
            context.console.line(format_args!("{}", number + 1))?;
            context.console.flush()?;
        }
    }
    Ok(Verdict::Fine)
}

/// Key of a record.
pub(super) fn key(record: u64) -> [u8; 8] {
    record.to_be_bytes()
}

/// Value of a record.
pub(super) fn value(record: u64) -> Vec<u8> {
    made_up::value(record, VALUE_BYTES)
}
