//! Opening a store: directory, lock, manifest, replay of the log, warm restart.
//!
//! **Invariants**
//! - An opening for reading only changes no file.
//! - Nothing is acknowledged before recovery has ended.

#![expect(missing_docs, reason = "internal state, whose fields are named for their content")]

pub mod assemble;
pub mod create;
pub mod durability_listener;
pub mod found_values;
pub mod load_keyspaces;
pub mod new_store;
pub mod open;
pub mod recover;
pub mod replay;
pub mod structure;
pub mod warm;
