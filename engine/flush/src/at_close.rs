//! Background work that closing a store completes.

use testudo_base::Result;
use testudo_store::Store;

use crate::{
    govern::keyspace_settings::keep_value_costs,
    seal::begin_value_log::give_up_unused_value_logs,
    space::{give_back::give_back_beyond, hold_space::fit_to_device},
};

/// … and if nothing is written for now.
const FREE_PART_CLOSED: u64 = 64;

/// The same, down to less, for a store that is about to be closed.
pub fn give_back_at_close(store: &Store) -> Result<()> {
    give_up_unused_value_logs(store, true)?;
    give_back_beyond(store, FREE_PART_CLOSED)?;
    keep_value_costs(store)
}

/// The same for a store that is about to be closed, if anything was written: others may have filled the
/// device when it is opened again.
pub fn fit_at_close(store: &Store) -> Result<()> {
    if store.has_failed() || !store.beginning.has_begun() { Ok(()) } else { fit_to_device(store) }
}
