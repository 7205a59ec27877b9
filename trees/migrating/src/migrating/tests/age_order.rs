//! Runs alone, of both trees, put in order by what they say of themselves, answer as the moving tree does.

use std::collections::{BTreeMap, BTreeSet};

use testudo_base::{Kind, RunId, Seqno};
use testudo_contract::{PartUse, RunUse};
use testudo_run::{ReadAhead, Run, RunCursor, RunRecord};

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

/// Remembers what the runs have that there are now.
pub(super) fn note(bed: &Bed, found: &mut Found) -> Vec<RunId> {
    let note = |run: Arc<Run>| {
        let id = run.reference().id;
        found.entry(id).or_insert_with(|| (run.record().unwrap(), read(&run)));
        id
    };
    bed.runs().into_iter().map(note).collect()
}

/// As a salvage goes by all runs that there are or ever were, without a manifest and with one.
pub(super) fn check(bed: &Bed, found: &mut Found) {
    let live = note(bed, found);
    let expected: BTreeMap<_, _> =
        bed.model.iter().map(|(key, value)| (key.as_slice(), value.as_slice())).collect();
    let live = answers(live.iter().map(|id| &found[id]).collect());
    assert!(live == expected, "live runs, {:?}", first_difference(&live, &expected));
    let all = answers(found.values().collect());
    assert!(all == expected, "all runs that ever were, {:?}", first_difference(&all, &expected));
    check_layout(bed, found);
}

/// The start of the first key that one of the two does not have, or has with another value.
fn first_difference(found: &BTreeMap<&[u8], &[u8]>, expected: &BTreeMap<&[u8], &[u8]>) -> Option<String> {
    let differs = |key: &&&[u8]| found.get(**key) != expected.get(**key);
    let key = found.keys().chain(expected.keys()).filter(differs).min()?;
    Some(String::from_utf8_lossy(&key[..key.len().min(20)]).into_owned())
}

fn check_layout(bed: &Bed, found: &Found) {
    let mut uses: Vec<RunUse> = bed.layout().into_iter().map(|PartUse::Run(run_use)| run_use).collect();
    let ids: BTreeSet<RunId> = bed.runs().iter().map(|run| run.reference().id).collect();
    assert_eq!(uses.iter().map(|run_use| run_use.reference.id).collect::<BTreeSet<_>>(), ids);
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
