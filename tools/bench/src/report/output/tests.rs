use super::{Output, layout};

#[test]
fn columns_are_aligned() {
    let rows = [["name", "ops/s"], ["a", "1.2 M"], ["longer", "7"]];
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.map(str::to_owned).to_vec()).collect();
    assert_eq!(layout(&rows), "name    ops/s\na       1.2 M\nlonger      7\n");
}

#[test]
fn each_result_is_one_json_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("results.json");
    let mut output = Output::new(Some(&path)).unwrap();
    output.result(&serde_json::json!({"a": 1})).unwrap();
    output.result(&serde_json::json!({"b": [2, 3]})).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"a\":1}\n{\"b\":[2,3]}\n");
}
