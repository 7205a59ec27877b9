//! Counters and statistics that are updated without being read: merge operators.
//!
//! `merge` writes an operand. The store merges operands into values when a key is read, and in the
//! background. Several threads update the same keys without a lock of their own and without a read per
//! update.
//!
//! Run with `cargo run -p testudo --example counter`.

use std::{error::Error, path::Path, sync::Arc, thread};

use testudo::{Db, KeyspaceOptions, MergeOperator};

/// Count, sum and maximum of measurements, as three little-endian 8-byte numbers.
///
/// Values and operands have the same form, so a list of operands can be combined before the value below them
/// is known.
#[derive(Debug)]
struct Summary;

/// The bytes of one measurement, or of the sum of many.
fn encode(count: u64, sum: u64, max: u64) -> [u8; 24] {
    let mut bytes = [0; 24];
    for (at, number) in [count, sum, max].into_iter().enumerate() {
        bytes[at * 8..][..8].copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

fn decode(bytes: &[u8]) -> testudo::Result<(u64, u64, u64)> {
    let refused = || {
        let message = format!("a summary has 24 bytes, not {}", bytes.len());
        testudo::Error::new(testudo::ErrorKind::Invalid, message)
    };
    let (numbers, []) = bytes.as_chunks::<8>() else { return Err(refused()) };
    let &[count, sum, max] = numbers else { return Err(refused()) };
    Ok((u64::from_le_bytes(count), u64::from_le_bytes(sum), u64::from_le_bytes(max)))
}

impl MergeOperator for Summary {
    // The keyspace stores this name. If the meaning of the bytes ever changes, the new form needs another
    // name.
    fn name(&self) -> &str {
        "summary-1"
    }

    // Rejects bad input at the call of `merge`, not when the key is read a week later.
    fn check_operand(&self, _key: &[u8], operand: &[u8]) -> testudo::Result<()> {
        decode(operand).map(drop)
    }

    fn check_value(&self, _key: &[u8], value: &[u8]) -> testudo::Result<()> {
        decode(value).map(drop)
    }

    fn merge(&self, _key: &[u8], old: Option<&[u8]>, operands: &[&[u8]]) -> testudo::Result<Vec<u8>> {
        let (mut count, mut sum, mut max) = old.map_or(Ok((0, 0, 0)), decode)?;
        for operand in operands {
            let more = decode(operand)?;
            (count, sum, max) = (count + more.0, sum + more.1, max.max(more.2));
        }
        Ok(encode(count, sum, max).to_vec())
    }

    // Optional. With it, a key that is often written and rarely read keeps one operand instead of a long
    // list.
    fn combine(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.merge(key, None, operands).ok()
    }
}

const THREADS: u64 = 4;
const VISITS_PER_THREAD: u64 = 20_000;
const PAGES: u64 = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("statistics");
    count_visits(&path)?;
    read_after_reopening(&path)
}

fn open(path: &Path) -> testudo::Result<Db> {
    // Recovery and background work need the operator, so it is set before the store is opened.
    Db::builder(path).memory_bytes(16 << 20).merge_operator(Arc::new(Summary)).open()
}

fn count_visits(path: &Path) -> Result<(), Box<dyn Error>> {
    let db = open(path)?;
    // `add-u64` is built in.
    let visits = db.keyspace("visits", KeyspaceOptions::default().merge_operator("add-u64"))?;
    let millis = db.keyspace("millis", KeyspaceOptions::default().merge_operator("summary-1"))?;
    thread::scope(|scope| {
        let count = |thread: u64| {
            for visit in 0..VISITS_PER_THREAD {
                let page = format!("page/{}", visit % PAGES);
                visits.merge(&page, 1_u64.to_le_bytes())?;
                millis.merge(&page, encode(1, thread + 1, thread + 1))?;
            }
            Ok::<_, testudo::Error>(())
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || count(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("the thread does not panic"))
    })?;
    let refused = millis.merge("page/0", "not a summary").expect_err("the operator checks operands");
    println!("rejected before it was written: {refused}");
    db.close()?;
    Ok(())
}

fn read_after_reopening(path: &Path) -> Result<(), Box<dyn Error>> {
    let db = open(path)?;
    let visits = db.open_keyspace("visits")?.ok_or("the keyspace is missing")?;
    let millis = db.open_keyspace("millis")?.ok_or("the keyspace is missing")?;
    let expected = THREADS * VISITS_PER_THREAD / PAGES;
    for entry in visits.prefix("page/")? {
        let (page, number) = entry?.into_pair()?;
        let number = u64::from_le_bytes(number[..].try_into()?);
        let summary = millis.get(&page)?.ok_or("a page has no summary")?;
        let (count, sum, max) = decode(&summary)?;
        assert_eq!((number, count, max), (expected, expected, THREADS));
        println!(
            "{}: {number} visits, {} ms in total, {max} ms at most",
            String::from_utf8_lossy(&page),
            sum
        );
    }
    let pages: Vec<_> = visits.iter()?.collect::<testudo::Result<_>>()?;
    assert_eq!(pages.len(), 10);
    Ok(())
}
