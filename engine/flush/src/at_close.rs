//! Background work that closing a store completes.

use testudo_base::Result;
use testudo_store::Store;

use crate::{
    govern::keyspace_settings::keep_value_costs,
    seal::begin_value_log::{UnusedIn, give_up_unused_value_logs},
    space::{give_back::give_back_beyond, hold_space::fit_to_device},
};

/// … and this fraction if the store is closing.
const FREE_PART_CLOSED: u64 = 64;

/// As `give_back_space` with a lower threshold, for a store that is closing.
pub fn give_back_at_close(store: &Store) -> Result<()> {
    give_up_unused_value_logs(store, UnusedIn::AllKeyspaces)?;
    give_back_beyond(store, FREE_PART_CLOSED)?;
    keep_value_costs(store)
}

/// As [`fit_to_device`], for a store that is closing, if anything was written: other programs may have filled
/// the device by the next open.
pub fn fit_at_close(store: &Store) -> Result<()> {
    if store.has_failed() || !store.beginning.has_begun() { Ok(()) } else { fit_to_device(store) }
}
