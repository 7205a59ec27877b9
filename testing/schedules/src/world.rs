//! A store on an in-memory machine, and clients that record their calls and answers.
//!
//! **Invariants**
//! - Every call on the store that matters to the checker goes through a [`Client`].

use std::{collections::BTreeMap, path::Path, sync::Arc};

use shuttle::thread::JoinHandle;
use testudo::{Db, Durability, Error, ErrorKind, Keyspace, KeyspaceOptions, Placement, Snapshot, Tree};
use testudo_db::maintenance::Stepping as _;
use testudo_env::{CrashPolicy, MemEnv};

use crate::{
    check::{Image, check},
    history::{Action, Call, Key, Recorder, Value},
};

const DIRECTORY: &str = "/db";
const MEMORY_BYTES: u64 = 1 << 20;

/// The store of one schedule.
pub(crate) struct World {
    pub(crate) env: Arc<MemEnv>,
    pub(crate) db: Db,
    pub(crate) recorder: Recorder,
    clients: Vec<JoinHandle<()>>,
}

/// A thread's access to the store.
pub(crate) struct Client {
    pub(crate) number: usize,
    pub(crate) db: Db,
    pub(crate) recorder: Recorder,
}

/// A snapshot and everything read from it.
pub(crate) struct Held {
    snapshot: Snapshot,
    call: Call,
    returned: u64,
    reads: Vec<(Key, Value)>,
}

fn options() -> KeyspaceOptions {
    KeyspaceOptions::default().tree(Tree::turtle().with_run_bytes(4 << 10).with_max_pivots(4))
}

fn name_of(keyspace: &Keyspace, key: &str) -> Key {
    format!("{}/{key}", keyspace.name())
}

fn text(bytes: &[u8]) -> String {
    // The beginning identifies a long value.
    String::from_utf8_lossy(&bytes[..bytes.len().min(16)]).trim_end_matches('.').to_owned()
}

/// Whether the outcome is unknown: the store was closed or failed during the call.
fn is_open_end(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Closed | ErrorKind::Poisoned)
}

impl World {
    /// Creates a new store.
    pub(crate) fn new() -> Self {
        let env = MemEnv::with_threads(1, 2);
        let db = open(&env);
        Self { env, db, recorder: Recorder::default(), clients: Vec::new() }
    }

    pub(crate) fn keyspace(&self, name: &str) -> Keyspace {
        self.db.keyspace(name, options).expect("a keyspace")
    }

    pub(crate) fn keyspace_with(&self, name: &str, placement: Placement) -> Keyspace {
        self.db.keyspace(name, || options().placement(placement)).expect("a keyspace")
    }

    pub(crate) fn keyspace_of(&self, name: &str, tree: Tree) -> Keyspace {
        self.db.keyspace(name, || options().tree(tree)).expect("a keyspace")
    }

    pub(crate) fn client(&self, number: usize) -> Client {
        Client { number, db: self.db.clone(), recorder: self.recorder.clone() }
    }

    /// Starts a client.
    pub(crate) fn start(&mut self, script: impl FnOnce(&Client) + Send + 'static) {
        let client = self.client(self.clients.len());
        self.clients.push(shuttle::thread::spawn(move || script(&client)));
    }

    /// Waits for all clients.
    pub(crate) fn join(&mut self) {
        for client in self.clients.drain(..) {
            client.join().expect("clients do not panic");
        }
    }

    /// Waits for all clients, loses power, and checks the history together with the remaining content of
    /// `keyspaces`.
    pub(crate) fn crash_and_check(mut self, keyspaces: &[&str], keys: &[&str]) {
        self.join();
        let seed = self.recorder.now();
        let image = self.env.crash_image(&CrashPolicy::random(seed), seed);
        self.db.check_invariants().expect("invariants");
        self.db.close().expect("a clean close");
        let found = read_image(&image, keyspaces);
        judge(&self.recorder, Some((&all_keys(keyspaces, keys), &found)));
    }

    /// Waits for all clients, closes the store, and checks the history together with its complete content
    /// afterwards.
    pub(crate) fn close_and_check(mut self, keyspaces: &[&str], keys: &[&str]) {
        self.join();
        let Self { env, db, recorder, .. } = self;
        db.check_invariants().expect("invariants");
        db.close().expect("a clean close");
        let last = Client::record_persist(&recorder);
        recorder.end(last, Action::Persist, true);
        let found = read_image(&env, keyspaces);
        judge(&recorder, Some((&all_keys(keyspaces, keys), &found)));
    }
}

/// Opens the store of this machine.
pub(crate) fn open(env: &Arc<MemEnv>) -> Db {
    let builder = Db::builder(DIRECTORY).memory_bytes(MEMORY_BYTES);
    builder.env(Arc::clone(env) as _).open().expect("the store opens")
}

fn all_keys(keyspaces: &[&str], keys: &[&str]) -> Vec<Key> {
    keyspaces.iter().flat_map(|keyspace| keys.iter().map(move |key| format!("{keyspace}/{key}"))).collect()
}

/// Content of a store without writers.
pub(crate) fn read_image(env: &Arc<MemEnv>, keyspaces: &[&str]) -> Image {
    let builder = Db::builder(Path::new(DIRECTORY)).memory_bytes(MEMORY_BYTES).read_only();
    let db = builder.env(Arc::clone(env) as _).open().expect("the image opens");
    let mut image = BTreeMap::new();
    for name in keyspaces {
        let Some(keyspace) = db.open_keyspace(name).expect("a look at the catalogue") else { continue };
        for entry in keyspace.iter().expect("a scan of the image") {
            let (key, value) = entry.and_then(testudo::Entry::into_pair).expect("an entry of the image");
            image.insert(name_of(&keyspace, &text(&key)), text(&value));
        }
    }
    image
}

/// Panics with the reason if a history is wrong.
pub(crate) fn judge(recorder: &Recorder, image: Option<(&[Key], &Image)>) {
    if let Err(reason) = check(&recorder.history(), image) {
        panic!("{reason}image: {:?}", image.map(|(_, image)| image));
    }
}

impl Client {
    fn record_persist(recorder: &Recorder) -> Call {
        recorder.begin(usize::MAX)
    }

    fn finish(&self, call: Call, outcome: Result<(), Error>, action: Action, is_synced: bool) -> bool {
        match outcome {
            Ok(()) => self.recorder.end(call, action, is_synced),
            Err(error) if is_open_end(&error) => {
                self.recorder.leave_open(call, action);
                return false;
            }
            Err(error) => panic!("client {}: {action:?} failed: {error}", self.number),
        }
        true
    }

    /// Writes one key; `false` if the store was closed meanwhile.
    pub(crate) fn insert(&self, keyspace: &Keyspace, key: &str, value: &str) -> bool {
        let call = self.recorder.begin(self.number);
        let outcome = keyspace.insert(key, value);
        let action = Action::Write(vec![(name_of(keyspace, key), Some(text(value.as_bytes())))]);
        self.finish(call, outcome, action, false)
    }

    pub(crate) fn remove(&self, keyspace: &Keyspace, key: &str) {
        let call = self.recorder.begin(self.number);
        let outcome = keyspace.remove(key);
        self.finish(call, outcome, Action::Write(vec![(name_of(keyspace, key), None)]), false);
    }

    pub(crate) fn get(&self, keyspace: &Keyspace, key: &str) -> Value {
        let call = self.recorder.begin(self.number);
        let value = keyspace.get(key).expect("a read").map(|value| text(&value));
        self.recorder.end(call, Action::Get(name_of(keyspace, key), value.clone()), false);
        value
    }

    /// Reads several keys with one call.
    pub(crate) fn multi_get(&self, keyspace: &Keyspace, keys: &[&str]) {
        let call = self.recorder.begin(self.number);
        let values = keyspace.multi_get(keys).expect("a read");
        // Each key is its own read, within the time of the one call.
        for (key, value) in keys.iter().zip(values) {
            let value = value.map(|value| text(&value));
            self.recorder.end_part(call, Action::Get(name_of(keyspace, key), value));
        }
    }

    /// Commits a batch; `false` if the store was closed meanwhile.
    pub(crate) fn batch(&self, writes: &[(&Keyspace, &str, Option<&str>)], durability: Durability) -> bool {
        let call = self.recorder.begin(self.number);
        let mut batch = self.db.batch();
        for (keyspace, key, value) in writes {
            match value {
                Some(value) => batch.insert(keyspace, key, value),
                None => batch.remove(keyspace, key),
            };
        }
        let outcome = batch.durability(durability).commit();
        let cells = writes.iter().map(|(keyspace, key, value)| {
            (name_of(keyspace, key), value.map(|value| text(value.as_bytes())))
        });
        self.finish(call, outcome, Action::Write(cells.collect()), durability == Durability::Sync)
    }

    /// Appends `mark` to a value.
    pub(crate) fn append(&self, keyspace: &Keyspace, key: &str, mark: &str) {
        let call = self.recorder.begin(self.number);
        let mut before = None;
        let change = |old: Option<&[u8]>| {
            before = old.map(text);
            Some(format!("{}{mark}", before.as_deref().unwrap_or_default()).into_bytes())
        };
        let after = keyspace.update(key, change).expect("an update").map(|value| text(&value));
        self.recorder.end(call, Action::Modify { key: name_of(keyspace, key), before, after }, false);
    }

    /// Reads a value and swaps it; returns whether it was unchanged.
    pub(crate) fn swap(&self, keyspace: &Keyspace, key: &str, new: Option<&str>) -> bool {
        let before = self.get(keyspace, key);
        let call = self.recorder.begin(self.number);
        let swapped =
            keyspace.compare_and_swap(key, before.as_ref().map(String::as_bytes), new.map(str::as_bytes));
        let key = name_of(keyspace, key);
        match swapped {
            Ok(()) => {
                let after = new.map(str::to_owned);
                self.recorder.end(call, Action::Modify { key, before, after }, false);
                true
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                false
            }
        }
    }

    /// Scans a keyspace for `keys`, forward or backward.
    pub(crate) fn scan(&self, keyspace: &Keyspace, keys: &[&str], backward: bool) {
        let call = self.recorder.begin(self.number);
        let entries = keyspace.iter().expect("a scan");
        let entries: Vec<_> = if backward { entries.rev().collect() } else { entries.collect() };
        let mut found: Vec<(String, String)> = Vec::new();
        for entry in entries {
            let (key, value) = entry.and_then(testudo::Entry::into_pair).expect("an entry");
            found.push((text(&key), text(&value)));
        }
        if backward {
            found.reverse();
        }
        assert!(found.is_sorted_by(|a, b| a.0 < b.0), "keys out of order: {found:?}");
        assert!(found.iter().all(|(key, _)| keys.contains(&key.as_str())), "an unknown key: {found:?}");
        let found: BTreeMap<String, String> = found.into_iter().collect();
        let cell = |key: &&str| (name_of(keyspace, key), found.get(*key).cloned());
        self.recorder.end(call, Action::Look(keys.iter().map(cell).collect()), false);
    }

    pub(crate) fn snapshot(&self) -> Held {
        let call = self.recorder.begin(self.number);
        let snapshot = self.db.snapshot().expect("a snapshot");
        Held { snapshot, call, returned: self.recorder.now(), reads: Vec::new() }
    }

    /// Reads keys of a snapshot; may be called repeatedly.
    pub(crate) fn look(&self, held: &mut Held, keyspace: &Keyspace, keys: &[&str]) {
        for key in keys {
            let value = held.snapshot.get(keyspace, key).expect("a read of a snapshot");
            held.reads.push((name_of(keyspace, key), value.map(|value| text(&value))));
        }
        self.recorder.end_at(held.call, held.returned, Action::Look(held.reads.clone()));
    }

    /// Makes everything durable.
    pub(crate) fn persist(&self) {
        let call = self.recorder.begin(self.number);
        let outcome = self.db.persist(Durability::Sync);
        self.finish(call, outcome, Action::Persist, true);
    }

    /// Flushes all write buffers, which makes all acknowledged writes durable.
    pub(crate) fn flush(&self) {
        let call = self.recorder.begin(self.number);
        let outcome = self.db.flush();
        self.finish(call, outcome, Action::Persist, true);
    }
}
