use std::collections::{BTreeMap, BTreeSet};

use testudo_base::{
    OwnedEntry, RunId, Seqno, ValueReference, checksum::hash_key, merge_operator::MergeOperators,
    operands_format::encode_operand,
};
use testudo_betree::{BeTree, BeTreeOptions, Policy};
use testudo_contract::{InlineExecutor, JobRequest, PartUse, Scope};
use testudo_env::{MemEnv, SplitMix};
use testudo_lsm::{LsmOptions, LsmTree};
use testudo_run::{BoundedCursor, ReadAhead, RunCursor};
use testudo_treebed::{Durable, KEYSPACE, Model, VecUpdates, work_on};

use super::*;
use crate::split_objects;

const KEYS: u64 = 700;
/// Limit on the bytes of a job.
const JOB_BYTES_MAX: u64 = 32 << 10;

#[derive(Clone, Copy, Debug)]
enum Family {
    BeTree(Policy),
    Lsm,
}

/// A tree, its durable objects, and its expected contents.
struct Bed {
    family: Family,
    work: Work,
    tree: Arc<dyn Tree>,
    durable: Durable,
    model: Model,
    sealed: Seqno,
    /// Number of rewritten segments.
    rewritten: u32,
    /// All transient segments seen.
    transient: BTreeSet<RunId>,
}

/// Values from 32 bytes are medium, from 588 large.
fn three_classes() -> Placement {
    Placement::by_value_bytes(Some(32), Some(588)).unwrap()
}

/// All values except the shortest are medium.
fn medium() -> Placement {
    Placement::by_value_bytes(Some(32), None).unwrap()
}

impl Bed {
    fn new(family: Family, placement: Placement) -> Self {
        let mut work = work_on(&*MemEnv::new(1), Arc::new(InlineExecutor));
        work.full_merge = MergeOperators::default().full_merge("k", Some("append"));
        let tree = open(family, placement, &work, &Objects::new());
        let (durable, model) = (Durable::default(), Model::new());
        let (sealed, rewritten, transient) = (Seqno(0), 0, BTreeSet::new());
        Self { family, work, tree, durable, model, sealed, rewritten, transient }
    }

    /// Applies the changes of the edit, and checks its reference counts.
    fn publish(&mut self, edit: TreeEdit) {
        self.durable.apply(&self.work.data, &edit.changes);
        self.tree = edit.tree;
        self.durable.check_references(&*self.tree);
        let transient: Vec<RunId> = self.transient_segments().map(|segment| segment.id()).collect();
        self.transient.extend(transient);
    }

    fn transient_segments(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.tree.value_segments().unwrap().iter().filter(|segment| segment.is_transient())
    }

    fn updates(&mut self, random: &mut SplitMix) -> Arc<VecUpdates> {
        let mut entries = BTreeMap::new();
        for _ in 0..1 + random.below(200) {
            let key = format!("key-{:04}", random.below(KEYS)).into_bytes();
            let (kind, value) = match random.below(10) {
                0..=5 => (Kind::Value, vec![b'v'; usize::try_from(random.below(2000)).unwrap()]),
                6 => (Kind::Value, vec![b'w'; usize::try_from(20 + random.below(25)).unwrap()]),
                7 => (Kind::Tombstone, Vec::new()),
                _ => (Kind::Operands, encode_operand(b"operand")),
            };
            entries.insert(key.clone(), OwnedEntry { key, kind, value });
        }
        for OwnedEntry { key, kind, value } in entries.values().cloned() {
            match kind {
                Kind::Tombstone => drop(self.model.remove(&key)),
                Kind::Operands => self.model.entry(key).or_default().extend_from_slice(b"operand"),
                _ => drop(self.model.insert(key, value)),
            }
        }
        self.sealed.0 += 10;
        Arc::new(VecUpdates::new(entries.into_values().collect(), self.sealed))
    }

    /// Applies values.
    fn set(&mut self, values: BTreeMap<Vec<u8>, Vec<u8>>) {
        let entry = |(key, value): (&Vec<u8>, &Vec<u8>)| OwnedEntry {
            key: key.clone(),
            kind: Kind::Value,
            value: value.clone(),
        };
        self.sealed.0 += 10;
        let updates = Arc::new(VecUpdates::new(values.iter().map(entry).collect(), self.sealed));
        self.model.extend(values);
        let edit = self.tree.apply(&self.work, updates).unwrap();
        self.publish(edit);
    }

    fn apply(&mut self, random: &mut SplitMix) {
        let updates = self.updates(random);
        let edit = if random.percent(20) {
            self.tree.apply_on_top(&self.work, updates)
        } else {
            self.tree.apply(&self.work, updates)
        };
        self.publish(edit.unwrap());
    }

    /// Checks the tree's answers: values, wherever they are.
    fn check(&self) {
        let value_of = |entry: &Entry<'_>| match entry.kind {
            Kind::Value => Some(entry.value.to_vec()),
            Kind::Tombstone => None,
            _ => Some(self.work.full_merge.merge(entry).unwrap()),
        };
        let mut seen = BTreeMap::new();
        let mut cursor = self.tree.cursor();
        let segments = self.tree.value_segments().unwrap();
        cursor.seek_first().unwrap();
        while let Some(entry) = cursor.entry() {
            let value = match entry.kind {
                Kind::Reference | Kind::UnmergedReference => {
                    let found = resolve(segments, &entry, Access::Blocking).unwrap();
                    let (kind, value, _) = found.unwrap();
                    value_of(&Entry { kind, value: &value, ..entry })
                }
                _ => value_of(&entry),
            };
            if let Some(value) = value {
                seen.insert(entry.key.to_vec(), value);
            }
            cursor.next().unwrap();
        }
        assert_eq!(seen, self.model);
        for (key, value) in &self.model {
            let found = self.tree.get(key, hash_key(key), Access::Blocking).unwrap();
            let Lookup::Found(kind, found, _) = found else { panic!("{found:?}") };
            assert_eq!(value_of(&Entry { key, kind, value: &found }).as_ref(), Some(value));
        }
        self.check_dead_values();
    }

    /// Checks that exactly the values to which entries refer are live.
    fn check_dead_values(&self) {
        let (objects, _) = split_objects(self.durable.objects.clone());
        let layout = match self.family {
            Family::BeTree(_) => testudo_betree::read_layout(objects),
            Family::Lsm => testudo_lsm::read_layout(objects),
        };
        let runs: BTreeMap<RunId, _> =
            self.tree.parts().into_iter().map(|Part::Run(run)| (run.reference().id, run)).collect();
        let mut referred: BTreeMap<RunId, Vec<u32>> = BTreeMap::new();
        for PartUse::Run(used) in layout.unwrap() {
            for bounds in used.counts_in {
                let cursor = RunCursor::new(Arc::clone(&runs[&used.reference.id]), ReadAhead::Adaptive);
                let mut cursor = BoundedCursor::new(cursor, bounds);
                cursor.seek_first().unwrap();
                while let Some(entry) = cursor.entry() {
                    if let Some(reference) = ValueReference::of(entry.kind, entry.value).unwrap() {
                        referred.entry(reference.segment).or_default().push(reference.number);
                    }
                    cursor.next().unwrap();
                }
            }
        }
        let live = self.tree.value_segments().unwrap().iter().map(|segment| {
            let dead = segment.dead();
            (segment.id(), (0..dead.count()).filter(|number| !dead.contains(*number)).collect())
        });
        let live: BTreeMap<RunId, Vec<u32>> = live.collect();
        referred.values_mut().for_each(|numbers| numbers.sort_unstable());
        assert_eq!(referred, live);
    }

    fn run_job(&mut self) -> bool {
        let request = JobRequest { is_idle: true, busy: &[], bytes_max: JOB_BYTES_MAX };
        let Some(job) = self.tree.pick_job(&request) else { return false };
        let prepared = self.prepare(&job);
        let edit = self.tree.install(&self.work, prepared).unwrap();
        self.publish(edit.expect("no update in between"));
        true
    }

    /// Prepares a job, and checks that it is within its bound.
    fn prepare(&mut self, job: &Job) -> Prepared {
        let bytes_max = self.tree.job_bytes_max(JOB_BYTES_MAX);
        let before = self.work.progress.state().1;
        let prepared = self.tree.prepare(&self.work, job).unwrap();
        let read = match job.target.of::<Target>() {
            Some(target) => {
                self.rewritten += 1;
                let segment = target.find(self.tree.value_segments().unwrap()).unwrap();
                segment.run().reference().user_bytes
            }
            None => self.work.progress.state().1 - before,
        };
        let is_bounded = matches!(self.family, Family::Lsm) || job.target.of::<Target>().is_some();
        assert!(
            read <= bytes_max || !is_bounded,
            "{} reads {read} bytes, up to {bytes_max} are allowed",
            job.what
        );
        prepared
    }
}

fn open(family: Family, placement: Placement, work: &Work, objects: &Objects) -> Arc<dyn Tree> {
    let (objects, segments) = split_objects(objects.clone());
    let tree: Arc<dyn Tree> = match family {
        Family::BeTree(policy) => {
            let options = BeTreeOptions { leaf_bytes: 4096, max_pivots: 4, ..BeTreeOptions::new(policy) };
            BeTree::open(options, &work.data, KEYSPACE, objects).unwrap()
        }
        Family::Lsm => {
            let options =
                LsmOptions { run_bytes: 4096, growth_factor: 2, level1_flushes: 1, ..LsmOptions::new() };
            LsmTree::open(options, &work.data, KEYSPACE, objects).unwrap()
        }
    };
    let settings = Settings { placement, segment_bytes: 16 << 10, watched: None };
    SeparatedTree::open(tree, settings, &work.data, KEYSPACE, &segments).unwrap()
}

const FAMILIES: [Family; 3] = [Family::BeTree(Policy::Turtle), Family::BeTree(Policy::Splinter), Family::Lsm];

#[test]
fn exactly_the_unreferenced_values_are_garbage_in_every_family() {
    let two_levels = three_classes().with_in_place_levels(2).unwrap();
    let placements = [Placement::separate(), three_classes(), two_levels];
    let beds = FAMILIES.into_iter().flat_map(|family| placements.map(|placement| (family, placement)));
    for (seed, (family, placement)) in (1..).zip(beds) {
        let mut random = SplitMix::new(seed);
        let mut bed = Bed::new(family, placement);
        for round in 0..60 {
            bed.apply(&mut random);
            if random.percent(40) {
                bed.run_job();
            }
            let limits = ReclaimLimits { space_bytes: 1 << 30, least_gain: LeastGain::Any, but: &[] };
            if random.percent(40)
                && let Some(reclaim) = bed.tree.pick_reclaim(&limits).unwrap()
            {
                bed.rewritten += u32::from(reclaim.target.of::<Target>().is_some());
                let edit = bed.tree.reclaim(&bed.work, &reclaim).unwrap();
                bed.publish(edit);
            }
            if random.percent(20) {
                bed.tree = open(family, placement, &bed.work, &bed.durable.objects);
            }
            if round % 10 == 9 {
                bed.check();
            }
        }
        while bed.run_job() {}
        bed.tree.check_invariants(true).unwrap();
        bed.check();
        assert!(bed.rewritten > 10, "{family:?}: {}", bed.rewritten);
        let totals = bed.tree.value_segments().unwrap().totals();
        assert!(totals.segments > 1 && totals.dead_bytes * 9 < totals.value_bytes, "{totals:?}");
        assert_eq!(bed.transient.is_empty(), placement == Placement::separate(), "{family:?}");
    }
}

/// Segments are rewritten while jobs of the inner tree are in flight, and the other way round.
#[test]
fn segments_are_rewritten_next_to_jobs_of_the_tree() {
    for (seed, placement) in (1..).zip([Placement::separate(), three_classes()]) {
        let mut random = SplitMix::new(seed);
        let mut bed = Bed::new(Family::Lsm, placement);
        let mut in_flight: Vec<(Scope, Prepared)> = Vec::new();
        let (mut installed, mut overtaken, mut both) = (0, 0, 0);
        for round in 0..300 {
            let busy: Vec<Scope> = in_flight.iter().map(|(scope, _)| scope.clone()).collect();
            let request = JobRequest { is_idle: true, busy: &busy, bytes_max: JOB_BYTES_MAX };
            match bed.tree.pick_job(&request).filter(|_| in_flight.len() < 4 && random.percent(60)) {
                Some(job) => {
                    assert!(busy.iter().all(|busy| !busy.overlaps(&job.scope)), "{job:?}: {busy:?}");
                    let prepared = bed.prepare(&job);
                    in_flight.push((job.scope, prepared));
                    let of_values = |(scope, _): &(Scope, Prepared)| *scope == of_values();
                    both += u32::from(in_flight.iter().any(of_values) && !in_flight.iter().all(of_values));
                }
                None if !in_flight.is_empty() => {
                    let at = usize::try_from(random.below(u64::try_from(in_flight.len()).unwrap())).unwrap();
                    let edit = bed.tree.install(&bed.work, in_flight.swap_remove(at).1).unwrap();
                    *(if edit.is_some() { &mut installed } else { &mut overtaken }) += 1;
                    edit.into_iter().for_each(|edit| bed.publish(edit));
                }
                None => {}
            }
            if random.percent(30) {
                bed.apply(&mut random);
            }
            if round % 20 == 0 {
                bed.tree.check_invariants(true).unwrap();
                bed.check();
            }
        }
        drop(in_flight);
        while bed.run_job() {}
        bed.tree.check_invariants(true).unwrap();
        bed.check();
        assert!(both > 20 && installed > 5 * overtaken, "{both}: {installed}, {overtaken}");
        assert!(bed.rewritten > 10, "{}", bed.rewritten);
    }
}

#[test]
fn transient_segments_are_freed_as_their_values_reach_the_bottom() {
    for family in FAMILIES {
        let mut random = SplitMix::new(3);
        let mut bed = Bed::new(family, medium());
        for _ in 0..100 {
            bed.apply(&mut random);
            while bed.run_job() {}
        }
        bed.check();
        let segments = bed.tree.value_segments().unwrap();
        assert!(segments.iter().all(|segment| segment.is_transient()));
        let (left, all) = (bed.transient_segments().count(), bed.transient.len());
        assert!(all > 20 && left < all, "{family:?}: {left} of {all} are left");
        let totals = segments.totals();
        assert!(totals.dead_bytes * 5 <= totals.value_bytes * 2, "{family:?}: {totals:?}");
    }
}

/// Few references are buffered, because each may keep a long garbage value live.
#[test]
fn overwritten_values_soon_count_as_garbage() {
    for family in FAMILIES {
        let mut random = SplitMix::new(6);
        let mut bed = Bed::new(family, Placement::separate());
        let tree: Arc<dyn Tree> = match family {
            Family::BeTree(policy) => {
                let sizes = BeTreeOptions { leaf_bytes: 4096, ..BeTreeOptions::new(policy) };
                BeTree::empty(sizes, &bed.work.data)
            }
            Family::Lsm => {
                LsmTree::empty(LsmOptions { run_bytes: 4096, ..LsmOptions::new() }, &bed.work.data)
            }
        };
        let settings = Settings { placement: Placement::separate(), segment_bytes: 16 << 10, watched: None };
        bed.tree = SeparatedTree::empty(tree, settings);
        let key = |number: u64| format!("key-{number:05}").into_bytes();
        for from in (0..3000).step_by(100) {
            bed.set((from..from + 100).map(|number| (key(number * 7 % 3000), vec![b'o'; 2000])).collect());
        }
        let mut most = 0.0_f64;
        for _ in 0..120 {
            bed.set((0..30).map(|_| (key(random.below(3000)), vec![b'n'; 2000])).collect());
            while let Some(job) = bed.tree.pick_job(&JobRequest::only(false)) {
                let prepared = bed.tree.prepare(&bed.work, &job).unwrap();
                let edit = bed.tree.install(&bed.work, prepared).unwrap();
                bed.publish(edit.unwrap());
            }
            let totals = bed.tree.value_segments().unwrap().totals();
            let counted_as_living = (totals.value_bytes - totals.dead_bytes) as f64;
            most = most.max(counted_as_living / (3000.0 * 2000.0));
        }
        bed.check();
        assert!(most < 1.25, "{family:?}: {most} of the live bytes");
    }
}

/// Bytes of medium separated values, summed over rounds of updates.
fn separated_bytes(
    family: Family,
    seed: u64,
    placement: Placement,
    (rounds, updates, keys): (u8, u32, u64),
    pair: impl Fn(u64, u8) -> (Vec<u8>, Vec<u8>),
) -> u64 {
    let mut random = SplitMix::new(seed);
    let mut bed = Bed::new(family, placement);
    let mut sum = 0;
    for round in 0..rounds {
        bed.set((0..updates).map(|_| pair(random.below(keys), round)).collect());
        while bed.run_job() {}
        let totals = bed.tree.value_segments().unwrap().totals();
        sum += totals.transient_bytes - totals.dead_transient_bytes;
    }
    bed.tree.check_invariants(true).unwrap();
    bed.check();
    sum
}

#[test]
fn two_in_place_levels_leave_fewer_values_separated() {
    // Keys are long, so that a reference is about as large as a pair: trees decide by the sizes of merged
    // entries.
    let pair = |n: u64, round| (format!("{n:04}{}", "k".repeat(60)).into_bytes(), vec![round; 40]);
    for family in FAMILIES {
        let [one, two] = [1, 2].map(|levels| {
            let placement = medium().with_in_place_levels(levels).unwrap();
            separated_bytes(family, 4, placement, (60, 200, 3000), pair)
        });
        assert!(two > 0 && two * 4 < one * 3, "{family:?}: {one} bytes with one level, {two} with two");
    }
}

#[test]
fn levels_sized_by_pairs_leave_fewer_values_separated() {
    // A reference takes a sixteenth of such a pair.
    let pair = |n: u64, round| (format!("{n:08}").into_bytes(), vec![round; 120]);
    let [by_references, by_pairs] = [false, true].map(|sizes_of_pairs| {
        let placement = medium().with_sizes_of_pairs(sizes_of_pairs);
        // Handover times differ: ratios from 0.67 to 0.84 with these seeds.
        (4..10).map(|seed| separated_bytes(Family::Lsm, seed, placement, (80, 100, 6000), pair)).sum::<u64>()
    });
    assert!(by_pairs * 20 < by_references * 17, "{by_references} bytes by references, {by_pairs} by pairs");
}

#[test]
fn a_held_state_keeps_its_values() {
    for family in FAMILIES {
        let mut random = SplitMix::new(5);
        let mut bed = Bed::new(family, three_classes());
        bed.apply(&mut random);
        let (held, model) = (Arc::clone(&bed.tree), bed.model.clone());
        for _ in 0..40 {
            bed.apply(&mut random);
            while bed.run_job() {}
        }
        for key in model.keys() {
            let found = held.get(key, hash_key(key), Access::Blocking).unwrap();
            assert!(matches!(found, Lookup::Found(..)), "{found:?}");
        }
    }
}

#[test]
fn values_overwritten_during_a_rewrite_are_garbage_afterwards() {
    for family in FAMILIES {
        let mut random = SplitMix::new(8);
        let mut bed = Bed::new(family, Placement::separate());
        let mut installed = 0;
        for _ in 0..80 {
            bed.apply(&mut random);
            let segments = bed.tree.value_segments().unwrap();
            let Some(target) = pick(segments, 0, true).map(|segment| Target::of(segment)) else { continue };
            let job =
                Job { what: "rewrite", debt_bytes: 1, scope: Scope::all(), target: Opaque::new(target) };
            let prepared = bed.tree.prepare(&bed.work, &job).unwrap();
            bed.apply(&mut random);
            if let Some(edit) = bed.tree.install(&bed.work, prepared).unwrap() {
                installed += 1;
                bed.publish(edit);
            }
        }
        bed.check();
        assert!(installed > 0, "{family:?}");
    }
}

#[test]
fn separated_updates_have_the_size_that_stays_with_the_keys() {
    let mut random = SplitMix::new(11);
    let mut bed = Bed::new(Family::Lsm, Placement::separate());
    let plain = loop {
        let plain = bed.updates(&mut random);
        if plain.count() > 100 {
            break plain as Arc<dyn Updates>;
        }
    };
    let updates = SeparatedUpdates::new(Arc::clone(&plain), Placement::separate()).unwrap();
    assert!(updates.bytes() * 10 < plain.bytes(), "{} of {}", updates.bytes(), plain.bytes());
    assert_eq!(updates.bytes() + updates.separated_bytes(), plain.bytes());
    let keys: Vec<_> = {
        let mut cursor = updates.cursor();
        cursor.seek_first().unwrap();
        std::iter::from_fn(|| {
            let key = cursor.entry()?.key.to_vec();
            cursor.next().unwrap();
            Some(key)
        })
        .collect()
    };
    let middle = &keys[keys.len() / 2];
    let parts = updates.bytes_between(None, Some(middle)) + updates.bytes_between(Some(middle), None);
    assert!(parts.abs_diff(updates.bytes()) <= 2, "{parts}");
    let one = updates.bytes_between(Some(&keys[0]), Some(&keys[1]));
    assert!(one > 0, "an entry has a size");
    let inline = SeparatedUpdates::new(plain, Placement::inline()).unwrap();
    assert_eq!(inline.separated_bytes(), 0);
}
