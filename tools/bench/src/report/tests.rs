use super::Report;

/// Field names that other tools depend on.
const CONTRACT: [&str; 21] = [
    "engine",
    "tree",
    "workload",
    "records",
    "threads",
    "memory_bytes",
    "ops",
    "seconds",
    "ops_per_second",
    "latency_us",
    "user_bytes_written",
    "device_bytes_written",
    "device_bytes_read",
    "write_amplification",
    "read_amplification",
    "space_amplification",
    "peak_rss_bytes",
    "cpu_seconds",
    "wrong_answers",
    "max_stall_ms",
    "cpu_us_per_op",
];

#[test]
fn json_line_has_all_documented_fields() {
    let line = serde_json::to_value(Report::default()).unwrap();
    for name in CONTRACT {
        assert!(line.get(name).is_some(), "{name}");
    }
    for name in ["p50", "p99", "p999", "max"] {
        assert!(line["latency_us"].get(name).is_some(), "{name}");
    }
}

#[test]
fn table_rows_match_the_header() {
    assert_eq!(Report::table_head().len(), Report::default().table_row().len());
}
