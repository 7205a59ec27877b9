//! Determines the keyspaces, and the runs that hold their content.
//!
//! **Invariants**
//! - With a complete manifest exactly its runs are used, each for exactly the keys its tree assigns to it.
//! - Otherwise all runs found are used; ages and covered ranges decide between them. Fragments of runs
//!   without a footer are used where no later run covers them.
//! - A run of numbered values is not a source: its keys are not user keys.

use std::collections::{BTreeMap, BTreeSet};

use testudo_base::{ExtentSpan, KeyspaceId, PAGE_BYTES, Result, RunId, Seqno, codec::Damage, sync::Arc};
use testudo_contract::PartUse;
use testudo_options::{
    StoredOptions,
    stored_tree::{Objects, stored_layout},
};
use testudo_run::{KeyBounds, KeyEnds, ReplacedPages, RunRecord, RunRef, Writing};
use testudo_storage::manifest_file_name;
use testudo_store::long_work::Meter;

use crate::salvage::{
    evidence::Evidence,
    key_ranges::{Age, CoveredRange, uncovered},
    page_scan::{self, Found, Fragment},
    report::{NameSource, SalvageMethod},
};

/// A run, or a fragment of one, to read.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) reference: RunRef,
    /// The keys for which it is used; `None`: all.
    pub(crate) counts_in: Option<Vec<KeyBounds>>,
    /// A fragment of a run that lost its footer: its age is unknown.
    pub(crate) is_orphan: bool,
    /// It holds values that other runs refer to, so it is never superseded as a whole.
    pub(crate) is_value_segment: bool,
}

impl Source {
    pub(crate) fn age(&self) -> Age {
        (self.reference.newest_seqno, self.reference.version())
    }

    /// Whether an entry of it with this key is used, covered ranges aside.
    pub(crate) fn counts_for(&self, key: &[u8]) -> bool {
        self.counts_in.as_ref().is_none_or(|bounds| bounds.iter().any(|bounds| bounds.contains(key)))
    }
}

/// A run that stores values by number.
#[derive(Clone, Debug)]
pub(crate) struct LoggedSource {
    /// Segment id in references; without a manifest only its entries tell.
    pub(crate) segment: RunId,
    pub(crate) reference: RunRef,
    /// Values were still being appended: some of its pages may never have been written.
    pub(crate) is_open: bool,
}

/// Plan of a keyspace.
#[derive(Clone, Debug)]
pub(crate) struct KeyspacePlan {
    pub(crate) name: String,
    pub(crate) name_from: NameSource,
    pub(crate) options: StoredOptions,
    /// The trees hold everything up to this seqno.
    pub(crate) flushed: Seqno,
    pub(crate) sources: Vec<Source>,
    /// Runs that store values by number.
    pub(crate) logged: Vec<LoggedSource>,
    /// Sorted by lower bound.
    pub(crate) authorities: Vec<CoveredRange>,
}

/// Plan of the salvage.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) method: SalvageMethod,
    pub(crate) keyspaces: BTreeMap<KeyspaceId, KeyspacePlan>,
    /// Dropped keyspaces.
    pub(crate) dropped: BTreeSet<KeyspaceId>,
    /// Ids below this one that are not in the manifest's catalogue were dropped.
    pub(crate) known_below: KeyspaceId,
    /// Everything up to this seqno is known to have been durable.
    pub(crate) proven: Seqno,
    pub(crate) unproven: Option<String>,
}

/// Plans the salvage.
pub(crate) fn make(evidence: &mut Evidence, meter: &mut Meter<'_, '_>) -> Result<Plan> {
    let mut plan = Plan::new(evidence);
    if !(evidence.manifest_counts && plan.take_layouts(evidence)) {
        plan.method = SalvageMethod::Scan;
        plan.unproven = Some(
            "no manifest lists the runs: a run without a footer, or a keyspace without runs, leaves no \
             trace, and older \
             versions may appear where such a run had newer ones"
                .to_owned(),
        );
        if let Some(data) = &evidence.data {
            let file = (&**data, evidence.data_bytes);
            let found = page_scan::scan(file, evidence.store, &BTreeMap::new(), meter)?;
            plan.take_found(found);
        }
        plan.compare_with_log(evidence);
    } else {
        let lost = plan.read_maps(evidence);
        if let Some(data) = evidence.data.as_ref().filter(|_| !lost.is_empty()) {
            let found = page_scan::scan((&**data, evidence.data_bytes), evidence.store, &lost, meter)?;
            plan.replace_mapless(&found);
            plan.unproven = Some(
                "the map of a run is lost: older versions may appear where a replaced page is lost, too"
                    .to_owned(),
            );
        }
    }
    if plan.unproven.is_none() && !evidence.log_findings.is_empty() {
        let findings = evidence.log_findings.join("; ");
        plan.unproven = Some(format!("commits may be lost without other evidence: {findings}"));
    }
    plan.note_proven();
    for keyspace in plan.keyspaces.values_mut() {
        // Sorted so that the next source to open is the last one.
        keyspace.sources.sort_by(|a, b| b.reference.keys.first().cmp(a.reference.keys.first()));
    }
    debug_assert!(plan.proven >= evidence.watermark.seqno, "proofs only add up");
    let total = plan.source_bytes() + evidence.log.segments().iter().map(|s| s.bytes).sum::<u64>();
    meter.expect_more(total);
    plan.name_uniquely();
    Ok(plan)
}

impl Plan {
    fn new(evidence: &mut Evidence) -> Self {
        let mut plan = Self {
            method: SalvageMethod::Manifest,
            keyspaces: BTreeMap::new(),
            dropped: BTreeSet::new(),
            known_below: KeyspaceId(0),
            proven: evidence.watermark.seqno,
            unproven: None,
        };
        plan.take_catalogue(evidence);
        plan
    }

    /// The plan from the manifest, if that is complete.
    pub(crate) fn of_manifest(evidence: &mut Evidence) -> Option<Self> {
        let mut plan = Self::new(evidence);
        let counts = evidence.manifest_counts && plan.take_layouts(evidence);
        plan.read_maps(evidence);
        plan.note_proven();
        counts.then_some(plan)
    }

    /// Reads the maps of runs. Returns the runs whose maps are lost, with the generation of their newest
    /// pages.
    fn read_maps(&mut self, evidence: &mut Evidence) -> BTreeMap<RunId, RunId> {
        let mut lost = BTreeMap::new();
        let Some(data) = evidence.data.clone() else { return lost };
        for source in self.keyspaces.values_mut().flat_map(|keyspace| &mut keyspace.sources) {
            if let Err(Damage(why)) = source.reference.read_map(&*data, evidence.store) {
                let id = source.reference.id;
                evidence.findings.push(format!(
                    "data: the map of run {id} cannot be read: {why}; its replaced pages are searched"
                ));
                lost.insert(id, source.reference.version());
            }
        }
        lost
    }

    /// Uses the found pages of runs whose maps are lost.
    fn replace_mapless(&mut self, found: &Found) {
        for source in self.keyspaces.values_mut().flat_map(|keyspace| &mut keyspace.sources) {
            if !source.reference.has_known_places()
                && let Some(record) = found.runs.get(&source.reference.id)
            {
                source.reference = record.reference.clone();
            }
        }
    }

    /// Detects missing runs: trees hold everything before the start of the log, so runs that end earlier are
    /// not the newest ones.
    fn compare_with_log(&mut self, evidence: &Evidence) {
        let Some(first) = evidence.log.first_seqno(evidence.store) else { return };
        let Seqno(newest) = self.newest_run_seqno();
        if let Some(unproven) = self.unproven.as_mut().filter(|_| first.0 > newest.saturating_add(1)) {
            let more = format!(
                "; runs are missing: the log begins at operation {first}, but the runs found \
                 end at {newest}"
            );
            unproven.push_str(&more);
        }
    }

    fn newest_run_seqno(&self) -> Seqno {
        let sources = self.keyspaces.values().flat_map(|keyspace| &keyspace.sources);
        sources.map(|source| source.reference.newest_seqno).max().unwrap_or_default()
    }

    /// The content of a run was durable in the log before.
    fn note_proven(&mut self) {
        self.proven = self.proven.max(self.newest_run_seqno());
    }

    fn source_bytes(&self) -> u64 {
        let keyspaces = self.keyspaces.values();
        let references = keyspaces.flat_map(|keyspace| {
            let logged = keyspace.logged.iter().map(|source| &source.reference);
            keyspace.sources.iter().map(|source| &source.reference).chain(logged)
        });
        references.map(|reference| u64::from(reference.data_pages) * PAGE_BYTES).sum()
    }

    fn take_catalogue(&mut self, evidence: &mut Evidence) {
        let Some(manifest) = &evidence.manifest else { return };
        self.dropped.clone_from(&manifest.dropped);
        self.known_below = manifest.state.next_keyspace;
        let mut decoded = Vec::new();
        for (&id, record) in &manifest.keyspaces {
            let options = StoredOptions::decode(&record.options).unwrap_or_else(|why| {
                let file = manifest_file_name(manifest.number);
                evidence.findings.push(why.into_error(&file, id).to_string());
                // Without its options, the tree's objects cannot be interpreted.
                evidence.manifest_counts = false;
                StoredOptions::default()
            });
            decoded.push((id, record, options));
        }
        for (id, record, options) in decoded {
            let flushed = if evidence.manifest_counts { record.flushed } else { Seqno(0) };
            let plan = KeyspacePlan {
                options,
                flushed,
                ..KeyspacePlan::new(record.name.clone(), NameSource::Manifest)
            };
            self.keyspaces.insert(id, plan);
        }
    }

    /// Takes the runs of the manifest's trees; `false` if those are inconsistent.
    fn take_layouts(&mut self, evidence: &mut Evidence) -> bool {
        let Some(manifest) = &evidence.manifest else { return false };
        let mut layouts = BTreeMap::new();
        for (&id, keyspace) in &self.keyspaces {
            let objects = manifest.state.objects_of(id);
            let layout = stored_logged(&objects).and_then(|logged| {
                let layout = stored_layout(&keyspace.options, objects)?;
                Ok((layout, logged))
            });
            match layout {
                Ok(layout) => layouts.insert(id, layout),
                Err(Damage(why)) => {
                    evidence.findings.push(format!("manifest: tree of keyspace {id}: {why}"));
                    self.keyspaces.values_mut().for_each(|keyspace| keyspace.flushed = Seqno(0));
                    return false;
                }
            };
        }
        for (id, (layout, logged)) in layouts {
            let Some(keyspace) = self.keyspaces.get_mut(&id) else { continue };
            let of_logged: BTreeSet<RunId> = logged.iter().map(|source| source.reference.id).collect();
            let layout =
                layout.into_iter().filter(|PartUse::Run(run)| !of_logged.contains(&run.reference.id));
            keyspace.sources.extend(layout.map(|PartUse::Run(run)| Source {
                reference: run.reference,
                counts_in: Some(run.counts_in),
                is_orphan: false,
                is_value_segment: false,
            }));
            keyspace.logged.extend(logged);
        }
        true
    }

    /// The plan of a keyspace, which may be missing from the manifest; `None` if it was dropped.
    pub(crate) fn keyspace(&mut self, id: KeyspaceId) -> Option<&mut KeyspacePlan> {
        if self.dropped.contains(&id) || (id < self.known_below && !self.keyspaces.contains_key(&id)) {
            return None;
        }
        if id >= self.known_below && self.method == SalvageMethod::Manifest {
            let why = "the log writes to keyspaces unknown to the manifest, which is older than the log";
            self.unproven.get_or_insert_with(|| why.to_owned());
        }
        let invented = || KeyspacePlan::new(format!("recovered-{id}"), NameSource::Invented);
        Some(self.keyspaces.entry(id).or_insert_with(invented))
    }

    fn take_found(&mut self, found: Found) {
        for (id, record) in found.runs {
            let Some(keyspace) = self.keyspace(record.reference.keyspace) else { continue };
            keyspace.take_run(record, found.logged.contains(&id));
        }
        for keyspace in self.keyspaces.values_mut() {
            keyspace.authorities.sort_by(|a, b| a.bounds.low.cmp(&b.bounds.low));
            debug_assert!(
                keyspace.authorities.is_sorted_by(|a, b| a.bounds.low <= b.bounds.low),
                "covered ranges are sorted by their lower bounds"
            );
            keyspace.drop_superseded();
        }
        for fragment in found.orphans {
            let Some(keyspace) = self.keyspace(fragment.keyspace) else { continue };
            keyspace.take_orphan(fragment);
        }
    }

    fn name_uniquely(&mut self) {
        let mut names = BTreeSet::new();
        for (id, keyspace) in self.keyspaces.iter_mut().rev() {
            if !names.insert(keyspace.name.clone()) {
                (keyspace.name, keyspace.name_from) = (format!("recovered-{id}"), NameSource::Invented);
                names.insert(keyspace.name.clone());
            }
        }
        debug_assert!(names.len() <= self.keyspaces.len(), "a name for each keyspace");
    }
}

impl KeyspacePlan {
    fn new(name: String, name_from: NameSource) -> Self {
        Self {
            name,
            name_from,
            options: StoredOptions::default(),
            flushed: Seqno(0),
            sources: Vec::new(),
            logged: Vec::new(),
            authorities: Vec::new(),
        }
    }

    fn take_run(&mut self, record: RunRecord, is_logged: bool) {
        let RunRecord { reference, keyspace_name, covered_range, is_value_segment, .. } = record;
        if self.name_from == NameSource::Invented && !keyspace_name.is_empty() {
            (self.name, self.name_from) = (keyspace_name, NameSource::Run);
        }
        if is_logged {
            self.logged.push(LoggedSource { segment: reference.id, reference, is_open: false });
            return;
        }
        if let Some(bounds) = covered_range {
            let age = (reference.newest_seqno, reference.version());
            self.authorities.push(CoveredRange { bounds, age });
        }
        self.sources.push(Source { reference, counts_in: None, is_orphan: false, is_value_segment });
    }

    /// Drops runs that newer bottom runs cover completely.
    fn drop_superseded(&mut self) {
        let authorities = &self.authorities;
        self.sources.retain(|source| {
            let range = range_of(&source.reference);
            source.is_value_segment
                || !uncovered(&range, authorities, |covered_range| covered_range.age > source.age())
                    .is_empty()
        });
    }

    /// Takes a fragment of a run without a footer, as far as no later bottom run covers it.
    fn take_orphan(&mut self, fragment: Fragment) {
        let Some((first_key, last_key)) = fragment.keys else { return };
        let span = ExtentSpan { first_page: fragment.first_page, page_count: fragment.page_count };
        let writing = Writing { generation: fragment.run, incarnation: fragment.incarnation };
        let reference = RunRef {
            id: fragment.run,
            keyspace: fragment.keyspace,
            incarnation: fragment.incarnation,
            newest_seqno: Seqno(0),
            spans: vec![span],
            data_pages: fragment.page_count,
            footer_page: fragment.page_count,
            footer_pages: 0,
            entries: 0,
            tombstones: 0,
            user_bytes: 0,
            keys: KeyEnds::of(&first_key, &last_key),
            spare_end: 0,
            has_continued_values: false,
            replaced: fragment.is_replaced.then(|| Arc::new(ReplacedPages::lone_page(writing))),
        };
        if fragment.is_logged {
            self.logged.push(LoggedSource { segment: reference.id, reference, is_open: true });
            return;
        }
        let is_later = |covered_range: &CoveredRange| later_run(covered_range, fragment.run);
        let left = uncovered(&range_of(&reference), &self.authorities, is_later);
        if !left.is_empty() {
            let counts_in = Some(left);
            self.sources.push(Source { reference, counts_in, is_orphan: true, is_value_segment: false });
        }
    }
}

/// The runs of a keyspace that store values by number.
fn stored_logged(objects: &Objects) -> std::result::Result<Vec<LoggedSource>, Damage> {
    let segments = testudo_separated::logged_runs(objects)?.into_iter();
    let segments = segments.map(|(segment, reference)| LoggedSource { segment, reference, is_open: false });
    let open = testudo_separated::value_logs(objects)?.into_iter();
    let open = open.map(|log| LoggedSource { segment: log.id, reference: log.as_run(), is_open: true });
    Ok(segments.chain(open).collect())
}

fn later_run(covered_range: &CoveredRange, run: RunId) -> bool {
    covered_range.age.1 > run
}

/// All keys from the first to the last one of a run.
pub(crate) fn range_of(reference: &RunRef) -> KeyBounds {
    reference.keys.bounds()
}
