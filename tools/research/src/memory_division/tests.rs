use super::*;

fn plan(case: &'static str) -> Plan {
    let sizes = Sizes {
        memory_bytes: 256 * PAGE_BYTES,
        records: 2560 * RECORDS_PER_PAGE,
        records_per_page: RECORDS_PER_PAGE,
        record_bytes: RECORD_BYTES + RECORD_OVERHEAD,
    };
    Plan { sizes, operations: 160_000, phases: vec![(case, source_of(case, &sizes))] }
}

fn page_reads(case: &'static str, subject: &str) -> f64 {
    let (_, policy) = POLICIES.into_iter().find(|(name, _)| *name == subject).unwrap();
    simulate(&plan(case), policy)[0].page_reads
}

#[test]
fn steady_state_is_the_last_quarter() {
    let windows = [4.0, 2.0, 1.04, 1.2, 1.0, 1.0, 1.0, 1.0];
    assert_eq!(steady_state(&windows), (1.0, 3));
}

#[test]
fn moving_border_is_close_to_the_best_fixed_one() {
    for case in ["zipfian", "clustered", "range", "scans", "uniform"] {
        let fixed = ["fixed-0", "fixed-25", "fixed-45", "fixed-60", "fixed-75", "fixed-90"];
        let best = fixed.map(|subject| page_reads(case, subject)).into_iter().fold(f64::MAX, f64::min);
        let moving = page_reads(case, "ghosts");
        assert!(moving < best * 1.03 + 0.001, "{case}: {moving} for {best}");
    }
}

#[test]
fn fixed_borders_differ_widely() {
    assert!(page_reads("zipfian", "fixed-90") < 0.75 * page_reads("zipfian", "fixed-0"));
    assert!(page_reads("clustered", "fixed-0") < 0.95 * page_reads("clustered", "fixed-90"));
    assert!(page_reads("large-range", "fixed-0") < 0.2 * page_reads("large-range", "fixed-45"));
}
