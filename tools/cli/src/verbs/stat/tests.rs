//! Which group shows which statistic.

use std::collections::BTreeMap;

use testudo::{DbStats, KeyspaceStats};

use super::{GROUPS, OTHER, group_of, stats_of};

/// Names of all statistics, of stores and of keyspaces.
fn names() -> Vec<String> {
    let of_store = stats_of(&DbStats::default()).unwrap();
    let of_keyspace = stats_of(&KeyspaceStats::default()).unwrap();
    of_store.into_iter().chain(of_keyspace).map(|(name, _)| name).collect()
}

#[test]
fn every_statistic_has_a_group_and_every_prefix_a_statistic() {
    let names = names();
    let ungrouped: Vec<_> = names.iter().filter(|name| group_of(name) == OTHER).collect();
    assert!(ungrouped.is_empty(), "no group takes {ungrouped:?}");
    for start in GROUPS.iter().flat_map(|(_, starts)| *starts) {
        assert!(names.iter().any(|name| name.starts_with(start)), "no statistic begins with {start:?}");
    }
}

#[test]
fn statistics_of_flushes_and_of_the_reserve_are_not_shown_as_state() {
    let mut groups: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for name in names() {
        groups.entry(group_of(&name)).or_default().push(name);
    }
    let state = [
        "seqno",
        "durable_seqno",
        "flushed_seqno",
        "keyspaces",
        "snapshots",
        "tree",
        "height",
        "nodes",
        "leaves",
        "buffered_runs",
        "buffered_bytes",
        "leaf_bytes",
        "entries",
        "tombstones",
    ];
    groups.get_mut("state").unwrap().sort();
    let mut expected: Vec<_> = state.map(str::to_owned).into();
    expected.sort();
    assert_eq!(groups["state"], expected);
    for name in ["flush_apply_micros", "max_flush_micros", "flushed_bytes"] {
        assert_eq!(group_of(name), "background", "{name}");
    }
    for name in ["reserve_bytes", "whole_reserve_bytes"] {
        assert_eq!(group_of(name), "space", "{name}");
    }
    assert_eq!(group_of("record_due_bytes"), "memory");
}
