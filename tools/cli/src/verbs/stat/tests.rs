//! Groups of statistics.

use testudo::{DbStats, KeyspaceStats};

use super::{GROUPS, OTHER, group_of, stats_of};

/// Names of all statistics, of stores and of keyspaces.
fn names() -> Vec<String> {
    let of_store = stats_of(&DbStats::default()).unwrap();
    let of_keyspace = stats_of(&KeyspaceStats::default()).unwrap();
    of_store.into_iter().chain(of_keyspace).map(|(name, _)| name).collect()
}

#[test]
fn every_statistic_has_a_group_and_every_prefix_matches() {
    let names = names();
    let ungrouped: Vec<_> = names.iter().filter(|name| group_of(name) == OTHER).collect();
    assert!(ungrouped.is_empty(), "no group contains {ungrouped:?}");
    for start in GROUPS.iter().flat_map(|(_, starts)| *starts) {
        assert!(names.iter().any(|name| name.starts_with(start)), "no statistic begins with {start:?}");
    }
}

#[test]
fn flush_and_reserve_statistics_are_in_the_expected_groups() {
    for name in ["flush_apply_micros", "max_flush_micros", "flushed_bytes"] {
        assert_eq!(group_of(name), "background", "{name}");
    }
    for name in ["reserve_bytes", "whole_reserve_bytes"] {
        assert_eq!(group_of(name), "space", "{name}");
    }
    assert_eq!(group_of("record_due_bytes"), "memory");
}
