//! Merges report their drops: all input, and everything that merges made, is in the tree or was dropped.
//!
//! **Invariants**
//! - Entries and bytes are counted separately; both sums are checked after each round.

use std::collections::BTreeMap;

use testudo_base::{
    Cursor, DropCounts, Entry, Kind, OwnedEntry, merge_operator::MergeOperators, num::u64_of,
    operands_format::encode_operand,
};
use testudo_contract::{LeastGain, PartUse, ReclaimLimits};
use testudo_env::SplitMix;
use testudo_run::{ReadAhead, RunCursor};

use crate::{Bed, Family, random_key, random_value};

/// Number and bytes of entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    entries: u64,
    bytes: u64,
}

impl Amount {
    fn add(&mut self, entry: &Entry<'_>) {
        self.entries += 1;
        self.bytes += u64_of(entry.user_bytes());
    }
}

/// Returns all entries that still count in the tree.
fn stored<F: Family>(bed: &Bed<F>) -> Amount {
    let mut stored = Amount::default();
    for (run, PartUse::Run(used)) in bed.layout() {
        for bounds in used.counts_in {
            let mut cursor = RunCursor::new(run.clone(), ReadAhead::Adaptive);
            cursor.seek(bounds.low.as_deref().unwrap_or_default()).unwrap();
            while let Some(entry) = cursor.entry().filter(|entry| bounds.contains(entry.key)) {
                stored.add(&entry);
                cursor.next().unwrap();
            }
        }
    }
    stored
}

/// Updates of all kinds, some of which replace everything else.
fn updates(random: &mut SplitMix, round: u64) -> Vec<OwnedEntry> {
    let mut entries = BTreeMap::new();
    for _ in 0..1 + random.below(300) {
        let key = random_key(random);
        let (kind, value) = match random.below(10) {
            0..=4 => (Kind::Value, random_value(random)),
            _ if round % 20 < 10 => (Kind::Tombstone, Vec::new()),
            5 => (Kind::Tombstone, Vec::new()),
            _ => (Kind::Operands, encode_operand(&[b'o'; 9])),
        };
        entries.insert(key.clone(), OwnedEntry { key, kind, value });
    }
    entries.into_values().collect()
}

/// Applies random updates, jobs and reclaim steps; checks that every byte added or made is stored or dropped.
/// Returns the reported drops.
pub fn drops_of_random_run<F: Family>(seed: u64, options: F, operator: Option<&str>) -> DropCounts {
    let mut random = SplitMix::new(seed);
    let mut bed = Bed::new(options);
    bed.work.full_merge = MergeOperators::default().full_merge("k", operator);
    let (mut taken, mut drops) = (Amount::default(), DropCounts::default());
    for round in 0..60 {
        let entries = updates(&mut random, round);
        entries.iter().for_each(|entry| taken.add(&entry.as_entry()));
        let updates = bed.updates_of(entries);
        let edit = if random.percent(20) {
            bed.tree.apply_on_top(&bed.work, updates)
        } else {
            bed.tree.apply(&bed.work, updates)
        };
        bed.publish(edit.unwrap());
        if random.percent(20) {
            bed.run_jobs();
        }
        let limits = ReclaimLimits { space_bytes: 1 << 30, least_gain: LeastGain::None, but: &[] };
        if random.percent(30)
            && let Some(reclaim) = bed.tree.pick_reclaim(&limits).unwrap()
        {
            let edit = bed.tree.reclaim(&bed.work, &reclaim).unwrap();
            bed.publish(edit);
        }
        drops += bed.work.progress.take_drops();
        let stored = stored(&bed);
        assert_eq!(taken.entries + drops.made_entries, stored.entries + drops.dropped_entries, "{round}");
        assert_eq!(taken.bytes + drops.made_bytes, stored.bytes + drops.dropped_bytes, "{round}");
    }
    drops
}
