//! Calls of clients on a store, with their answers and times.
//!
//! **Invariants**
//! - Moments are values of one counter: all invocations and answers of a history are in one order.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// A key, with its keyspace in front.
pub type Key = String;
/// A value; `None` where there is none.
pub type Value = Option<String>;

/// Effect or answer of a call, as the checker needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Unconditional, atomic writes.
    Write(Vec<(Key, Value)>),
    /// A key was read and replaced atomically.
    Modify {
        /// The key.
        key: Key,
        /// The value before.
        before: Value,
        /// The value after the operation.
        after: Value,
    },
    /// One key was read, with no guarantee about any other.
    Get(Key, Value),
    /// Keys read as of one moment of the commit order.
    Look(Vec<(Key, Value)>),
    /// Everything acknowledged before became durable.
    Persist,
}

/// One call of one client.
#[derive(Clone, Debug)]
pub struct Event {
    /// The calling client.
    pub client: usize,
    /// Time of the call.
    pub invoked: u64,
    /// Time of the answer; `None` for an error after which the outcome is unknown.
    pub returned: Option<u64>,
    /// The action.
    pub action: Action,
    /// Whether the answer promised durability of the effect.
    pub is_synced: bool,
}

/// All calls on one store.
#[derive(Clone, Debug, Default)]
pub struct History(pub Vec<Event>);

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut events: Vec<&Event> = self.0.iter().collect();
        events.sort_by_key(|event| event.invoked);
        for Event { client, invoked, returned, action, is_synced } in events {
            let returned = returned.map_or("?".to_owned(), |moment| moment.to_string());
            let synced = if *is_synced { ", synced" } else { "" };
            writeln!(f, "  client {client} [{invoked} … {returned}] {action:?}{synced}")?;
        }
        Ok(())
    }
}

/// Records a history while clients run.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    clock: Arc<AtomicU64>,
    /// Events by invocation and, for a call recorded as several events, their number.
    events: Arc<Mutex<BTreeMap<(u64, usize), Event>>>,
}

/// A call in progress.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    client: usize,
    invoked: u64,
}

impl Recorder {
    /// Returns the current moment and advances the clock.
    pub fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Records the start of a call.
    pub fn begin(&self, client: usize) -> Call {
        Call { client, invoked: self.now() }
    }

    /// Records the answer of a call.
    pub fn end(&self, call: Call, action: Action, is_synced: bool) {
        let event = self.event(call, Some(self.now()), action);
        self.put(0, Event { is_synced, ..event });
    }

    /// Records a continued look at a snapshot that was returned at `returned`; replaces the previous record
    /// of it.
    pub fn end_at(&self, call: Call, returned: u64, action: Action) {
        self.put(0, self.event(call, Some(returned), action));
    }

    /// Records one event of a call with several events.
    pub fn end_part(&self, call: Call, action: Action) {
        let now = self.now();
        self.put(usize::try_from(now).unwrap_or(0), self.event(call, Some(now), action));
    }

    /// Records a failed call whose outcome is unknown.
    pub fn leave_open(&self, call: Call, action: Action) {
        self.put(0, self.event(call, None, action));
    }

    /// Returns the history so far.
    pub fn history(&self) -> History {
        History(self.events.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect())
    }

    fn event(&self, Call { client, invoked }: Call, returned: Option<u64>, action: Action) -> Event {
        Event { client, invoked, returned, action, is_synced: false }
    }

    fn put(&self, part: usize, event: Event) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).insert((event.invoked, part), event);
    }
}
