//! Record numbers in the order of their keys, in parts that fit into little memory.
//!
//! Keys are scrambled numbers, so their order is found by sorting: the key space is cut into parts, and for
//! each of them all numbers are looked through. That takes as long as some of the inserts, so where inserts
//! are compared it is done before, and the order kept in a file.
//!
//! **Invariants**
//! - Every record comes once; no part holds much more than [`PART_RECORDS`].

use std::{
    fs::File,
    io::{BufReader, BufWriter, Read, Seek, Write},
    path::Path,
    thread,
};

use testudo::{Error, Result};
use testudo_base::num::{low64, u64_of, usize_of};

use super::keys::KeyMaker;

/// Records of a part, on average (4 MiB while it is sorted).
const PART_RECORDS: u64 = 1 << 18;
/// What is read at once of the order of the records.
const FILE_BUFFER_BYTES: usize = 64 << 10;
const HASH_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Which records of a load come in the order of their keys: so many of a hundred, spread over all keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SequentialShare(u64);

impl SequentialShare {
    /// All of them.
    pub(crate) const ALL: Self = Self(100);

    /// `percent` of a hundred; nothing if that is none.
    pub(crate) fn new(percent: u8) -> Option<Self> {
        (percent > 0).then(|| Self(u64::from(percent).min(100)))
    }

    /// Of a hundred.
    pub(crate) fn percent(self) -> u64 {
        self.0
    }

    /// Whether `record` is one of them.
    pub(crate) fn has(self, record: u64) -> bool {
        let hash = u128::from(record.wrapping_mul(HASH_FACTOR));
        low64((hash * 100) >> 64) < self.0
    }
}

/// An iterator of parts, each a list of record numbers.
#[derive(Debug)]
pub(crate) struct PartsInOrder {
    keys: KeyMaker,
    records: u64,
    share: SequentialShare,
    next: u64,
    end: u64,
    /// Of the whole key space.
    parts: u64,
}

impl PartsInOrder {
    /// The records below `records`.
    pub(crate) fn new(keys: KeyMaker, records: u64) -> Self {
        Self::of_thread(keys, records, SequentialShare::ALL, (0, 1))
    }

    /// Those of `share` below `records` in one of so many equal parts of the key space: the thread's index,
    /// and the number of threads.
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

/// The order of the records that come in order, found beforehand.
#[derive(Debug)]
pub(crate) struct Preparation {
    /// Which records those are.
    pub(crate) share: SequentialShare,
    /// Their numbers, for each thread; a file that nobody else sees.
    numbers: Vec<File>,
}

impl Preparation {
    /// Finds the order of `share` of `records` for so many threads; keeps it in the device of `dir`.
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

    /// The numbers of thread `index`. REQUIRES: nobody else reads them at the same time.
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
    // Else it would be written while inserts are measured.
    file.sync_data().map_err(io_error)?;
    Ok(file)
}

fn io_error(error: std::io::Error) -> Error {
    Error::io("the order of the records", error)
}

#[cfg(test)]
mod tests;
