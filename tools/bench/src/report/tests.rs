use super::Report;

/// Names that other tools are built on.
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
fn a_line_has_every_field_of_the_contract() {
    let line = serde_json::to_value(Report::default()).unwrap();
    for name in CONTRACT {
        assert!(line.get(name).is_some(), "{name}");
    }
    for name in ["p50", "p99", "p999", "max"] {
        assert!(line["latency_us"].get(name).is_some(), "{name}");
    }
}

#[test]
fn rows_are_as_long_as_the_head() {
    assert_eq!(Report::table_head().len(), Report::default().table_row().len());
}
