use clap::ValueEnum;

use super::Shape;
use crate::Workload;

fn all_workloads() -> impl Iterator<Item = Workload> {
    Workload::value_variants().iter().copied().chain([Workload::RangeScan(10)])
}

#[test]
fn only_f_has_read_modify_writes() {
    for workload in all_workloads() {
        if let Shape::Mixed(mix) = workload.shape() {
            let named = mix.reads + mix.updates + mix.removals + mix.inserts + mix.scans + mix.absent;
            let expected = if workload == Workload::F { 50 } else { 100 };
            assert_eq!(named, expected, "{}", workload.name());
        }
    }
}

#[test]
fn updates_records_matches_the_mix() {
    for workload in all_workloads() {
        let updates = match workload.shape() {
            Shape::Mixed(mix) => mix.updates > 0 || mix.reads + mix.inserts + mix.scans + mix.absent < 100,
            Shape::Fill | Shape::Batches | Shape::FullScan | Shape::Removals(_) | Shape::Queues => false,
        };
        let updates = updates || workload.has_updates_beside();
        assert_eq!(workload.updates_records(), updates, "{}", workload.name());
    }
}
