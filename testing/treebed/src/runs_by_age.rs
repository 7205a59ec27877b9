//! Checks that runs alone, ordered by their own records, answer like their tree.
//!
//! Salvage relies on this: without a manifest it has only the runs that it finds, including runs that their
//! tree has dropped; with one it has the keys for which each run counts. Tests of trees record the runs after
//! each step and compare their answers with a model.
//!
//! **Invariants**
//! - A run that was recorded stays, even after its tree has dropped it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use testudo_base::{Cursor, Kind, RunId, Seqno};
use testudo_contract::{PartUse, RunUse};
use testudo_run::{ReadAhead, Run, RunCursor, RunRecord};

use crate::Model;

type Entries = BTreeMap<Vec<u8>, (Kind, Vec<u8>)>;
type Answers<'a> = BTreeMap<&'a [u8], &'a [u8]>;

/// Everything that was ever in a run of a tree, by run.
#[derive(Debug, Default)]
pub struct RunsByAge {
    found: BTreeMap<RunId, (RunRecord, Entries)>,
}

impl RunsByAge {
    /// Creates a set without runs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads those of a tree's runs that were not noted yet, and again those whose pages were replaced: they
    /// keep their id. Salvage knows their age from the replaced pages; the footer has the original one.
    pub fn note(&mut self, live: &[Arc<Run>]) {
        for run in live {
            let id = run.reference().id;
            if run.reference().replaced.is_some() || !self.found.contains_key(&id) {
                let record = run.record().expect("the footer of a run can be read");
                let record = RunRecord { reference: run.reference().clone(), ..record };
                self.found.insert(id, (record, entries_of(run)));
            }
        }
    }

    /// Checks that the live runs of a tree, and also all runs that it ever had, give the model's answers.
    /// Salvage without a manifest relies on it.
    #[track_caller]
    pub fn check(&mut self, live: &[Arc<Run>], model: &Model) {
        self.note(live);
        let expected: Answers<'_> =
            model.iter().map(|(key, value)| (key.as_slice(), value.as_slice())).collect();
        let live = answers(live.iter().map(|run| &self.found[&run.reference().id]).collect());
        assert!(live == expected, "live runs, {:?}", first_difference(&live, &expected));
        let all = answers(self.found.values().collect());
        assert!(all == expected, "all runs that ever were, {:?}", first_difference(&all, &expected));
    }

    /// Checks that the tree's objects name its live runs, and that these have the model's values for the keys
    /// for which they count. Salvage with a manifest relies on it. REQUIRES: the runs are recorded.
    #[track_caller]
    pub fn check_layout(&self, live: &[Arc<Run>], layout: Vec<PartUse>, model: &Model) {
        let mut uses: Vec<RunUse> = layout.into_iter().map(|PartUse::Run(run_use)| run_use).collect();
        let named: BTreeSet<RunId> = uses.iter().map(|run_use| run_use.reference.id).collect();
        let ids: BTreeSet<RunId> = live.iter().map(|run| run.reference().id).collect();
        assert_eq!(named, ids, "the runs that the objects name, and those that the tree has");
        uses.sort_unstable_by_key(|run_use| (run_use.reference.newest_seqno, run_use.reference.id));
        let mut newest = Answers::new();
        for run_use in &uses {
            for (key, (_, value)) in &self.found[&run_use.reference.id].1 {
                if run_use.counts_in.iter().any(|bounds| bounds.contains(key)) {
                    newest.insert(key, value);
                }
            }
        }
        for (key, value) in model {
            assert_eq!(newest.get(key.as_slice()).expect("no run has the key"), value);
        }
    }
}

fn age(record: &RunRecord) -> (Seqno, RunId) {
    (record.reference.newest_seqno, record.reference.version())
}

fn entries_of(run: &Arc<Run>) -> Entries {
    let readable = "a run can be read";
    let mut entries = Entries::new();
    let mut cursor = RunCursor::new(Arc::clone(run), ReadAhead::Adaptive);
    cursor.seek_first().expect(readable);
    while let Some(entry) = cursor.entry() {
        entries.insert(entry.key.to_vec(), (entry.kind, entry.value.to_vec()));
        cursor.next().expect(readable);
    }
    entries
}

/// Answers of runs: for each key the newest entry by run age, unless a newer run covers the key without it.
fn answers(mut runs: Vec<&(RunRecord, Entries)>) -> Answers<'_> {
    // Starting with the oldest run, each overrides the earlier ones.
    runs.sort_unstable_by_key(|(record, _)| age(record));
    let mut answers = Answers::new();
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

/// Start of the first key that is missing from one of the two, or differs between them.
fn first_difference(found: &Answers<'_>, expected: &Answers<'_>) -> Option<String> {
    let differs = |key: &&&[u8]| found.get(**key) != expected.get(**key);
    let key = found.keys().chain(expected.keys()).filter(differs).min()?;
    Some(String::from_utf8_lossy(&key[..key.len().min(20)]).into_owned())
}
