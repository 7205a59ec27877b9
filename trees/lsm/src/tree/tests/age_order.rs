//! Runs alone, put in order by what they say of themselves, answer as the tree does.

use testudo_contract::{PartUse, RunUse};
use testudo_run::{ReadAhead, RunCursor, RunRecord};

use super::*;

type Entries = BTreeMap<Vec<u8>, (Kind, Vec<u8>)>;

/// Everything that was ever in a run, by run.
pub(super) type Found = BTreeMap<RunId, (RunRecord, Entries)>;

fn order(record: &RunRecord) -> (Seqno, RunId) {
    (record.reference.newest_seqno, record.reference.id)
}

fn read(run: &Arc<Run>) -> Entries {
    let mut entries = Entries::new();
    let mut cursor = RunCursor::new(Arc::clone(run), ReadAhead::Adaptive);
    cursor.seek_first().unwrap();
    while let Some(entry) = cursor.entry() {
        entries.insert(entry.key.to_vec(), (entry.kind, entry.value.to_vec()));
        cursor.next().unwrap();
    }
    entries
}

/// What runs answer: of each key its newest entry by its run, unless a newer run says that it is gone.
fn answers(mut runs: Vec<&(RunRecord, Entries)>) -> BTreeMap<&[u8], &[u8]> {
    // From the oldest run on, each changes what those before it say.
    runs.sort_unstable_by_key(|(record, _)| order(record));
    let mut answers: BTreeMap<&[u8], &[u8]> = BTreeMap::new();
    for (record, entries) in runs {
        if let Some(known) = &record.covered_range {
            answers.retain(|key, _| !known.contains(key));
        }
        for (key, (kind, value)) in entries {
            match kind {
                Kind::Value => answers.insert(key, value),
                _ => answers.remove(key.as_slice()),
            };
        }
    }
    answers
}

/// As a salvage without a manifest goes by all runs that there are or ever were.
pub(super) fn check(bed: &Bed, found: &mut Found) {
    let mut live = Vec::new();
    for run in bed.runs() {
        let id = run.reference().id;
        live.push(id);
        found.entry(id).or_insert_with(|| (run.record().unwrap(), read(&run)));
    }
    let expected: BTreeMap<_, _> =
        bed.model.iter().map(|(key, value)| (key.as_slice(), value.as_slice())).collect();
    let live = answers(live.iter().map(|id| &found[id]).collect());
    assert!(live == expected, "live runs, {:?}", first_difference(&live, &expected));
    let all = answers(found.values().collect());
    assert!(all == expected, "all runs that ever were, {:?}", first_difference(&all, &expected));
}

/// The start of the first key that one of the two does not have, or has with another value.
fn first_difference(found: &BTreeMap<&[u8], &[u8]>, expected: &BTreeMap<&[u8], &[u8]>) -> Option<String> {
    let differs = |key: &&&[u8]| found.get(**key) != expected.get(**key);
    let key = found.keys().chain(expected.keys()).filter(differs).min()?;
    Some(String::from_utf8_lossy(&key[..key.len().min(20)]).into_owned())
}

/// As a salvage with a manifest goes by runs for the keys for which they count.
fn check_layout(bed: &Bed, found: &Found) {
    let uses = crate::read_layout(bed.objects.clone()).unwrap();
    let mut uses: Vec<RunUse> = uses.into_iter().map(|PartUse::Run(run_use)| run_use).collect();
    assert_eq!(uses.len(), bed.runs().len());
    uses.sort_unstable_by_key(|run_use| (run_use.reference.newest_seqno, run_use.reference.id));
    let mut newest: BTreeMap<&[u8], &[u8]> = BTreeMap::new();
    for run_use in &uses {
        for (key, (_, value)) in &found[&run_use.reference.id].1 {
            if run_use.counts_in.iter().any(|bounds| bounds.contains(key)) {
                newest.insert(key, value);
            }
        }
    }
    for (key, value) in &bed.model {
        assert_eq!(newest.get(key.as_slice()).expect("no run has the key"), value);
    }
}

fn random_script(seed: u64, options: LsmOptions) {
    let mut random = SplitMix::new(seed);
    let mut bed = Bed::new(options);
    let mut found = Found::new();
    for round in 0..40 {
        let delete_percent = if (round / 10) % 2 == 1 { 80 } else { 15 };
        let batch = random_batch(&mut random, 200, delete_percent);
        bed.apply(batch);
        check(&bed, &mut found);
        check_layout(&bed, &found);
        if random.percent(20) {
            bed.reopen();
        }
        if random.percent(30) {
            bed.run_jobs();
            check(&bed, &mut found);
        }
    }
    let all = bed.model.keys().map(|key| (key.clone(), None)).collect();
    bed.apply(all);
    bed.run_jobs();
    check(&bed, &mut found);
}

#[test]
fn runs_in_the_order_of_their_age_answer_as_the_tree_does() {
    for seed in 0..4 {
        random_script(seed, options(4096, 3, 2));
        random_script(seed, options(4096, 10, 4));
        random_script(seed, options(20_000, 2, 1));
    }
}

/// Keys that come in order, upwards at one place and downwards at two, removed and overwritten now and then.
fn script_in_order(seed: u64, options: LsmOptions) {
    let mut random = SplitMix::new(seed);
    let mut bed = Bed::new(options);
    let mut found = Found::new();
    let (mut up, mut down) = (0, 9999);
    for _ in 0..40 {
        let mut updates = Batch::new();
        for _ in 0..1 + random.below(150) {
            let value = (!random.percent(20)).then(|| random_value(&mut random));
            let key = match random.below(3) {
                0 => format!("a{down:05}"),
                1 => format!("b{up:05}"),
                _ => format!("b{down:05}"),
            };
            updates.insert(key.into_bytes(), value);
            up += random.below(2);
            down -= random.below(2);
        }
        if random.percent(20) {
            let old = 5000 + random.below(5000);
            updates.insert(format!("a{old:05}").into_bytes(), None);
        }
        bed.apply(updates);
        check(&bed, &mut found);
        if random.percent(10) {
            bed.run_jobs();
        }
    }
    bed.check(&mut random);
}

#[test]
fn runs_of_keys_that_came_in_order_answer_as_the_tree_does() {
    for seed in 0..3 {
        script_in_order(seed, options(4096, 4, 2));
        script_in_order(seed, options(8192, 10, 4));
    }
}

/// Flushes of which each has keys of its own place, so that runs come down as they are, and are removed then.
#[test]
fn runs_that_come_down_as_they_are_lose_nothing_that_was_said_of_removed_keys() {
    for seed in 0..6 {
        let mut random = SplitMix::new(seed);
        let mut bed = Bed::new(options(4096, 3, 2));
        let mut found = Found::new();
        for round in 0..60u64 {
            let place = random.below(12);
            let key = |n: u64| format!("{place:02}-{:04}", n).into_bytes();
            let first = random.below(300);
            let is_removal = random.percent(35);
            let value = |n: u64| (!is_removal).then(|| vec![u8::try_from(round).unwrap(); (n % 90) as usize]);
            bed.apply((first..first + 20 + random.below(150)).map(|n| (key(n), value(n))).collect());
            check(&bed, &mut found);
        }
        bed.run_jobs();
        check(&bed, &mut found);
        bed.check(&mut random);
    }
}
