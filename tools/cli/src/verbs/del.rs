//! `testudo del`: removes keys by name, from a file, or by prefix.
//!
//! **Invariants**
//! - Exit code 0 means that every named key existed and that all removals are durable.
//! - Keys are removed in batches, in order. A failure or an interruption takes effect between two batches,
//!   and its message states the number of removed keys.
//! - With `--dry-run` the store is opened read-only.

use std::{collections::BTreeSet, path::PathBuf};

use clap::{ArgGroup, Args};
use serde_json::json;
use testudo::{Db, Durability, Keyspace};

use crate::{
    arguments::{RecordArguments, StoreArguments},
    context::{Context, Interruption},
    failure::{Failure, Outcome, Verdict, say},
    input::line_reader::{LineReader, Newline},
    output::{
        progress::{Progress, Unit},
        size::show_count,
    },
    store,
};

const BATCH_KEYS: usize = 1000;

/// Arguments of `testudo del`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("which").required(true).args(["keys", "file", "prefix"]))]
pub(crate) struct DelArguments {
    #[command(flatten)]
    store: StoreArguments,
    /// Keys to remove
    #[arg(value_name = "KEY")]
    keys: Vec<String>,
    /// Remove the keys in this file, one per line; - for standard input
    #[arg(long)]
    file: Option<PathBuf>,
    /// Line ending of that file. By default, a line feed ends a line and a file with signs of other line
    /// endings is rejected
    #[arg(long, value_enum, requires = "file")]
    newline: Option<Newline>,
    /// Remove all keys with this prefix
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    prefix: Option<String>,
    /// Only report how many keys would be removed
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    record: RecordArguments,
}

/// Removes the keys and reports their number.
pub(crate) fn run(context: &mut Context, arguments: &DelArguments) -> Outcome {
    let store = &arguments.store;
    let keys = Keys::of(context, arguments)?;
    let db = match arguments.dry_run {
        true => store::open_for_reading(context, store)?,
        false => store::open_for_writing(context, store)?,
    };
    let mut missing = MissingKeys::default();
    let removed = remove(context, arguments, &db, keys, &mut missing);
    let (removed, outcome) = match removed {
        Ok(removed) => (removed, Ok(Verdict::Fine)),
        Err(failure) => (0, Err(failure)),
    };
    store.close(db, outcome)?;
    report(context, arguments, removed, &missing)
}

/// Keys to remove.
enum Keys {
    Named(Vec<Vec<u8>>),
    Lines(LineReader, Interruption),
    Prefix(Vec<u8>, Interruption),
}

impl Keys {
    fn of(context: &mut Context, arguments: &DelArguments) -> Result<Self, Failure> {
        let formats = arguments.record.formats;
        let parse = |key: &String| formats.parse_key(key.as_bytes()).map_err(Failure::new);
        if let Some(path) = &arguments.file {
            let interruption = context.catch_interruption()?;
            return Ok(Self::Lines(
                LineReader::open(context, path, &interruption, arguments.newline)?,
                interruption,
            ));
        }
        if let Some(prefix) = &arguments.prefix {
            return Ok(Self::Prefix(parse(prefix)?, context.catch_interruption()?));
        }
        arguments.keys.iter().map(parse).collect::<Result<_, _>>().map(Self::Named)
    }
}

/// Named keys that do not exist.
#[derive(Default)]
struct MissingKeys {
    first: Option<Vec<u8>>,
    count: u64,
}

/// Removes the keys; returns the number of removed keys.
fn remove(
    context: &Context,
    arguments: &DelArguments,
    db: &Db,
    keys: Keys,
    missing: &mut MissingKeys,
) -> Result<u64, Failure> {
    let store = &arguments.store;
    let keyspace = store.existing_keyspace(db, &arguments.record.keyspace.name)?;
    let progress = Progress::new(context, "del", None, Unit::Records);
    let mut remover = Remover::new(arguments, db, &keyspace, progress);
    let removed = match keys {
        Keys::Named(keys) => keys.into_iter().try_for_each(|key| remover.remove_named(key, missing)),
        Keys::Lines(lines, interruption) => remover.remove_lines(lines, &interruption, missing),
        Keys::Prefix(prefix, interruption) => remover.remove_prefix(&prefix, &interruption),
    };
    // Removals so far are made durable even after a failure.
    let ended = remover.end();
    let count = remover.removed;
    removed.and(ended).map(|()| count).map_err(|failure| match failure {
        Failure::Message(message) if count > 0 => {
            Failure::new(format!("{message}; {count} keys were removed"))
        }
        failure => failure,
    })
}

/// Batches removals.
struct Remover<'a> {
    arguments: &'a DelArguments,
    db: &'a Db,
    keyspace: &'a Keyspace,
    progress: Progress,
    batch: BTreeSet<Vec<u8>>,
    removed: u64,
}

impl<'a> Remover<'a> {
    fn new(arguments: &'a DelArguments, db: &'a Db, keyspace: &'a Keyspace, progress: Progress) -> Self {
        Self { arguments, db, keyspace, progress, batch: BTreeSet::new(), removed: 0 }
    }

    fn remove_named(&mut self, key: Vec<u8>, missing: &mut MissingKeys) -> Result<(), Failure> {
        let found = self.keyspace.contains_key(&key).map_err(|error| self.arguments.store.failure(&error))?;
        if found {
            return self.add(key);
        }
        missing.count += 1;
        missing.first.get_or_insert(key);
        Ok(())
    }

    fn remove_lines(
        &mut self,
        mut lines: LineReader,
        interruption: &Interruption,
        missing: &mut MissingKeys,
    ) -> Result<(), Failure> {
        let formats = self.arguments.record.formats;
        let name = lines.name().to_owned();
        loop {
            let number = lines.number() + 1;
            let key = match lines.next_whole_line() {
                // The input may have ended in the middle of a line.
                _ if interruption.is_raised() => break,
                Ok(None) => break,
                Ok(Some(line)) => formats.parse_key(line),
                Err(reason) => Err(reason),
            };
            self.remove_named(
                key.map_err(|why| Failure::new(format!("{name} line {number}: {why}")))?,
                missing,
            )?;
        }
        self.check(interruption)
    }

    fn remove_prefix(&mut self, prefix: &[u8], interruption: &Interruption) -> Result<(), Failure> {
        let store = &self.arguments.store;
        for entry in self.keyspace.prefix(prefix).map_err(|error| store.failure(&error))? {
            let entry = entry.map_err(|error| store.failure(&error))?;
            self.add(entry.key().to_vec())?;
            self.check(interruption)?;
        }
        Ok(())
    }

    fn check(&self, interruption: &Interruption) -> Result<(), Failure> {
        if interruption.is_raised() { Err(Failure::new("interrupted")) } else { Ok(()) }
    }

    fn add(&mut self, key: Vec<u8>) -> Result<(), Failure> {
        self.batch.insert(key);
        if self.batch.len() >= BATCH_KEYS {
            self.commit()?;
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Failure> {
        let keys = std::mem::take(&mut self.batch);
        let count = testudo_base::num::u64_of(keys.len());
        if !self.arguments.dry_run {
            let mut batch = self.db.batch();
            keys.iter().for_each(|key| batch.remove(self.keyspace, key));
            batch.commit().map_err(|error| self.arguments.store.failure(&error))?;
        }
        self.removed += count;
        self.progress.set(self.removed);
        Ok(())
    }

    /// Commits the last batch and makes all removals durable.
    fn end(&mut self) -> Result<(), Failure> {
        self.commit()?;
        if self.arguments.dry_run {
            return Ok(());
        }
        self.db.persist(Durability::Sync).map_err(|error| self.arguments.store.failure(&error))
    }
}

fn report(context: &mut Context, arguments: &DelArguments, removed: u64, missing: &MissingKeys) -> Outcome {
    let name = &arguments.record.keyspace.name;
    let is_one = arguments.keys.len() == 1;
    if let (true, Some(key)) = (is_one, &missing.first) {
        return Err(arguments.store.no_key(key, name));
    }
    if context.json {
        let dry_run = arguments.dry_run;
        let document = json!({ "removed": removed, "not_found": missing.count, "dry_run": dry_run });
        context.console.json(&document)?;
    } else if arguments.dry_run {
        context.console.line(format_args!("{} keys would be removed", show_count(removed)))?;
    } else if !is_one {
        context.console.line(format_args!("{} keys removed", show_count(removed)))?;
    }
    let Some(key) = &missing.first else { return Ok(Verdict::Fine) };
    if !context.json {
        let first = crate::input::bytes_text::escape(key);
        let dir = arguments.store.dir.display();
        say(&format!("{dir}: {} of the keys do not exist, such as '{first}'", show_count(missing.count)));
    }
    Ok(Verdict::Negative)
}
