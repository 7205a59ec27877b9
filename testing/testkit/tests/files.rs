//! What is done with the files of a store: copied, checked, damaged, repaired, read by another build.

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
