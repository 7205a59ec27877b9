//! Merges report their drops: all input, and everything that merges made, is in the tree or was dropped.

use testudo_base::{DropCounts, merge_operator::MergeOperators, operands_format::encode_operand};
use testudo_contract::{LeastGain, Part, PartUse, ReclaimLimits};
use testudo_run::{ReadAhead, RunCursor};

use super::*;
use crate::read_layout;

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
fn stored(bed: &Bed) -> Amount {
    let runs = bed.tree.parts().into_iter().map(|Part::Run(run)| (run.reference().id, run));
    let runs: BTreeMap<RunId, _> = runs.collect();
    let mut stored = Amount::default();
    for PartUse::Run(used) in read_layout(bed.objects.clone()).unwrap() {
        for bounds in used.counts_in {
            let mut cursor = RunCursor::new(Arc::clone(&runs[&used.reference.id]), ReadAhead::Adaptive);
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

fn random_run(seed: u64, options: LsmOptions, operator: Option<&str>) -> DropCounts {
    let mut random = SplitMix::new(seed);
    let mut bed = Bed::new(options);
    bed.work.full_merge = MergeOperators::default().full_merge("k", operator);
    let (mut taken, mut drops) = (Amount::default(), DropCounts::default());
    for round in 0..60 {
        let entries = updates(&mut random, round);
        entries.iter().for_each(|entry| taken.add(&entry.as_entry()));
        bed.sealed.0 += 10;
        let updates = Arc::new(VecUpdates(Arc::new(entries), bed.sealed));
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

#[test]
fn every_byte_added_or_made_is_stored_or_dropped() {
    let all = [options(4096, 2, 1), options(16 << 10, 4, 2), updating(4096, 2, 1), updating(32 << 10, 4, 2)];
    for (seed, options) in all.into_iter().enumerate() {
        for operator in [Some("append"), None] {
            let drops = random_run(seed as u64, options, operator);
            assert!(drops.dropped_entries > 1_000 && drops.made_entries > 100, "{drops:?}");
        }
    }
}
