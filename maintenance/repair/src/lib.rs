//! Repairs a damaged store in place, and salvages its records into a new one.
//!
//! **Invariants**
//! - Salvage never writes to the damaged store.
//! - Repair changes a file only to a state that an open accepts, and reports each change.

mod repair;
mod salvage;

pub use repair::{Remedy, RepairFinding, RepairOptions, RepairReport, repair};
pub use salvage::{
    KeyspaceSalvage, LogSalvage, LostCommits, LostRange, NameSource, SalvageMethod, SalvageOptions,
    SalvageReport, salvage,
};
