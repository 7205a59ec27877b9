//! Record numbers in key order, in parts that fit into little memory.
//!
//! Keys are scrambled numbers, so their order is found by sorting: the key space is cut into parts, and each
//! part scans all numbers. That takes as long as some of the inserts. So if inserts are compared, it is done
//! beforehand, and the order is kept in a file.
//!
//! **Invariants**
//! - Every record occurs once; no part holds much more than [`PART_RECORDS`].

use std::{
    fs::File,
    io::{BufReader, BufWriter, Read, Seek, Write},
    path::Path,
    thread,
};

use testudo::{Error, Result};
use testudo_base::num::{low64, u64_of, usize_of};

use super::keys::KeyMaker;

/// Mean number of records per part (4 MiB while it is sorted).
const PART_RECORDS: u64 = 1 << 18;
/// Buffer size for reading the file with the record order.
const FILE_BUFFER_BYTES: usize = 64 << 10;
const HASH_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Subset of a load's records that is inserted in key order: a percentage, spread over all keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SequentialShare(u64);

impl SequentialShare {
    /// All of them.
    pub(crate) const ALL: Self = Self(100);

    /// Returns the subset of `percent`; `None` for zero.
    pub(crate) fn new(percent: u8) -> Option<Self> {
        (percent > 0).then(|| Self(u64::from(percent).min(100)))
    }

    /// Returns the percentage.
    pub(crate) fn percent(self) -> u64 {
        self.0
    }

    /// Whether `record` belongs to the subset.
    pub(crate) fn has(self, record: u64) -> bool {
        let hash = u128::from(record.wrapping_mul(HASH_FACTOR));
        low64((hash * 100) >> 64) < self.0
    }
}

/// Iterator over parts, each a list of record numbers.
#[derive(Debug)]
pub(crate) struct PartsInOrder {
    keys: KeyMaker,
    records: u64,
    share: SequentialShare,
    next: u64,
    end: u64,
    /// Number of parts of the whole key space.
    parts: u64,
}

impl PartsInOrder {
    /// Creates an iterator over the records below `records`.
    pub(crate) fn new(keys: KeyMaker, records: u64) -> Self {
        Self::of_thread(keys, records, SequentialShare::ALL, (0, 1))
    }

    /// Creates an iterator over the records of `share` below `records` in one thread's part of the key space;
    /// the pair is the thread's index and the number of threads.
    pub(crate) fn of_thread(
        keys: KeyMaker,
        records: u64,
        share: SequentialShare,
        (index, threads): (usize, usize),
    ) -> Self {
        let expected = records / 100 * share.percent();
        let parts_each = (expected / u64_of(threads)).div_ceil(PART_RECORDS).max(1);
        let next = parts_each * u64_of(index);
        Self { keys, records, share, next, end: next + parts_each, parts: parts_each * u64_of(threads) }
    }
}

impl Iterator for PartsInOrder {
    type Item = Vec<u64>;

    fn next(&mut self) -> Option<Vec<u64>> {
        if self.next == self.end {
            return None;
        }
        let boundary = |part: u64| self.keys.positions() * u128::from(part) / u128::from(self.parts);
        let range = boundary(self.next)..boundary(self.next + 1);
        self.next += 1;
        let mut found = Vec::with_capacity(usize_of(PART_RECORDS + PART_RECORDS / 64));
        for record in (0..self.records).filter(|record| self.share.has(*record)) {
            let position = self.keys.position(record);
            if range.contains(&u128::from(position)) {
                found.push((position, record));
            }
        }
        found.sort_unstable();
        Some(found.into_iter().map(|(_, record)| record).collect())
    }
}

/// The precomputed order of the records that are inserted in key order.
#[derive(Debug)]
pub(crate) struct Preparation {
    /// The subset of these records.
    pub(crate) share: SequentialShare,
    /// Their numbers, by thread, in unnamed temporary files.
    numbers: Vec<File>,
}

impl Preparation {
    /// Computes the order of `share` of `records` for `threads` threads; stores it on the device of `dir`.
    pub(crate) fn new(
        keys: KeyMaker,
        records: u64,
        share: SequentialShare,
        threads: usize,
        dir: &Path,
    ) -> Result<Self> {
        let write =
            |index| write_numbers(PartsInOrder::of_thread(keys, records, share, (index, threads)), dir);
        let files: Vec<Result<File>> = thread::scope(|scope| {
            let writers: Vec<_> = (0..threads).map(|index| scope.spawn(move || write(index))).collect();
            let panicked = |_| Err(Error::invalid("the order of the records: a thread panicked"));
            writers.into_iter().map(|writer| writer.join().unwrap_or_else(panicked)).collect()
        });
        Ok(Self { share, numbers: files.into_iter().collect::<Result<_>>()? })
    }

    /// Returns the numbers of thread `index`. REQUIRES: no concurrent readers of the same numbers.
    pub(crate) fn numbers(&self, index: usize) -> Result<impl Iterator<Item = Result<u64>> + use<>> {
        let file = self.numbers[index].try_clone().map_err(io_error)?;
        let mut file = BufReader::with_capacity(FILE_BUFFER_BYTES, file);
        let mut left = file.get_ref().metadata().map_err(io_error)?.len() / u64_of(size_of::<u64>());
        file.rewind().map_err(io_error)?;
        Ok(std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            let mut number = [0; size_of::<u64>()];
            Some(file.read_exact(&mut number).map(|()| u64::from_le_bytes(number)).map_err(io_error))
        }))
    }
}

fn write_numbers(parts: PartsInOrder, dir: &Path) -> Result<File> {
    let mut file = BufWriter::new(tempfile::tempfile_in(dir).map_err(io_error)?);
    for number in parts.flatten() {
        file.write_all(&number.to_le_bytes()).map_err(io_error)?;
    }
    let file = file.into_inner().map_err(|error| io_error(error.into_error()))?;
    // Otherwise the file would be written back while inserts are measured.
    file.sync_data().map_err(io_error)?;
    Ok(file)
}

fn io_error(error: std::io::Error) -> Error {
    Error::io("the order of the records", error)
}

#[cfg(test)]
mod tests;
