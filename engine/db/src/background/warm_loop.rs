//! The warm thread: reads back the hot set concurrently with the first reads of users, then saves it at
//! intervals.
//!
//! **Invariants**
//! - A read-only store also restores the hot set, but never saves it.
//! - It starts with the first read of a user: a store that is opened only for writing or inspection restores
//!   nothing.
//! - While users read, it pauses as long as it works.

use std::time::Duration;

use testudo_base::Result;
use testudo_recovery::warm::{look_ups, restore::restore_some, write::note_hot_set};
use testudo_store::Store;

use testudo_store::warm_restart::restore_state::RestoreState;

/// Interval of checks for a first read: short at first, then that of other background threads.
const LOOK_MIN: Duration = Duration::from_millis(5);
const LOOK_MAX: Duration = Duration::from_millis(200);
/// The interval grows by one part in this many at each check.
const LOOK_GROWTH_PARTS: u32 = 2;
/// Maximum pause after a step of work.
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// Interval between saves of the hot set.
const NOTE_INTERVAL: Duration = Duration::from_secs(180);

pub(crate) fn warm_loop(store: &Store) -> Result<()> {
    let ends = || store.health.is_closing() || store.has_failed();
    let mut interval = LOOK_MIN;
    while store.warm.state() == RestoreState::Waiting && look_ups(store) == 0 && !ends() {
        store.warm.wait(interval);
        interval = (interval + interval / LOOK_GROWTH_PARTS).min(LOOK_MAX);
    }
    while !ends() {
        let (began, look_ups_before) = (store.env.monotonic(), look_ups(store));
        if !restore_some(store) {
            break;
        }
        if look_ups(store) > look_ups_before {
            store.warm.wait(store.env.monotonic().saturating_sub(began).min(PAUSE_MAX));
        }
    }
    // A read-only store saves nothing.
    while store.log.wal.is_some() && !ends() {
        store.warm.wait(NOTE_INTERVAL);
        if !ends() {
            note_hot_set(store);
        }
    }
    Ok(())
}
