use serde_json::{Value, json};

use super::Summary;
use crate::engine::Engine;

fn result(workload: &str, rate: f64, wrong: u64) -> Value {
    json!({
        "first_10s_rate": 90.0, "last_10s_rate": 110.0,
        "workload": workload, "ops_per_second": rate, "wrong_answers": wrong, "ops": 10,
        "user_bytes_written": 100, "process_bytes_written": 250, "process_bytes_read": 4096,
    })
}

#[test]
fn medians_spread_and_ratios_cover_all_rounds() {
    let mut summary = Summary::new(&[Engine::Testudo, Engine::Rocksdb]);
    for rate in [300.0, 100.0, 200.0] {
        summary.add(Engine::Testudo, &result("a", rate, 0));
    }
    for rate in [40.0, 60.0] {
        summary.add(Engine::Rocksdb, &result("a", rate, 0));
    }
    let rows = summary.rows();
    assert_eq!(rows[1][..6], ["a", "testudo", "200", "100", "300", "4.00"]);
    assert_eq!(rows[2][..6], ["a", "rocksdb", "50", "40", "60", "1.00"]);
    assert_eq!((&rows[1][14][..], &rows[1][15][..]), ("2.50", "410"), "{rows:?}");
    assert_eq!((&rows[1][6][..], &rows[1][7][..]), ("90", "110"), "{rows:?}");
}

#[test]
fn without_rocksdb_the_first_engine_is_the_baseline() {
    let mut summary = Summary::new(&[Engine::Lmdb, Engine::Redb]);
    summary.add(Engine::Lmdb, &result("c", 10.0, 0));
    summary.add(Engine::Redb, &result("c", 5.0, 0));
    summary.add(Engine::Redb, &result("load", 7.0, 0));
    let rows = summary.rows();
    assert_eq!((&rows[1][5][..], &rows[2][5][..], &rows[3][5][..]), ("1.00", "0.50", ""));
}

#[test]
fn ordered_load_has_no_ratio() {
    let mut summary = Summary::new(&[Engine::Rocksdb, Engine::Lmdb]);
    summary.add(Engine::Rocksdb, &result("load", 10.0, 0));
    let mut ordered = result("load", 90.0, 0);
    ordered["ordered_load"] = true.into();
    summary.add(Engine::Lmdb, &ordered);
    let rows = summary.rows();
    assert_eq!((&rows[1][5][..], &rows[2][5][..]), ("1.00", ""));
    assert!(summary.limits().contains("lmdb was loaded in key order"));
}

#[test]
fn wrong_answers_of_all_rounds_add_up() {
    let mut summary = Summary::new(&[Engine::Fjall]);
    summary.add(Engine::Fjall, &result("c", 1.0, 2));
    summary.add(Engine::Fjall, &result("c", 1.0, 1));
    assert_eq!(summary.wrong_answers(), 3);
    assert_eq!(summary.rows()[1].last().map(String::as_str), Some("3"));
}
