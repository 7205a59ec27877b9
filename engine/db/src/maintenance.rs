//! Access to an open store for the crates in `maintenance/` and `testing/`. `testudo` does not re-export it.

use testudo_base::{Kind, Result, sync::Arc};
use testudo_options::KeyspaceOptions;
use testudo_recovery::structure::check_structure;
use testudo_store::{Store, keyspace::KeyspaceCore};

pub use crate::copy::consistent_state::ConsistentState;
use crate::{Batch, Db, DbBuilder, Keyspace, background};

/// Returns the open store of a handle.
pub fn store_of(db: &Db) -> &Arc<Store> {
    db.store()
}

/// Returns the state of a keyspace.
pub fn core_of(keyspace: &Keyspace) -> &Arc<KeyspaceCore> {
    &keyspace.core
}

/// Creates a handle of a keyspace.
pub fn keyspace_of(db: &Db, core: &Arc<KeyspaceCore>) -> Keyspace {
    Keyspace::new(db, Arc::clone(core))
}

/// Makes `builder` create a store that stays marked as unfinished until the caller removes the mark.
pub fn unfinished(builder: DbBuilder) -> DbBuilder {
    builder.unfinished()
}

/// Returns the keyspaces with these names, and creates missing ones. Unlike `Db::keyspaces`, accepts a merge
/// operator that is not registered.
///
/// Errors: as `Db::keyspaces`.
pub fn keyspaces_as_described(db: &Db, names: &[&str], options: &KeyspaceOptions) -> Result<Vec<Keyspace>> {
    db.keyspaces_as_described(names, options)
}

/// Creates an empty batch for records of another store, which may be longer than this store's budget allows.
pub fn batch_of_another_store(db: &Db) -> Batch {
    Batch::of_another_store(db)
}

/// Adds an operation of any kind to a batch.
pub fn push(batch: &mut Batch, keyspace: &Keyspace, kind: Kind, key: &[u8], value: &[u8]) {
    batch.push(keyspace, kind, key, value);
}

/// Stepped execution and checks of the structure, for tests.
pub trait Stepping {
    /// Does one step of background work, in stepped execution. Returns `false` if there is none.
    ///
    /// Errors: as `Db::flush`.
    fn step(&self) -> Result<bool>;

    /// Checks the structure in memory: trees, references, extents.
    ///
    /// Errors: `Corruption` for the first violation; `Closed`.
    fn check_invariants(&self) -> Result<()>;
}

impl Stepping for Db {
    fn step(&self) -> Result<bool> {
        self.store().check_writable()?;
        background::step(self.store())
    }

    fn check_invariants(&self) -> Result<()> {
        self.store().read(|| check_structure(self.store(), false))
    }
}

/// Keeps small runs in extents of their own, as large stores do, in a store of any size.
#[must_use]
pub fn small_runs_apart(mut builder: DbBuilder, is_apart: bool) -> DbBuilder {
    builder.0.small_runs_apart = is_apart;
    builder
}
