//! Inspects stores: opened for reading, or while another process writes them.
//!
//! **Invariants**
//! - A store that another process is writing is inspected without its lock; the output says so and states the
//!   age of the statistics.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use testudo::{Db, DbStats, ErrorKind, KeyspaceInspection, StoreInspection, inspect_store};
use testudo_env::Env;

use crate::{arguments::StoreArguments, context::Context, failure::Failure, store};

/// Maximum attempts to open a store that other processes open and close meanwhile.
const TRIES: u32 = 5;

/// Result of an inspection.
pub(crate) struct Inspection {
    /// Id of the store in hex.
    pub(crate) store_id: String,
    pub(crate) stats: DbStats,
    /// Sorted by name.
    pub(crate) keyspaces: Vec<KeyspaceInspection>,
    /// Process that has the store open for writing, if any.
    in_use: Option<InUse>,
}

struct InUse {
    process: Option<u32>,
    /// Age of the statistics; `None` if only the last durable state is known.
    age: Option<Duration>,
}

/// Opens the store and inspects it, or inspects it while another process has it open for writing.
pub(crate) fn inspect(context: &Context, arguments: &StoreArguments) -> Result<Inspection, Failure> {
    store::require(context, &arguments.dir)?;
    let env: Arc<dyn Env> = context.env.clone();
    let mut tries = 0;
    loop {
        tries += 1;
        match store::try_open_for_reading(context, arguments) {
            Ok(db) => return Inspection::of_db(context, arguments, &db),
            Err(error) if error.kind() == ErrorKind::Locked => {
                let inspection = inspect_store(&env, &arguments.dir).map_err(|e| arguments.failure(&e))?;
                // Without a writer the store was closed in the meantime: it may be possible to open it now.
                if inspection.writer.is_some() || tries == TRIES {
                    return Ok(Inspection::beside_writer(inspection));
                }
            }
            Err(error) => return Err(arguments.failure(&error)),
        }
    }
}

impl Inspection {
    fn of_db(context: &Context, arguments: &StoreArguments, db: &Db) -> Result<Self, Failure> {
        let mut keyspaces = Vec::new();
        for name in db.keyspace_names() {
            let keyspace = arguments.existing_keyspace(db, &name)?;
            let (options, stats, outline) = (keyspace.options(), keyspace.stats(), keyspace.outline());
            keyspaces.push(KeyspaceInspection { name, options, stats, outline });
        }
        let store_id = store::store_id(context, arguments)?;
        Ok(Self { store_id, stats: db.stats(), keyspaces, in_use: None })
    }

    fn beside_writer(inspection: StoreInspection) -> Self {
        let StoreInspection { store, writer, published, stats, keyspaces, .. } = inspection;
        let age = published.map(|published| published.age);
        let in_use = Some(InUse { process: writer, age });
        Self { store_id: format!("{store:032x}"), stats, keyspaces, in_use }
    }

    /// Returns the keyspace called `name`, or a failure if there is none.
    pub(crate) fn keyspace(
        &self,
        arguments: &StoreArguments,
        name: &str,
    ) -> Result<&KeyspaceInspection, Failure> {
        let found = self.keyspaces.iter().find(|keyspace| keyspace.name == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = self.keyspaces.iter().map(|keyspace| keyspace.name.as_str()).collect();
            arguments.no_keyspace(&names, name)
        })
    }

    /// Whether another process has the store open for writing.
    pub(crate) fn is_in_use(&self) -> bool {
        self.in_use.is_some()
    }

    /// Adds the writing process and the age of the statistics to a JSON document, if the store is in use.
    pub(crate) fn describe(&self, document: &mut Value) {
        if let Some(InUse { process, age }) = &self.in_use {
            let age_ms = age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
            document["in_use"] = json!({ "process": process, "age_ms": age_ms });
        }
    }

    /// Prints the same as a human-readable line.
    pub(crate) fn say(&self, context: &mut Context) -> Result<(), Failure> {
        if context.json {
            return Ok(());
        }
        let Some(InUse { process, age }) = &self.in_use else { return Ok(()) };
        let who = process.map_or("another process".to_owned(), |process| format!("process {process}"));
        let stats = match age {
            Some(age) => format!("statistics from {:.1} s ago", age.as_secs_f64()),
            None => "which publishes no statistics: these are from its files, without memory".to_owned(),
        };
        context.console.line(format_args!("in use by {who}, {stats}"))
    }
}
