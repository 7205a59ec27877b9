//! The warm thread: reads back what was hot beside the first reads of users, then notes what is hot now and
//! then.
//!
//! **Invariants**
//! - A store that is open for reading only is read back, too, and nothing is noted.
//! - It begins with the first read of a user: a store that is opened to be written, or for one look, reads
//!   nothing for nobody.
//! - While users read it pauses as long as it works.

use std::time::Duration;

use testudo_base::Result;
use testudo_recovery::warm::{look_ups, restore::restore_some, write::note_hot_set};
use testudo_store::Store;

use testudo_store::warm_restart::restore_state::RestoreState;

/// How often it looks whether a user reads: often at first, then as often as other background threads.
const LOOK_MIN: Duration = Duration::from_millis(5);
const LOOK_MAX: Duration = Duration::from_millis(200);
/// The longest pause after a piece of work.
const PAUSE_MAX: Duration = Duration::from_millis(100);
/// How often what is hot is noted, at most.
const NOTE_INTERVAL: Duration = Duration::from_secs(180);

pub(crate) fn warm_loop(store: &Store) -> Result<()> {
    let ends = || store.health.is_closing() || store.has_failed();
    let mut interval = LOOK_MIN;
    while store.warm.state() == RestoreState::Waiting && look_ups(store) == 0 && !ends() {
        store.warm.wait(interval);
        interval = (interval * 3 / 2).min(LOOK_MAX);
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
    // A reader notes nothing.
    while store.log.wal.is_some() && !ends() {
        store.warm.wait(NOTE_INTERVAL);
        if !ends() {
            note_hot_set(store);
        }
    }
    Ok(())
}
