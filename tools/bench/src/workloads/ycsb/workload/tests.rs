use clap::ValueEnum;

use super::Shape;
use crate::Workload;

#[test]
fn only_f_has_read_modify_writes() {
    for workload in Workload::value_variants() {
        if let Shape::Mixed(mix) = workload.shape() {
            let named = mix.reads + mix.updates + mix.removals + mix.inserts + mix.scans + mix.absent;
            let expected = if *workload == Workload::F { 50 } else { 100 };
            assert_eq!(named, expected, "{}", workload.name());
        }
    }
}

#[test]
fn updates_records_matches_the_mix() {
    for workload in Workload::value_variants() {
        let updates = match workload.shape() {
            Shape::Mixed(mix) => mix.updates > 0 || mix.reads + mix.inserts + mix.scans + mix.absent < 100,
            Shape::Fill | Shape::Batches | Shape::FullScan | Shape::Removals(_) => false,
        };
        let updates = updates || workload.has_updates_beside();
        assert_eq!(workload.updates_records(), updates, "{}", workload.name());
    }
}
