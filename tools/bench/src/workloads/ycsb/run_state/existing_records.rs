//! Records that a store holds before the first workload of a run.
//!
//! **Invariants**
//! - Every record that the store holds is known to the oracle, at its version.

use testudo::{Error, Result};

use super::RunState;
use crate::{
    Workload,
    subject::{Records, Subject},
    workloads::ycsb::versions_file,
};

impl<S: Subject> RunState<'_, S> {
    /// Learns which records the store holds, unless they are to be loaded.
    pub(super) fn find_records(&mut self) -> Result<()> {
        let named = |workload: &Workload| self.args.workloads.contains(workload);
        let mut holds_records = false;
        for keyspace in &self.main.keyspaces {
            keyspace.scan(b"", None, Some(1), |_, _| {
                holds_records = true;
                false
            })?;
        }
        if named(&Workload::Load) {
            if holds_records {
                let message = "--dir already holds records: omit load, or name an empty directory";
                return Err(Error::invalid(message));
            }
            return Ok(());
        }
        if self.read_versions()? || self.args.workloads.iter().all(|workload| workload.has_own_keyspace()) {
            return Ok(());
        }
        if !holds_records {
            let message = "--workloads: the store is empty; begin with load, or name a loaded --dir";
            return Err(Error::invalid(message));
        }
        self.take_over_records()
    }

    /// Reads all records to learn their versions.
    fn take_over_records(&mut self) -> Result<()> {
        let damaged = |reason: &str| {
            Error::invalid(format!("--dir does not hold a complete data set of these flags: {reason}"))
        };
        let (mut count, mut end) = (0, 0);
        let mut key = Vec::new();
        let mut failure = None;
        for (index, keyspace) in self.main.keyspaces.iter().enumerate() {
            keyspace.scan(b"", None, None, |found, value| {
                match self.main.judge_entry(index, (found, value), false, &mut key) {
                    Ok((record, version)) => {
                        self.main.oracle.assume_version(record, version);
                        count += 1;
                        end = end.max(record + 1);
                        if self.context.stopped() {
                            failure = Some(Error::invalid("stopped while the records were read"));
                        }
                    }
                    Err(reason) => failure = Some(damaged(&reason)),
                }
                failure.is_none()
            })?;
            if let Some(failure) = failure {
                return Err(failure);
            }
        }
        if count != end {
            return Err(damaged(&format!("{count} records found, the last is number {}", end - 1)));
        }
        self.main.oracle.assume_records(count);
        self.records = count;
        Ok(())
    }

    /// Loads the expected state of the records from another process, if it left one.
    fn read_versions(&mut self) -> Result<bool> {
        let Some(dir) = &self.args.step_dir else { return Ok(false) };
        let file = dir.join(versions_file::NAME);
        let is_there = file.exists();
        if is_there {
            self.records = versions_file::read(&file, &self.main.oracle)?;
        }
        Ok(is_there)
    }
}
