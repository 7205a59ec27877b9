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

/// The newest entry of `key` by its run, unless a newer run says that it is gone.
fn answer<'f>(runs: &[&'f (RunRecord, Entries)], key: &[u8]) -> Option<&'f [u8]> {
    let holders = runs.iter().filter(|(_, entries)| entries.contains_key(key));
    let (holder, entries) = holders.max_by_key(|(record, _)| order(record))?;
    let knows = |record: &RunRecord| record.covered_range.as_ref().is_some_and(|keys| keys.contains(key));
    let is_gone = runs.iter().any(|(record, _)| knows(record) && order(record) > order(holder));
    let (kind, value) = &entries[key];
    (!is_gone && *kind == Kind::Value).then_some(value)
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
    let all: Vec<_> = found.values().collect();
    let live: Vec<_> = live.iter().map(|id| &found[id]).collect();
    let keys: BTreeSet<_> = all.iter().flat_map(|(_, entries)| entries.keys()).collect();
    for key in keys {
        let expected = bed.model.get(key).map(Vec::as_slice);
        let name = String::from_utf8_lossy(&key[..key.len().min(20)]);
        assert!(answer(&live, key) == expected, "live runs, {name}");
        assert!(answer(&all, key) == expected, "all runs that ever were, {name}");
    }
    check_layout(bed, found);
}

fn check_layout(bed: &Bed, found: &Found) {
    let uses: Vec<RunUse> = bed.layout().into_iter().map(|PartUse::Run(run_use)| run_use).collect();
    let ids: BTreeSet<RunId> = bed.runs().iter().map(|run| run.reference().id).collect();
    assert_eq!(uses.iter().map(|run_use| run_use.reference.id).collect::<BTreeSet<_>>(), ids);
    for (key, value) in &bed.model {
        let counts = |run_use: &&RunUse| {
            let entries = &found[&run_use.reference.id].1;
            run_use.counts_in.iter().any(|keys| keys.contains(key)) && entries.contains_key(key)
        };
        let age = |run_use: &&RunUse| (run_use.reference.newest_seqno, run_use.reference.id);
        let newest = uses.iter().filter(counts).max_by_key(age).expect("no run has the key");
        assert_eq!(&found[&newest.reference.id].1[key].1, value);
    }
}
