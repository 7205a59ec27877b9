//! Writes the recovered content of each keyspace into the target, and assembles the report.
//!
//! `keyspace_writer.rs` writes a keyspace; `decide.rs` decides each key's version. Long values are
//! written before user keyspaces.

use std::collections::{BTreeMap, BTreeSet};

use testudo_base::{KeyspaceId, Result, Seqno};
use testudo_db::{
    Keyspace,
    maintenance::{core_of, keyspace_of, store_of},
};
use testudo_options::KeyspaceOptions;
use testudo_store::{
    long_work::Meter,
    values::{long_values::LONG_VALUES_KEYSPACE, names_beside::name_beside},
};

use crate::salvage::{
    SalvageOptions,
    decide::LogReach,
    evidence::Evidence,
    keyspace_writer::{KeyspaceWriter, Older, keyspace_like},
    log::SortedLog,
    logged_values::LoggedValues,
    long_values::SalvagedLongValues,
    plan::{KeyspacePlan, Plan},
    report::{KeyspaceSalvage, NameSource, SalvageReport},
    sweep::SourceFile,
    target::Target,
    values::SalvagedValues,
};

/// Everything that was read of the source.
pub(crate) struct Recovered {
    pub(crate) evidence: Evidence,
    pub(crate) plan: Plan,
    pub(crate) log: SortedLog,
    /// Values stored by number.
    pub(crate) values: LoggedValues,
}

/// Writes everything and returns the report.
pub(crate) fn write_all(
    options: &SalvageOptions<'_>,
    target: &Target,
    recovered: Recovered,
    meter: &mut Meter<'_, '_>,
) -> Result<SalvageReport> {
    let Recovered { evidence, mut plan, log, values: logged } = recovered;
    let SortedLog { scratch, whole_after, report: log } = log;
    // A sweep would remove values whose keys are not written yet.
    let _no_sweep = store_of(&target.db).long_values.begin_sweep();
    let mut report = SalvageReport {
        store: format!("{:032x}", evidence.store.0),
        method: plan.method,
        findings: evidence.findings,
        unproven: plan.unproven,
        ..SalvageReport::default()
    };
    let source = SourceFile { data: evidence.data, store: evidence.store };
    let taken = names_of(&plan.keyspaces);
    let long = plan.keyspaces.iter().find(|(_, keyspace)| keyspace.name == LONG_VALUES_KEYSPACE);
    let long = long.map(|(id, _)| *id).and_then(|id| plan.keyspaces.remove_entry(&id));
    let mut site = Site { options, target, source, whole_after, operations_of: scratch, taken, meter };
    let mut values = SalvagedValues { logged, long: SalvagedLongValues::default() };
    let of_long = long.map(|keyspace| site.write(keyspace, &values)).transpose()?;
    let keyspace = store_of(&target.db).long_values.keyspace().map(|core| keyspace_of(&target.db, core));
    let lost = of_long.map(|report| report.lost_ranges).unwrap_or_default();
    values.long = SalvagedLongValues::new(keyspace, lost, &log);
    for keyspace in plan.keyspaces {
        report.keyspaces.push(site.write(keyspace, &values)?);
    }
    values.logged.drop_scratch(target)?;
    values.long.remove_dead(target)?;
    target.db.flush()?;
    Ok(SalvageReport { log, ..report })
}

/// State shared by all keyspaces.
struct Site<'s, 'm, 'o> {
    options: &'s SalvageOptions<'s>,
    target: &'s Target,
    source: SourceFile,
    whole_after: Seqno,
    operations_of: BTreeMap<KeyspaceId, Keyspace>,
    /// Keyspace names in the source.
    taken: BTreeSet<String>,
    meter: &'s mut Meter<'m, 'o>,
}

impl Site<'_, '_, '_> {
    /// Writes the recovered content of a keyspace.
    fn write(
        &mut self,
        (id, mut keyspace): (KeyspaceId, KeyspacePlan),
        values: &SalvagedValues,
    ) -> Result<KeyspaceSalvage> {
        let settings = settings_of(&keyspace, self.options);
        let into = keyspace_like(self.target, &keyspace.name, &settings)?;
        store_of(&self.target.db).long_values.adopt(core_of(&into));
        let reach = LogReach { flushed: keyspace.flushed, whole_after: self.whole_after };
        // Entries of this keyspace have only one version.
        let older = if self.options.older_versions || keyspace.name == LONG_VALUES_KEYSPACE {
            Older::Among
        } else {
            let name = name_beside(&keyspace.name, id.0, &self.taken);
            Older::Beside { name, options: settings, keyspace: None }
        };
        let writer = KeyspaceWriter::new(self.target, into, reach, older, empty_report(id, &keyspace));
        let operations = self.operations_of.remove(&id);
        let written = writer.write(&mut keyspace, &self.source, values, operations.as_ref(), self.meter)?;
        operations.map_or(Ok(()), |scratch| drop_scratch(self.target, scratch))?;
        Ok(written)
    }
}

fn names_of(keyspaces: &BTreeMap<KeyspaceId, KeyspacePlan>) -> BTreeSet<String> {
    keyspaces.values().map(|keyspace| keyspace.name.clone()).collect()
}

/// The options of the keyspace in the target.
fn settings_of(keyspace: &KeyspacePlan, options: &SalvageOptions<'_>) -> KeyspaceOptions {
    let is_described = keyspace.name_from == NameSource::Manifest;
    match &options.merge_operator {
        Some(name) if !is_described => keyspace.options.merge_operator(name),
        _ => keyspace.options.chosen(),
    }
}

/// An empty report for a keyspace.
fn empty_report(id: KeyspaceId, keyspace: &KeyspacePlan) -> KeyspaceSalvage {
    KeyspaceSalvage {
        id: id.0,
        name: keyspace.name.clone(),
        name_from: keyspace.name_from,
        records: 0,
        bytes: 0,
        uncertain_records: 0,
        older_records: 0,
        older_keyspace: None,
        lost_ranges: Vec::new(),
    }
}

/// Drops the scratch keyspace with the log's operations on another one.
fn drop_scratch(target: &Target, scratch: Keyspace) -> Result<()> {
    let name = scratch.name().to_owned();
    drop(scratch);
    target.db.drop_keyspace(&name)?;
    Ok(())
}
