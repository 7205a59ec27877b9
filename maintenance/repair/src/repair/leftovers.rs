//! Removes unreferenced files: obsolete manifests, segments before the start of the log, unfinished copies,
//! and the mark of a finished creation.
//!
//! **Invariants**
//! - Only names that a store creates are considered; foreign files stay.

use std::path::Path;

use testudo_base::{Error, Result};
use testudo_env::Env;
use testudo_storage::{list_manifests, manifest_file_name};
use testudo_store::directory::CREATING_FILE;
use testudo_wal::{list_segments, segment_file_name};

use super::Site;

impl Site<'_> {
    /// Removes leftover files. REQUIRES: the current manifest is valid.
    pub(super) fn remove_leftovers(&mut self) -> Result<()> {
        if !self.report.findings.iter().all(|finding| finding.remedy != super::Remedy::NeedsSalvage) {
            // Until the store is salvaged, every byte may be needed.
            return Ok(());
        }
        let (env, directory) = (&*self.options.env, self.options.directory.as_path());
        let current = self.manifest_name();
        let log_segment = self.evidence.manifest.as_ref().map_or(0, |manifest| manifest.state.log_segment);
        let mut leftovers = Vec::new();
        for name in list_manifests(env, directory)?.into_iter().map(manifest_file_name) {
            if name != current {
                leftovers.push((name, "a manifest that is not current"));
            }
        }
        for number in list_segments(env, directory)?.into_iter().filter(|&number| number < log_segment) {
            leftovers.push((segment_file_name(number), "a segment that the log no longer needs"));
        }
        for name in testudo_store::directory::list(env, directory)?.unwrap_or_default() {
            if name == CREATING_FILE {
                leftovers.push((name, "the mark of a finished creation"));
            } else if name == "superblock.new" || (name.starts_with("wal-") && name.ends_with(".copy")) {
                leftovers.push((name, "an unfinished copy"));
            }
        }
        for (name, what) in leftovers {
            self.put_right(&name, what, "removed", |env, directory| remove(env, directory, &name))?;
        }
        Ok(())
    }
}

fn remove(env: &dyn Env, directory: &Path, name: &str) -> Result<()> {
    env.remove_file(&directory.join(name))
        .and_then(|()| env.sync_dir(directory))
        .map_err(|e| Error::io(name, e))
}
