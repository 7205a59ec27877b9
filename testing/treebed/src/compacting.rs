//! Compaction of ranges in a tree of any family.
//!
//! **Invariants**
//! - After a compaction without updates meanwhile, each key of the range is in one run.

use std::{collections::BTreeMap, sync::Arc};

use testudo_base::{Cursor, Kind};
use testudo_contract::{JOB_BYTES, PartUse, RangeJob};
use testudo_env::SplitMix;
use testudo_run::{KeyBounds, ReadAhead, RunCursor};

use crate::{Batch, Bed, Family, RunsByAge, random_key, random_value};

impl<F: Family> Bed<F> {
    /// Compacts a range; returns the number of jobs. `between` may change the tree between preparing and
    /// installing one; a job that was overtaken is repeated alone.
    pub fn compact_range(&mut self, range: &KeyBounds, mut between: impl FnMut(&mut Self)) -> u64 {
        let (mut rest, mut jobs, mut was_overtaken) = (range.clone(), 0, false);
        let bytes_max = self.options.job_bytes();
        while let Some(RangeJob { job, done_below }) = self.tree.pick_range(&rest, bytes_max).unwrap() {
            let prepared = self.prepare(&job, bytes_max);
            if !was_overtaken {
                between(self);
            }
            let is_installed = self.install(prepared);
            assert!(is_installed || !was_overtaken, "a job alone is not overtaken");
            was_overtaken = !is_installed;
            if was_overtaken {
                continue;
            }
            self.tree.check_invariants(true).unwrap();
            jobs += 1;
            assert!(done_below.is_none() || done_below >= rest.low, "jobs proceed in key order");
            let Some(end) = done_below else { break };
            rest.low = Some(end);
        }
        jobs
    }

    /// Checks that each key of a range is in one run, and that a tombstone is alone in its run, or the only
    /// entry of an updated page.
    #[track_caller]
    pub fn check_compact(&self, range: &KeyBounds) {
        let mut values: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for (run, PartUse::Run(run_use)) in self.layout() {
            let counts = |key: &[u8]| run_use.counts_in.iter().any(|bounds| bounds.contains(key));
            let mut cursor = RunCursor::new(Arc::clone(&run), ReadAhead::Adaptive);
            cursor.seek_first().unwrap();
            while let Some(entry) = cursor.entry() {
                if range.contains(entry.key) && counts(entry.key) {
                    match entry.kind {
                        Kind::Tombstone if run.reference().replaced.is_some() => {
                            assert!(run.reference().tombstones <= u64::from(run.reference().data_pages));
                        }
                        Kind::Tombstone => assert_eq!(run.reference().entries, 1, "{run:?}"),
                        _ => *values.entry(entry.key.to_vec()).or_default() += 1,
                    }
                }
                cursor.next().unwrap();
            }
        }
        let expected: BTreeMap<Vec<u8>, u64> =
            self.model.keys().filter(|key| range.contains(key)).map(|key| (key.clone(), 1)).collect();
        assert!(values == expected, "{} keys are expected, each in one run", expected.len());
    }
}

/// Returns a random range of the keys of [`random_key`].
pub fn random_range(random: &mut SplitMix) -> KeyBounds {
    let (one, other) = (random_key(random), random_key(random));
    let (low, high) = if one < other { (one, other) } else { (other, one) };
    KeyBounds {
        low: Some(low).filter(|_| !random.percent(20)),
        high: Some(high).filter(|_| !random.percent(20)),
    }
}

/// Compacts random ranges of a tree, with updates meanwhile in every second of them. Checks answers, runs by
/// age, and that a second compaction has nothing to do.
pub fn random_compactions<F: Family>(seed: u64, options: F) {
    let mut random = SplitMix::new(seed);
    let mut bed = Bed::new(options);
    let mut found = RunsByAge::new();
    let mut jobs = 0;
    for round in 0..12u64 {
        for _ in 0..1 + random.below(4) {
            let delete_percent = if round % 6 == 5 { 80 } else { 20 };
            bed.apply(random_updates(&mut random, 300, delete_percent));
            found.note(&bed.runs());
        }
        if random.percent(40) {
            let count = random.below(3);
            bed.run_jobs_up_to(count, random.percent(50));
        }
        let range = random_range(&mut random);
        let has_updates = round % 2 == 1;
        jobs += bed.compact_range(&range, |bed| {
            if has_updates && random.percent(60) {
                let updates = random_updates(&mut random, 60, 30);
                if random.percent(25) { bed.apply_on_top(updates) } else { bed.apply_only(updates) }
            }
        });
        bed.check_runs(&mut found);
        let layout = bed.options.layout(bed.durable.objects.clone());
        found.check_layout(&bed.runs(), layout, &bed.model);
        if !has_updates {
            bed.check_compact(&range);
            let written = bed.written_bytes();
            assert_eq!(bed.compact_range(&range, |_| {}), 0, "the range is compact");
            assert_eq!(bed.written_bytes(), written);
        }
        bed.check(&mut random);
        if random.percent(30) {
            bed.reopen();
            bed.check(&mut random);
        }
    }
    assert!(jobs > 12, "{jobs} jobs");
    let removed = bed.model.keys().map(|key| (key.clone(), None)).collect();
    bed.apply(removed);
    bed.compact_range(&KeyBounds::default(), |_| {});
    bed.check_compact(&KeyBounds::default());
    bed.check_runs(&mut found);
    bed.run_jobs();
    bed.check(&mut random);
}

fn random_updates(random: &mut SplitMix, count_max: u64, delete_percent: u8) -> Batch {
    let update = |_| {
        let value = (!random.percent(delete_percent)).then(|| random_value(random));
        (random_key(random), value)
    };
    (0..=count_max / 2).map(update).collect()
}

/// Loads many keys in random order, several times, then compacts 40 % of them. Checks that the bytes written
/// are bounded by those of the range, and by `run_bytes` for each end in each of `sources` sequences.
pub fn compact_a_part<F: Family>(options: F, run_bytes: u64, sources: impl Fn(&Bed<F>) -> u64) {
    const KEYS: u64 = 6000;
    let mut random = SplitMix::new(7);
    let mut bed = Bed::new(options);
    let key = |number: u64| format!("user{number:08}").into_bytes();
    let value = |n: u64| (!n.is_multiple_of(7)).then(|| vec![b'v'; 100 + usize::try_from(n % 9).unwrap()]);
    bed.apply((0..KEYS).map(|n| (key(n), value(n))).collect());
    for round in 0..12u64 {
        bed.apply((0..400).map(|_| random.below(KEYS)).map(|n| (key(n), value(n + round))).collect());
    }
    let range = KeyBounds { low: Some(key(KEYS / 10 * 3 + 1)), high: Some(key(KEYS / 10 * 7 + 1)) };
    let bytes_of =
        |keys: &KeyBounds| bed.tree.bytes_between(keys.low.as_deref(), keys.high.as_deref()).unwrap();
    let (inside, all) = (bytes_of(&range), bytes_of(&KeyBounds::default()));
    let most = inside / 2 * 3 + 2 * sources(&bed) * run_bytes;
    let before = bed.written_bytes();
    let jobs = bed.compact_range(&range, |_| {});
    let written = bed.written_bytes() - before;
    assert!(jobs > 1, "{jobs} jobs: a job takes a few runs");
    assert!(written <= most, "{written} bytes written, at most {most} of {all}; {inside} are in the range");
    bed.check_compact(&range);
    bed.check(&mut random);
    let outside = KeyBounds { low: range.high, high: None };
    assert!(
        bed.tree.pick_range(&outside, JOB_BYTES).unwrap().is_some(),
        "the rest is still above the bottom"
    );
}
