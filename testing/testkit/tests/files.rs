//! Operations on the files of a store: copying, checking, damaging, repairing, reading with another build.

#[path = "files/backup.rs"]
mod backup;
#[path = "files/checkpoint.rs"]
mod checkpoint;
#[path = "files/cross_checks.rs"]
mod cross_checks;
#[path = "files/old_stores.rs"]
mod old_stores;
#[path = "files/repair.rs"]
mod repair;
#[path = "files/salvage.rs"]
mod salvage;
#[path = "files/scrub.rs"]
mod scrub;
