//! Opens stores and keyspaces on behalf of verbs, with errors that name them.
//!
//! **Invariants**
//! - Nothing is created unless the verb was told to create.

use std::sync::Arc;

use testudo::{Db, DbBuilder, Error, Keyspace, KeyspaceOptions};
use testudo_env::Env;
use testudo_storage::SuperblockFile;

use crate::{
    arguments::StoreArguments,
    context::Context,
    failure::{Failure, Outcome},
};

fn builder(context: &Context, store: &StoreArguments) -> DbBuilder {
    let env: Arc<dyn Env> = context.env.clone();
    let builder = Db::builder(&store.dir).env(env).create(false);
    match store.memory {
        Some(bytes) => builder.memory_bytes(bytes),
        None => builder,
    }
}

/// Opens an existing store to look at it; any number of readers can, as long as nobody writes.
pub(crate) fn open_for_reading(context: &Context, store: &StoreArguments) -> Result<Db, Failure> {
    try_open_for_reading(context, store).map_err(|error| store.failure(&error))
}

/// As [`open_for_reading`], for a verb that looks at the error itself.
pub(crate) fn try_open_for_reading(context: &Context, store: &StoreArguments) -> testudo::Result<Db> {
    builder(context, store).read_only().open()
}

/// Opens a store to change it; creates it only if told to.
pub(crate) fn open_for_writing(
    context: &Context,
    store: &StoreArguments,
    create: bool,
) -> Result<Db, Failure> {
    builder(context, store).create(create).open().map_err(|error| store.failure(&error))
}

/// The id of the store in hex.
pub(crate) fn store_id(context: &Context, store: &StoreArguments) -> Result<String, Failure> {
    let opened = SuperblockFile::open(&*context.env, &store.dir, false);
    let (_, superblock) = opened.map_err(|error| store.failure(&error))?;
    Ok(format!("{:032x}", superblock.store.0))
}

impl StoreArguments {
    /// A failed call of this store.
    pub(crate) fn failure(&self, error: &Error) -> Failure {
        Failure::store(&self.dir, error)
    }

    /// The keyspace `name`, which must exist.
    pub(crate) fn existing_keyspace(&self, db: &Db, name: &str) -> Result<Keyspace, Failure> {
        let found = db.open_keyspace(name).map_err(|error| self.failure(&error))?;
        found.ok_or_else(|| Failure::about(self.dir.display(), format!("has no keyspace '{name}'")))
    }

    /// The keyspace `name`, created with the default tree if told to.
    pub(crate) fn keyspace(&self, db: &Db, name: &str, create: bool) -> Result<Keyspace, Failure> {
        if !create {
            return self.existing_keyspace(db, name);
        }
        db.keyspace(name, KeyspaceOptions::default).map_err(|error| self.failure(&error))
    }

    /// Closes a store that was changed, so that errors of the last moment are seen.
    pub(crate) fn close(&self, db: Db, outcome: Outcome) -> Outcome {
        let closed = db.close().map_err(|error| self.failure(&error));
        let verdict = outcome?;
        closed.map(|()| verdict)
    }
}
