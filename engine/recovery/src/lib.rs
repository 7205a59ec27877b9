//! Opens a store: directory, lock, manifest, log replay, warm restart.
//!
//! **Invariants**
//! - A read-only open changes no file.
//! - No write is acknowledged before recovery has finished.

#![expect(missing_docs, reason = "fields of internal state, documented by their names")]

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
