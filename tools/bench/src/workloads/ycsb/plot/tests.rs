use super::write_charts;
use crate::report::{Report, histogram::Percentiles};

#[test]
fn charts_show_every_workload() {
    let report = |name: &str, ops_per_second| Report {
        workload: name.to_owned(),
        ops_per_second,
        latency_us: Percentiles { p50: 0.5, p99: 12.0, p999: 400.0, max: 30_000.0, ..Percentiles::default() },
        ..Report::default()
    };
    let dir = tempfile::tempdir().unwrap();
    let inside = dir.path().join("charts");
    write_charts(&inside, &[report("load", 1e6), report("c", 0.0)]).unwrap();
    for name in ["throughput.svg", "latency.svg"] {
        let chart = std::fs::read_to_string(inside.join(name)).unwrap();
        assert!(chart.contains(">load<") && chart.contains(">c<") && chart.ends_with("</svg>\n"));
        assert!(!chart.contains("NaN") && !chart.contains("inf"), "{chart}");
    }
}
