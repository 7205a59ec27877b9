//! Inspection of a store while another process writes it: the manifest file and the published status.
//!
//! **Invariants**
//! - Takes no lock, writes nothing, and reads no page of the data file, whose pages may be reused at any
//!   moment.
//! - The result is a moment old: catalogue and trees date from reading the manifest, statistics from their
//!   publication.

use std::{path::Path, sync::Arc, time::Duration};

use testudo_base::{Error, ErrorKind, Result, StoreId, planted};
use testudo_contract::OutlineLine;
use testudo_env::{Env, LockHolder};
use testudo_options::{KeyspaceOptions, Settings};
use testudo_recovery::{assemble::assemble, load_keyspaces::load_keyspaces};
use testudo_storage::Manifest;
use testudo_store::{
    Store,
    directory::{self, LOCK_FILE},
    memory::budget::Budget,
    space::space_guard::SpaceGuard,
};

use super::{Read, read, status_format::Status};
use crate::{DbStats, KeyspaceStats};

/// Maximum reads of the manifest if it changes during the inspection.
const TRIES: u32 = 20;
/// Maximum reads of torn statistics: their writer may be waiting for a processor.
const STATUS_TRIES: u32 = 50;
/// Pause between two reads.
const PAUSE: Duration = Duration::from_millis(10);
/// Memory budget: the inspection holds trees but no pages.
const MEMORY_BYTES: u64 = 1 << 20;

/// A store that another process has open for writing, as [`inspect_store`] sees it.
#[derive(Clone, Debug)]
pub struct StoreInspection {
    /// Id of the store.
    pub store: u128,
    /// Id of the process that has it open for writing; `None` if there is none, or if the lock does not name
    /// it.
    pub writer: Option<u32>,
    /// Publication by that process; `None` if it has published nothing yet, or cannot write the status file.
    pub published: Option<PublishedStats>,
    /// Statistics of the store: the published ones, otherwise those that follow from the manifest, without
    /// memory contents.
    pub stats: DbStats,
    /// Keyspaces by name, as in the manifest.
    pub keyspaces: Vec<KeyspaceInspection>,
}

/// Age of published statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedStats {
    /// Time since publication, by the system clock. An idle store publishes nothing new.
    pub age: Duration,
}

/// A keyspace of a [`StoreInspection`].
#[derive(Clone, Debug)]
pub struct KeyspaceInspection {
    /// Name of the keyspace.
    pub name: String,
    /// Settings of the keyspace.
    pub options: KeyspaceOptions,
    /// Statistics of the keyspace: the published ones if they include it, otherwise those of its tree.
    pub stats: KeyspaceStats,
    /// Structure of its tree, as in the manifest.
    pub outline: Vec<OutlineLine>,
}

/// Inspects the store in `directory` without opening it, so that another process may be using it: keyspaces,
/// their trees, and the statistics that the writing process publishes (at most once a second).
///
/// Errors: `Invalid` if there is no store; `Corruption` for a damaged superblock or manifest; `Unsupported`
/// for a newer format; `Io`.
pub fn inspect_store(env: &Arc<dyn Env>, directory: &Path) -> Result<StoreInspection> {
    let missing = || Error::invalid(format!("{} does not exist", directory.display()));
    let env = directory::anchor(env, directory)?.ok_or_else(missing)?;
    for _ in 1..TRIES {
        match inspect(&env, directory) {
            // A torn edit, or a manifest that was just replaced.
            Err(error) if error.kind() == ErrorKind::Corruption => env.sleep(PAUSE),
            outcome => return outcome,
        }
    }
    inspect(&env, directory)
}

fn inspect(env: &Arc<dyn Env>, directory: &Path) -> Result<StoreInspection> {
    let settings = Settings { env: Arc::clone(env), read_only: true, ..Settings::new(directory) };
    let manifest = Manifest::open(Arc::clone(env), directory, false)?;
    let (store, _) = assemble(&settings, Budget::new(MEMORY_BYTES)?, manifest, SpaceGuard::new(None))?;
    load_keyspaces(&store)?;
    let writer = match env.lock_holder(&directory.join(LOCK_FILE)) {
        Ok(LockHolder::Owner(process)) => process,
        _ => None,
    };
    let status = writer.and_then(|process| published(&**env, directory, store.id, process));
    let age = |status: &Status| env.wall_clock().saturating_sub(status.time);
    Ok(StoreInspection {
        store: store.id.0,
        writer,
        published: status.as_ref().map(|status| PublishedStats { age: age(status) }),
        stats: status.as_ref().map_or_else(|| DbStats::of(&store), |status| status.stats.clone()),
        keyspaces: keyspaces(&store, status.as_ref()),
    })
}

/// Reads the statistics of `store` published by `process`; retries while they are being written.
fn published(env: &dyn Env, directory: &Path, store: StoreId, process: u32) -> Option<Status> {
    let is_of = |status: &Status| status.store == store && status.process == process;
    for _ in 0..STATUS_TRIES {
        match read(env, directory) {
            Read::Missing => return None,
            Read::Whole(status) => {
                return Some(*status).filter(|status| is_of(status) || planted!("status-of-others-believed"));
            }
            Read::Torn => env.sleep(PAUSE),
        }
    }
    None
}

fn keyspaces(store: &Store, status: Option<&Status>) -> Vec<KeyspaceInspection> {
    let look = |core: &Arc<testudo_store::keyspace::KeyspaceCore>| {
        let view = core.view.load();
        let durable = KeyspaceStats::of(store, core);
        let published =
            status.into_iter().flat_map(|status| &status.keyspaces).find(|(id, _)| *id == core.id);
        let stats = match published {
            Some((_, stats)) => with_names_of(stats, durable),
            None => durable,
        };
        KeyspaceInspection {
            name: core.name.to_string(),
            options: view.options.chosen(),
            stats,
            outline: view.tree.outline(),
        }
    };
    store.catalogue.read().by_name.values().map(look).collect()
}

/// Published statistics with the names of trees, which the status file does not contain.
fn with_names_of(published: &KeyspaceStats, durable: KeyspaceStats) -> KeyspaceStats {
    let mut stats = published.clone();
    stats.tree.name = durable.tree.name;
    stats.moving.from = durable.moving.from;
    stats
}
