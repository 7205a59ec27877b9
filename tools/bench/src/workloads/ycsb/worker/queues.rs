//! The queue of a client thread: entries are inserted at its end, read at its front and removed from there.
//!
//! **Invariants**
//! - Each thread has its own range of record numbers, whose keys ascend, so queues are disjoint.
//! - The entry at the front must be the oldest one that was not removed.

use std::ops::Range;

use testudo::{Error, Result};
use testudo_base::num::{low64, u64_of};

use super::Worker;
use crate::{
    report::tally::Class,
    subject::Records,
    workloads::ycsb::{keys::KeyMaker, target::Target, values},
};

/// Entries of each queue between two rounds.
const QUEUE_ENTRIES: u64 = 1_000;

/// Returns the record numbers for the queue of thread `index` of `threads`.
fn numbers_of(keys: &KeyMaker, index: usize, threads: usize) -> Range<u64> {
    let part =
        |index| low64(u128::from(keys.capacity()) * u128::from(u64_of(index)) / u128::from(u64_of(threads)));
    part(index)..part(index + 1)
}

/// Inserts the first entries of all queues. REQUIRES: the keyspace of `target` is empty, its keys ascend.
pub(crate) fn fill_queues<R: Records>(target: &Target<R>, threads: usize) -> Result<()> {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    for index in 0..threads {
        let numbers = numbers_of(&target.keys, index, threads);
        if numbers.end - numbers.start <= QUEUE_ENTRIES {
            return Err(Error::invalid("--key-bytes: too few keys for queues"));
        }
        for record in numbers.start..numbers.start + QUEUE_ENTRIES {
            target.keys.write(record, &mut key);
            value.resize(target.lengths.of(record), 0);
            values::write(record, 0, &mut value);
            target.keyspace(record).insert(&key, &value)?;
        }
    }
    // Each round leaves as many entries as before.
    target.oracle.assume_records(QUEUE_ENTRIES * u64_of(threads));
    Ok(())
}

impl<R: Records> Worker<'_, R> {
    /// Moves this thread's queue on by an entry per round.
    pub(super) fn move_queue(&mut self) -> Result<()> {
        let numbers = numbers_of(&self.target.keys, self.index, self.shared.threads);
        let share = self.share_of(self.shared.ops);
        let mut first_key = Vec::new();
        self.target.keys.write(numbers.start, &mut first_key);
        for front in numbers.start..numbers.end - QUEUE_ENTRIES {
            self.put(front + QUEUE_ENTRIES, 0)?;
            if !self.lap(Class::Write, 1) {
                return Ok(());
            }
            self.read_front(front, &first_key)?;
            if !self.lap(Class::Scan, 1) {
                return Ok(());
            }
            self.remove_key(front)?;
            if !self.lap(Class::Write, 1) || self.tally.operations >= share.end - share.start {
                return Ok(());
            }
        }
        Err(Error::invalid("--key-bytes: no key left for a queue"))
    }

    /// Reads the first entry from `first_key` on, which must be that of `front`.
    fn read_front(&mut self, front: u64, first_key: &[u8]) -> Result<()> {
        self.target.keys.write(front, &mut self.key);
        let (target, expected_key) = (self.target, &self.key);
        let mut found = Err("is missing".to_owned());
        let mut bytes = 0;
        target.keyspace(front).scan(first_key, None, Some(1), |key, value| {
            bytes = key.len() + value.len();
            found = match values::read(value, target.lengths) {
                Ok(entry) if entry == (front, 0) && key == expected_key => Ok(()),
                Ok((record, _)) => Err(format!("is that of record {record}")),
                Err(reason) => Err(format!("is damaged: {reason}")),
            };
            false
        })?;
        self.tally.reads += 1;
        self.tally.read_bytes += u64_of(bytes);
        self.complain(found.map_err(|reason| format!("the front of a queue, record {front}, {reason}")));
        Ok(())
    }
}
