//! Removes files that nothing refers to: manifests before the current one, segments before the start of the
//! log, copies that were not finished, the mark of a creation that was.
//!
//! **Invariants**
//! - Only names that a store makes are looked at; other people's files stay.

use std::path::Path;

use testudo_base::{Error, Result};
use testudo_env::Env;
use testudo_storage::{list_manifests, manifest_file_name};
use testudo_store::directory::CREATING_FILE;
use testudo_wal::{list_segments, segment_file_name};

use super::Site;

impl Site<'_> {
    /// Removes what is left over. REQUIRES: the current manifest is valid.
    pub(super) fn remove_leftovers(&mut self) -> Result<()> {
        if !self.report.findings.iter().all(|finding| finding.remedy != super::Remedy::NeedsSalvage) {
            // Until the store was salvaged, every byte may be worth something.
            return Ok(());
        }
        let (env, directory) = (&*self.options.env, self.options.directory.as_path());
        let current = self.manifest_name();
        let log_segment = self.evidence.manifest.as_ref().map_or(0, |manifest| manifest.state.log_segment);
        let mut leftovers = Vec::new();
        for name in list_manifests(env, directory)?.into_iter().map(manifest_file_name) {
            if name != current {
                leftovers.push((name, "a manifest that is not the current one"));
            }
        }
        for number in list_segments(env, directory)?.into_iter().filter(|&number| number < log_segment) {
            leftovers.push((segment_file_name(number), "a segment that the log does not need any more"));
        }
        for name in testudo_store::directory::list(env, directory)?.unwrap_or_default() {
            if name == CREATING_FILE {
                leftovers.push((name, "the mark of a creation that has ended"));
            } else if name == "superblock.new" || (name.starts_with("wal-") && name.ends_with(".copy")) {
                leftovers.push((name, "a copy that was not finished"));
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
