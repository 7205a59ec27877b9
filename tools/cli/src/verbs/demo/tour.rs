//! First part of the tour: loads the real history into a keyspace and checks every way of reading it.

use std::ops::Bound;

use serde_json::json;
use testudo::{Batch, Db, Entry, Keyspace, KeyspaceOptions, TreePreset};
use testudo_base::{
    key::prefix_end,
    num::{u64_of, usize_of},
};

use super::{
    Demo,
    git_history::{Change, Content, History, Model},
};
use crate::{
    failure::Failure,
    output::size::{show_count, show_size},
};

const POINT_READS: u64 = 50_000;
const MULTI_GETS: u64 = 1000;
const KEYS_PER_MULTI_GET: u64 = 32;
const RANGES: u64 = 500;
const RECORDS_PER_RANGE: usize = 50;
const PREFIX: &[u8] = b"facebook/rocksdb/db/";

impl Demo<'_> {
    /// Loads the history into the keyspace `name` and reads it in every way.
    pub(super) fn tour(
        &mut self,
        db: &Db,
        history: &History,
        name: &str,
        tree: TreePreset,
    ) -> Result<(), Failure> {
        self.report.section(name, &format!("A real history in a keyspace with the tree '{tree}'"))?;
        self.report.note(
            "The file history of ten public repositories: each commit is one atomic batch of puts and",
        )?;
        self.report.note("deletes; values are synthetic and scaled down.")?;
        let keyspace = db.keyspace(name, || KeyspaceOptions::default().tree(tree))?;
        let model = self.load_history(db, &keyspace, history)?;
        let keys: Vec<&[u8]> = model.keys().copied().collect();
        self.point_reads(&keyspace, &model, &keys)?;
        self.multi_gets(&keyspace, &model, &keys)?;
        self.ranges(&keyspace, &model, &keys)?;
        self.whole_scans(&keyspace, &model)?;
        self.delete_prefix(db, &keyspace, &model)
    }

    fn load_history<'a>(
        &mut self,
        db: &Db,
        keyspace: &Keyspace,
        history: &'a History,
    ) -> Result<Model<'a>, Failure> {
        let (mut model, mut batches, mut operations, mut bytes) = (Model::new(), 0u64, 0u64, 0u64);
        let ((), time) = self.measure(|demo| {
            for changes in history.batches() {
                let changes = changes?;
                let mut batch = db.batch();
                for change in &changes {
                    bytes += apply(&mut batch, keyspace, &mut model, *change);
                }
                batch.commit()?;
                batches += 1;
                operations += u64_of(changes.len());
                if batches.is_multiple_of(1000) {
                    demo.go_on()?;
                }
            }
            Ok(())
        })?;
        let rate = per_second(operations, time.as_secs_f64());
        let text = format!("{} operations in {} batches", show_count(operations), show_count(batches));
        self.report.measurement("loaded", &text, "operations", operations)?;
        let text = format!(
            "{} operations/s, {}/s",
            show_count(rate),
            show_size(per_second(bytes, time.as_secs_f64()))
        );
        self.report.measurement("load rate", &text, "load_operations_per_second", rate)?;
        let (_, time) = self.measure(|_| Ok(db.flush()?))?;
        let text = format!("{:.2} s until all records are in the tree", time.as_secs_f64());
        self.report.measurement("flush", &text, "flush_seconds", time.as_secs_f64())?;
        Ok(model)
    }

    fn point_reads(&mut self, keyspace: &Keyspace, model: &Model<'_>, keys: &[&[u8]]) -> Result<(), Failure> {
        let ((), time) = self.measure(|demo| {
            for number in 0..POINT_READS {
                let key = keys[usize_of(demo.random.below(u64_of(keys.len())))];
                if number % 10 == 0 {
                    let absent = [key, b"~absent"].concat();
                    let found = keyspace.get(&absent)?;
                    demo.report.check(found.is_none(), "a key that was never put has a value")?;
                    continue;
                }
                let found = keyspace.get(key)?;
                demo.check_value(model[key], found.as_deref(), "point read")?;
            }
            Ok(())
        })?;
        let rate = per_second(POINT_READS, time.as_secs_f64());
        let text = format!("{} reads/s, one key in ten absent", show_count(rate));
        self.report.measurement("point reads", &text, "point_reads_per_second", rate)
    }

    fn multi_gets(&mut self, keyspace: &Keyspace, model: &Model<'_>, keys: &[&[u8]]) -> Result<(), Failure> {
        let ((), time) = self.measure(|demo| {
            for _ in 0..MULTI_GETS {
                let pick = |_| keys[usize_of(demo.random.below(u64_of(keys.len())))];
                let asked: Vec<&[u8]> = (0..KEYS_PER_MULTI_GET).map(pick).collect();
                let found = keyspace.multi_get(&asked)?;
                demo.report
                    .check(found.len() == asked.len(), "multi_get returned too many or few answers")?;
                for (key, value) in asked.iter().zip(found) {
                    demo.check_value(model[key], value.as_deref(), "multi_get")?;
                }
            }
            Ok(())
        })?;
        let rate = per_second(MULTI_GETS * KEYS_PER_MULTI_GET, time.as_secs_f64());
        let text = format!("{} keys/s, {KEYS_PER_MULTI_GET} keys per call", show_count(rate));
        self.report.measurement("multi_get", &text, "multi_get_keys_per_second", rate)
    }

    fn ranges(&mut self, keyspace: &Keyspace, model: &Model<'_>, keys: &[&[u8]]) -> Result<(), Failure> {
        for (label, reverse) in [("range scans", false), ("range scans, backwards", true)] {
            let mut records = 0;
            let ((), time) = self.measure(|demo| {
                for _ in 0..RANGES {
                    let start = keys[usize_of(demo.random.below(u64_of(keys.len())))];
                    records += demo.one_range(keyspace, model, start, reverse)?;
                }
                Ok(())
            })?;
            let rate = per_second(records, time.as_secs_f64());
            let text = format!("{} records/s, {RECORDS_PER_RANGE} records each", show_count(rate));
            let key = if reverse { "reverse_range_records_per_second" } else { "range_records_per_second" };
            self.report.measurement(label, &text, key, rate)?;
        }
        let end = prefix_end(PREFIX).unwrap_or_default();
        let expected = model.range::<[u8], _>((Bound::Included(PREFIX), Bound::Excluded(&end[..])));
        let records = self.compare(expected, keyspace.prefix(PREFIX)?, "prefix scan")?;
        let text = format!("{} records under {}", show_count(records), String::from_utf8_lossy(PREFIX));
        self.report.measurement("prefix scan", &text, "prefix_records", records)
    }

    fn one_range(
        &mut self,
        keyspace: &Keyspace,
        model: &Model<'_>,
        start: &[u8],
        reverse: bool,
    ) -> Result<u64, Failure> {
        if reverse {
            let found = keyspace.range(..=start)?.rev().take(RECORDS_PER_RANGE);
            let below = (Bound::Unbounded, Bound::Included(start));
            self.compare(
                model.range::<[u8], _>(below).rev().take(RECORDS_PER_RANGE),
                found,
                "reverse range scan",
            )
        } else {
            let found = keyspace.range(start..)?.take(RECORDS_PER_RANGE);
            let above = (Bound::Included(start), Bound::Unbounded);
            self.compare(model.range::<[u8], _>(above).take(RECORDS_PER_RANGE), found, "range scan")
        }
    }

    fn whole_scans(&mut self, keyspace: &Keyspace, model: &Model<'_>) -> Result<(), Failure> {
        let (records, time) = self.measure(|demo| {
            let forwards = demo.compare(model.iter(), keyspace.iter()?, "whole scan")?;
            let backwards = demo.compare(model.iter().rev(), keyspace.iter()?.rev(), "whole reverse scan")?;
            Ok(forwards + backwards)
        })?;
        let rate = per_second(records, time.as_secs_f64());
        let text = format!("{} records/s, in both directions, equal to the model", show_count(rate));
        self.report.measurement("whole scans", &text, "scan_records_per_second", rate)
    }

    fn delete_prefix(&mut self, db: &Db, keyspace: &Keyspace, model: &Model<'_>) -> Result<(), Failure> {
        let mut batch = db.batch();
        for entry in keyspace.prefix(PREFIX)? {
            batch.remove(keyspace, entry?.key());
        }
        let deleted = u64_of(batch.len());
        batch.commit()?;
        let rest = model.iter().filter(|(key, _)| !key.starts_with(PREFIX));
        let left = self.compare(rest, keyspace.iter()?, "scan after deletes")?;
        let text = format!("{} records in one batch, {} left", show_count(deleted), show_count(left));
        self.report.measurement("deletes", &text, "deleted_records", json!(deleted))
    }

    /// Compares a scan with the expected records; returns the number of expected records.
    fn compare<'m>(
        &mut self,
        expected: impl Iterator<Item = (&'m &'m [u8], &'m Content)>,
        mut found: impl Iterator<Item = testudo::Result<Entry>>,
        what: &str,
    ) -> Result<u64, Failure> {
        let mut records = 0;
        for (key, content) in expected {
            records += 1;
            let Some(entry) = found.next().transpose()? else {
                self.report.check(false, &format!("{what}: ends too early"))?;
                return Ok(records);
            };
            if entry.key() != *key {
                self.report.check(false, &format!("{what}: a key is missing, duplicated or out of order"))?;
                return Ok(records);
            }
            self.check_value(*content, Some(&entry.value()?), what)?;
        }
        self.report.check(found.next().is_none(), &format!("{what}: has an extra record"))?;
        Ok(records)
    }

    fn check_value(&mut self, expected: Content, found: Option<&[u8]>, what: &str) -> Result<(), Failure> {
        let right = found.is_some_and(|found| expected.is(found));
        self.report.check(right, what)
    }
}

/// Adds a change to the batch and the model; returns its bytes.
fn apply<'a>(batch: &mut Batch, keyspace: &Keyspace, model: &mut Model<'a>, change: Change<'a>) -> u64 {
    match change {
        Change::Put(key, content) => {
            let value = content.value();
            batch.insert(keyspace, key, &value);
            model.insert(key, content);
            u64_of(key.len() + value.len())
        }
        Change::Delete(key) => {
            batch.remove(keyspace, key);
            model.remove(key);
            u64_of(key.len())
        }
    }
}

/// Rate per second, rounded down.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a displayed rate, never negative"
)]
pub(super) fn per_second(count: u64, seconds: f64) -> u64 {
    (count as f64 / seconds.max(1e-6)) as u64
}
