//! What clients asked of a store, what they were told, and when.
//!
//! **Invariants**
//! - Moments are numbers of one counter: all invocations and answers of a history are in one order.
//! - An event without an answer may have happened at any moment after its invocation, or never.

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

/// What was done, as far as the checker has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Writes that happen at once, whatever was there.
    Write(Vec<(Key, Value)>),
    /// One key was read and replaced in one step.
    Modify {
        /// The key.
        key: Key,
        /// What it was.
        before: Value,
        /// What it became.
        after: Value,
    },
    /// One key was read, with no claim about any other.
    Get(Key, Value),
    /// Keys that were read as of one moment of the commit order.
    Look(Vec<(Key, Value)>),
    /// Everything that was acknowledged before became durable.
    Persist,
}

/// One call of one client.
#[derive(Clone, Debug)]
pub struct Event {
    /// Who called.
    pub client: usize,
    /// When.
    pub invoked: u64,
    /// When the answer was there; `None` if it was no answer, but an error that leaves open what happened.
    pub returned: Option<u64>,
    /// What happened.
    pub action: Action,
    /// Whether the answer said that the effect is durable.
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

/// Writes a history while clients run.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    clock: Arc<AtomicU64>,
    /// By invocation and, for a call that is told as several events, their number.
    events: Arc<Mutex<BTreeMap<(u64, usize), Event>>>,
}

/// A call under way.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    client: usize,
    invoked: u64,
}

impl Recorder {
    /// The present moment, which is over at once.
    pub fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// A call begins.
    pub fn begin(&self, client: usize) -> Call {
        Call { client, invoked: self.now() }
    }

    /// A call has been answered.
    pub fn end(&self, call: Call, action: Action, is_synced: bool) {
        let event = self.event(call, Some(self.now()), action);
        self.put(0, Event { is_synced, ..event });
    }

    /// A look goes on, at a snapshot that was handed out at `returned`; it takes the place of what was known
    /// of it.
    pub fn end_at(&self, call: Call, returned: u64, action: Action) {
        self.put(0, self.event(call, Some(returned), action));
    }

    /// A call has been answered that is told as several events.
    pub fn end_part(&self, call: Call, action: Action) {
        let now = self.now();
        self.put(usize::try_from(now).unwrap_or(0), self.event(call, Some(now), action));
    }

    /// A call has failed in a way that leaves open whether it happened.
    pub fn leave_open(&self, call: Call, action: Action) {
        self.put(0, self.event(call, None, action));
    }

    /// What was recorded so far.
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
