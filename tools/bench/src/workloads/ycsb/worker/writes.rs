//! Updates, removals and inserts of a client thread.
//!
//! **Invariants**
//! - A record is written by one thread at a time: under its turn, or because it is in the thread's share.

use std::sync::atomic::Ordering;

use testudo::{Error, Result};
use testudo_base::num::{u64_of, usize_of};

use super::{Worker, below};
use crate::{
    report::tally::Class,
    subject::Records,
    workloads::ycsb::{oracle::RECORDS_MAX, values},
};

/// One in this many records has its removal checked by reads of itself and of its neighbor.
const REMOVALS_CHECKED: u64 = 128;

impl<R: Records> Worker<'_, R> {
    /// Removes the records of this thread's share except one in `kept`. Some removals are checked: the record
    /// must be absent and the last one before it that is kept present.
    pub(super) fn remove_all_but(&mut self, kept: u64) -> Result<()> {
        let records = self.share_of(self.target.oracle.acknowledged());
        let most = self.share_of(self.shared.ops);
        for record in records.filter(|record| record % kept != 0).take(usize_of(most.end - most.start)) {
            if self.remove(record)? {
                self.get(record - record % kept)?;
            }
            if !self.lap(Class::Write, 1) {
                break;
            }
        }
        Ok(())
    }

    /// Updates records until the workload threads are done.
    pub(super) fn write_along(&mut self) -> Result<()> {
        loop {
            let record = below(&mut self.random, self.target.oracle.acknowledged());
            self.update(record)?;
            if !self.lap(Class::Write, 1) || self.shared.busy.load(Ordering::Relaxed) == 0 {
                return Ok(());
            }
        }
    }

    /// Updates a record with its stretch of neighbors, if the workload or `--adjacent` has stretches. All but
    /// the last update are measured here. Returns whether to continue.
    pub(super) fn update_picked(&mut self) -> Result<bool> {
        if let Some(order) = self.shared.key_order {
            let stretch = order.pick_stretch(&mut self.random);
            return self.update_all(stretch.iter().map(|record| u64::from(*record)));
        }
        let record = self.pick();
        let count = self.target.keys.adjacent_records();
        let first = record - record % count;
        self.update_all(first..(first + count).min(self.target.oracle.acknowledged()))
    }

    fn update_all(&mut self, records: impl Iterator<Item = u64>) -> Result<bool> {
        let mut records = records.peekable();
        while let Some(record) = records.next() {
            self.update(record)?;
            if records.peek().is_some() && !self.lap(Class::Write, 1) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn update(&mut self, record: u64) -> Result<()> {
        let turn = self.target.oracle.turn(record);
        self.put(record, turn.next())?;
        self.target.removed.take_back(record);
        turn.acknowledge();
        Ok(())
    }

    /// Removes a record and reads it back for some records. REQUIRES: no concurrent writes of the record.
    /// Returns whether it was read back.
    pub(super) fn remove(&mut self, record: u64) -> Result<bool> {
        self.remove_key(record)?;
        self.target.removed.add(record);
        let is_checked = record % REMOVALS_CHECKED == 1;
        if is_checked {
            self.get(record)?;
        }
        Ok(is_checked)
    }

    /// Removes the key of a record.
    pub(super) fn remove_key(&mut self, record: u64) -> Result<()> {
        self.target.keys.write(record, &mut self.key);
        self.target.keyspace(record).remove(&self.key)?;
        self.tally.writes += 1;
        self.tally.written_bytes += u64_of(self.key.len());
        Ok(())
    }

    /// Reads and writes a record under its turn, so the version read must be the last one.
    pub(super) fn read_modify_write(&mut self) -> Result<()> {
        let record = self.pick();
        let turn = self.target.oracle.turn(record);
        self.target.keys.write(record, &mut self.key);
        let lengths = self.target.lengths;
        let (found, bytes) = self.target.keyspace(record).get(&self.key, |found| {
            (found.map(|value| values::read(value, lengths)), found.map(|value| value.len()))
        })?;
        self.count_read(bytes);
        self.complain(match found {
            Some(Ok(seen)) if seen == (record, turn.current()) => Ok(()),
            Some(Ok((number, version))) => {
                Err(format!("record {record} is record {number}, version {version}"))
            }
            Some(Err(reason)) => Err(format!("record {record}: {reason}")),
            None => Err(format!("record {record} is missing")),
        });
        self.put(record, turn.next())?;
        turn.acknowledge();
        Ok(())
    }

    pub(super) fn insert(&mut self) -> Result<()> {
        let record = self.target.oracle.reserve_insert();
        if record >= self.target.keys.capacity().min(RECORDS_MAX) {
            return Err(Error::invalid(format!("--key-bytes: no key left for record {record}")));
        }
        self.put(record, 0)?;
        self.target.oracle.acknowledge_insert(record);
        Ok(())
    }
}
