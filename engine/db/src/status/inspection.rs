//! A look at a store while another process writes it: the manifest as it stands in the file, and the
//! published status.
//!
//! **Invariants**
//! - Nothing is locked, nothing is written, and no page of the data file is read: its pages may be used anew
//!   at any moment.
//! - What is told was true a moment ago: catalogue and trees when the manifest was read, statistics when they
//!   were published.

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

/// The manifest is read anew as often as that if it changes under the look.
const TRIES: u32 = 20;
/// So often for statistics that are only half written: who writes them may have to wait for a processor.
const STATUS_TRIES: u32 = 50;
/// Between two of them.
const PAUSE: Duration = Duration::from_millis(10);
/// Trees are held, and no pages.
const MEMORY_BYTES: u64 = 1 << 20;

/// A store that another process has open for writing, as [`inspect_store`] sees it.
#[derive(Clone, Debug)]
pub struct StoreInspection {
    /// Id of the store.
    pub store: u128,
    /// The process that has it open for writing; `None` if nobody has any more, or if it could not say so.
    pub writer: Option<u32>,
    /// What that process published; `None` if it has not come to it, or if it cannot write beside the store.
    pub published: Option<PublishedStats>,
    /// Statistics of the store: those published; else those that follow from the manifest, with nothing in
    /// memory.
    pub stats: DbStats,
    /// The keyspaces by name, as they are in the manifest.
    pub keyspaces: Vec<KeyspaceInspection>,
}

/// When statistics were published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedStats {
    /// Time since then, by the clock of the system. A store in which nothing happens publishes nothing new.
    pub age: Duration,
}

/// A keyspace of a [`StoreInspection`].
#[derive(Clone, Debug)]
pub struct KeyspaceInspection {
    /// Its name.
    pub name: String,
    /// Its options.
    pub options: KeyspaceOptions,
    /// Its statistics: those published if it was there then, else those of its tree.
    pub stats: KeyspaceStats,
    /// The structure of its tree, as the manifest has it.
    pub outline: Vec<OutlineLine>,
}

/// Looks at the store in `directory` without opening it, so that it can be in use: which keyspaces it has,
/// their trees, and the statistics that the process publishes which writes it (once a second at most).
///
/// Errors: `Invalid` if there is no store, `Corruption` for a damaged superblock or manifest, `Unsupported`,
/// `Io`.
pub fn inspect_store(env: &Arc<dyn Env>, directory: &Path) -> Result<StoreInspection> {
    let missing = || Error::invalid(format!("{} does not exist", directory.display()));
    let env = directory::anchor(env, directory)?.ok_or_else(missing)?;
    for _ in 1..TRIES {
        match inspect(&env, directory) {
            // An edit that is half written, or a manifest that was just replaced.
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

/// What `process` published of `store`, looked for again if it is just being written.
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
            Some((_, stats)) => {
                KeyspaceStats { tree: durable.tree, moving_from: durable.moving_from, ..stats.clone() }
            }
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
