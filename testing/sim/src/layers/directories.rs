//! Directories are moved, replaced, linked and removed while a store in them is open, and so are lock files,
//! on a real file system. Needs no root.
//!
//! **Invariants**
//! - Whatever happens to the path of its directory, a store keeps using its own files: both stores keep all
//!   synced writes and are valid.
//! - An owner that loses its lock or directory stops with an error that reports it, and writes nothing more.
//! - Foreign files stay unchanged.

mod copies;
mod locks;
mod moves;
mod place;

use testudo_testkit::configuration::crash_configurations;

use crate::{
    Limits,
    sweep::{Outcome, chosen_by_size, counted, judge, require, sweep},
};
use place::Place;

pub(crate) const NAME: &str = "directories";

/// Change of a directory, by name.
type Case = (&'static str, fn(&Place));

const CASES: [Case; 12] = [
    ("moved and another store at the old path", moves::another_store_at_the_old_path),
    ("moved back and forth between openings", moves::back_and_forth),
    ("a link to the store that leads elsewhere later", moves::link_that_leads_elsewhere),
    ("removed", moves::removed_directory),
    ("temporary with files of others", moves::temporary_among_files_of_others),
    ("lock removed and a second owner", locks::second_owner_after_removal),
    ("lock replaced", locks::replaced_lock),
    ("lock replaced during a flush", locks::replaced_before_a_flush),
    ("refused with the owner's process", locks::refusal_names_the_owner),
    ("target of a checkpoint moved", copies::moved_checkpoint),
    ("repository of backups moved", copies::moved_repository),
    ("target of a salvage moved", copies::moved_salvage),
];

/// Runs the layer.
pub fn run(limits: &Limits) -> Outcome {
    let configurations = chosen_by_size(NAME, limits, crash_configurations())?;
    let some = limits.some_of(&configurations, 3);
    let items = some.flat_map(|configuration| CASES.map(|case| (configuration, case)));
    let report = sweep(limits, items, None, |(configuration, (case, act))| {
        let outcome = judge(NAME, Some(&configuration.name), None, || {
            act(&Place::new(configuration.opener.clone())?);
            Ok(counted(case, 1))
        });
        limits.tick(1);
        outcome.map_err(|mut failure| {
            failure.message = format!("{case}: {}", failure.message);
            failure
        })
    })?;
    require(NAME, limits, &report, &CASES.map(|(case, _)| (case, 1)))?;
    Ok(report)
}
