//! Writes what is left of each keyspace into the target, and adds up the report.
//!
//! `keyspace_writer.rs` writes a keyspace; what becomes of a key is decided in `decide.rs`.

use std::collections::{BTreeMap, BTreeSet};

use testudo_base::{KeyspaceId, Result};

use crate::{
    Keyspace, KeyspaceOptions, SalvageOptions,
    check::salvage::{
        decide::LogReach,
        evidence::Evidence,
        keyspace_writer::{KeyspaceWriter, Older, keyspace_like},
        log::SortedLog,
        logged_values::LoggedValues,
        plan::{KeyspacePlan, Plan},
        report::{KeyspaceSalvage, NameSource, SalvageReport},
        target::Target,
    },
    copy::long_work::Meter,
    store::names_beside::name_beside,
};

/// Writes everything; the report.
pub(crate) fn write_all(
    options: &SalvageOptions,
    target: &Target,
    evidence: Evidence,
    plan: Plan,
    (log, values): (SortedLog, LoggedValues),
    meter: &mut Meter<'_, '_>,
) -> Result<SalvageReport> {
    let SortedLog { scratch: mut operations_of, whole_after, report: log } = log;
    let mut report = SalvageReport {
        store: format!("{:032x}", evidence.store.0),
        method: plan.method,
        findings: evidence.findings,
        unproven: plan.unproven,
        log,
        ..SalvageReport::default()
    };
    let taken = names_of(&plan.keyspaces);
    for (id, mut keyspace) in plan.keyspaces {
        let settings = settings_of(&keyspace, options);
        let into = keyspace_like(target, &keyspace.name, &settings)?;
        let reach = LogReach { flushed: keyspace.flushed, whole_after };
        let older = if options.older_versions {
            Older::Among
        } else {
            let name = name_beside(&keyspace.name, id.0, &taken);
            Older::Beside { name, options: settings, keyspace: None }
        };
        let writer = KeyspaceWriter::new(target, into, reach, older, empty_report(id, &keyspace));
        let operations = operations_of.remove(&id);
        let source = (evidence.data.clone(), evidence.store);
        report.keyspaces.push(writer.write(&mut keyspace, source, &values, operations.as_ref(), meter)?);
        operations.map_or(Ok(()), |scratch| drop_scratch(target, scratch))?;
    }
    values.drop_scratch(target)?;
    target.db.flush()?;
    Ok(report)
}

fn names_of(keyspaces: &BTreeMap<KeyspaceId, KeyspacePlan>) -> BTreeSet<String> {
    keyspaces.values().map(|keyspace| keyspace.name.clone()).collect()
}

/// The settings of the keyspace in the target.
fn settings_of(keyspace: &KeyspacePlan, options: &SalvageOptions) -> KeyspaceOptions {
    let is_described = keyspace.name_from == NameSource::Manifest;
    match &options.merge_operator {
        Some(name) if !is_described => keyspace.options.merge_operator(name),
        _ => keyspace.options,
    }
}

/// The report of a keyspace of which nothing is written yet.
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

/// Drops the keyspace that held the log's operations on another one.
fn drop_scratch(target: &Target, scratch: Keyspace) -> Result<()> {
    let name = scratch.name().to_owned();
    drop(scratch);
    target.db.drop_keyspace(&name)?;
    Ok(())
}
