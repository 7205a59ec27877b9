//! Opens stores and keyspaces for verbs, with errors that name them.
//!
//! **Invariants**
//! - Nothing is created without `--create`.
//! - A missing store, keyspace or key is [`Failure::Missing`], in every verb.

use std::{io, path::Path, sync::Arc};

use testudo::{Db, DbBuilder, Error, Keyspace, KeyspaceOptions};
use testudo_base::MAX_VALUE_BYTES;
use testudo_env::Env;
use testudo_storage::SuperblockFile;

use crate::{
    arguments::{RangeOfStore, StoreArguments},
    context::Context,
    failure::{Failure, Missing, Outcome},
    input::{bytes_text::escape, key_range::KeyRange},
    output::size::show_size,
};

/// Default memory budget.
const MEMORY_BYTES: u64 = 256 << 20;
/// Hint of verbs that can create a missing store or keyspace.
const CREATE_HINT: &str = "--create creates it";
/// Maximum keyspace names in one message.
const NAMES_SHOWN: usize = 5;

fn builder(context: &Context, store: &StoreArguments) -> DbBuilder {
    let env: Arc<dyn Env> = context.env.clone();
    Db::builder(&store.dir).env(env).create(false).memory_bytes(store.memory_bytes())
}

/// Fails if there is no store. Succeeds if the directory cannot be listed or contains any file of a store;
/// opening it then reports the error.
pub(crate) fn require(context: &Context, dir: &Path) -> Result<(), Failure> {
    let missing = |why: &str| Err(Failure::missing(Missing::Store, dir.display(), why));
    // The path may be a link.
    match context.env.anchor(dir).and_then(|env| env.list_dir(dir)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => missing("there is no such directory"),
        Ok(entries) => {
            let of_store = |name: &str| {
                ["superblock", "UNFINISHED"].contains(&name)
                    || ["manifest-", "wal-"].iter().any(|start| name.starts_with(start))
            };
            match entries.iter().any(|entry| of_store(&entry.name)) {
                true => Ok(()),
                false => missing("there is no Testudo store in this directory"),
            }
        }
        Err(_) => Ok(()),
    }
}

/// Opens an existing store for reading. Several processes can read it while no process writes.
pub(crate) fn open_for_reading(context: &Context, store: &StoreArguments) -> Result<Db, Failure> {
    require(context, &store.dir)?;
    try_open_for_reading(context, store).map_err(|error| store.failure(&error))
}

/// Opens the store and keyspace to read, and parses the key range.
pub(crate) fn open_range(
    context: &Context,
    RangeOfStore { store, record, range }: &RangeOfStore,
) -> Result<(Db, Keyspace, KeyRange), Failure> {
    let range = range.parse(record.formats)?;
    let db = open_for_reading(context, store)?;
    let keyspace = store.existing_keyspace(&db, &record.keyspace.name)?;
    Ok((db, keyspace, range))
}

/// As [`open_for_reading`], for a verb that handles the error itself. REQUIRES: [`require`] found a store.
pub(crate) fn try_open_for_reading(context: &Context, store: &StoreArguments) -> testudo::Result<Db> {
    builder(context, store).read_only().open()
}

/// Opens a store for writing.
pub(crate) fn open_for_writing(context: &Context, store: &StoreArguments) -> Result<Db, Failure> {
    require(context, &store.dir)?;
    builder(context, store).open().map_err(|error| store.failure(&error))
}

/// As [`open_for_writing`], for a verb with the flag `--create`.
pub(crate) fn open_or_create(context: &Context, store: &StoreArguments, create: bool) -> Result<Db, Failure> {
    if !create {
        return open_for_writing(context, store).map_err(|failure| failure.with_hint(CREATE_HINT));
    }
    builder(context, store).create(true).open().map_err(|error| store.failure(&error))
}

/// Id of the store in hex.
pub(crate) fn store_id(context: &Context, store: &StoreArguments) -> Result<String, Failure> {
    let opened = SuperblockFile::open(&*context.env, &store.dir, false);
    let (_, superblock) = opened.map_err(|error| store.failure(&error))?;
    Ok(format!("{:032x}", superblock.store.0))
}

impl StoreArguments {
    /// Failed call to this store.
    pub(crate) fn failure(&self, error: &Error) -> Failure {
        Failure::store(&self.dir, error)
    }

    /// Failure about the record with this key; `hint` follows the reason.
    pub(crate) fn failure_at(&self, key: &[u8], error: &Error, hint: &str) -> Failure {
        Failure::store(&self.dir, error).with_reason(&format!("{hint} (key '{}')", escape(key)))
    }

    /// Failed read of a long value.
    pub(crate) fn read_failure(&self, error: io::Error) -> Failure {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(error) => self.failure(error),
            None => Failure::about(self.dir.display(), error),
        }
    }

    /// Opens the keyspace `name`, which must exist.
    pub(crate) fn existing_keyspace(&self, db: &Db, name: &str) -> Result<Keyspace, Failure> {
        let found = db.open_keyspace(name).map_err(|error| self.failure(&error))?;
        found.ok_or_else(|| self.no_keyspace(&db.keyspace_names(), name))
    }

    /// Failure: keyspace `name` is not among the keyspaces `there`.
    pub(crate) fn no_keyspace(&self, there: &[impl AsRef<str>], name: &str) -> Failure {
        let quoted = |name: &str| format!("'{}'", escape(name.as_bytes()));
        let mut shown: Vec<_> = there.iter().take(NAMES_SHOWN).map(|name| quoted(name.as_ref())).collect();
        if there.len() > NAMES_SHOWN {
            shown.push(format!("{} more", there.len() - NAMES_SHOWN));
        }
        let shown = if shown.is_empty() { "none".to_owned() } else { shown.join(", ") };
        let reason = format!("has no keyspace {}; existing keyspaces: {shown}", quoted(name));
        Failure::missing(Missing::Keyspace, self.dir.display(), reason)
    }

    /// Failure: `key` is not in the keyspace `name`.
    pub(crate) fn no_key(&self, key: &[u8], name: &str) -> Failure {
        let reason = format!("no key '{}' in keyspace '{}'", escape(key), escape(name.as_bytes()));
        Failure::missing(Missing::Key, self.dir.display(), reason)
    }

    /// Memory budget of the store.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memory.unwrap_or(MEMORY_BYTES)
    }

    /// Maximum bytes of a value with this budget.
    pub(crate) fn max_value_bytes(&self) -> u64 {
        (self.memory_bytes() / 4).min(MAX_VALUE_BYTES)
    }

    /// Fails for a value of `bytes` bytes if the store would reject it; the error says which budget allows
    /// it.
    pub(crate) fn check_value(&self, bytes: u64) -> Result<(), String> {
        if bytes <= self.max_value_bytes() {
            return Ok(());
        }
        Err(self.value_too_long(&bytes.to_string(), bytes))
    }

    /// Error message for a value of at least `bytes` bytes; `length` describes its length.
    pub(crate) fn value_too_long(&self, length: &str, bytes: u64) -> String {
        let (memory, limit) = (show_size(self.memory_bytes()), self.max_value_bytes());
        let message = format!("the value has {length} bytes, but --memory {memory} allows at most {limit}");
        match bytes > MAX_VALUE_BYTES {
            true => format!("{message}, and no budget allows more than {MAX_VALUE_BYTES}"),
            false => format!("{message}; it needs a --memory of at least {}", bytes.saturating_mul(4)),
        }
    }

    /// Opens the keyspace `name`; with `create`, creates it with the default tree if it is missing.
    pub(crate) fn keyspace(&self, db: &Db, name: &str, create: bool) -> Result<Keyspace, Failure> {
        if !create {
            return self.existing_keyspace(db, name).map_err(|failure| failure.with_hint(CREATE_HINT));
        }
        db.keyspace(name, KeyspaceOptions::default).map_err(|error| self.failure(&error))
    }

    /// Closes a changed store, so that errors of closing are reported.
    pub(crate) fn close(&self, db: Db, outcome: Outcome) -> Outcome {
        self.close_after(db, |_| outcome)
    }

    /// Runs `change` and closes the store.
    pub(crate) fn close_after<T>(
        &self,
        db: Db,
        change: impl FnOnce(&Db) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let outcome = change(&db);
        let closed = db.close().map_err(|error| self.failure(&error));
        let outcome = outcome?;
        closed.map(|()| outcome)
    }
}
