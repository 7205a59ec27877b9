use std::sync::{Arc, atomic::AtomicBool};

use crate::{Context, DeviceArgs, Outcome};

#[test]
fn all_measurements_run_and_files_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("out.json");
    let args = DeviceArgs {
        dir: Some(dir.path().to_owned()),
        file_bytes: 0,
        seconds: 0.0,
        json: Some(json.clone()),
        smoke: true,
    };
    let context = Context::new(Arc::new(AtomicBool::new(false)));
    assert_eq!(super::run(&args, &context).unwrap(), Outcome::Fine);
    let text = std::fs::read_to_string(&json).unwrap();
    let results: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(results.len(), 13);
    assert!(results.iter().all(|result| result["per_second"].as_f64().unwrap() > 0.0), "{text}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);

    let missing = DeviceArgs { dir: Some(dir.path().join("no")), ..args.clone() };
    assert!(super::run(&missing, &context).is_err());
    let small = DeviceArgs { smoke: false, file_bytes: 4096, ..args };
    assert!(super::run(&small, &context).unwrap_err().to_string().contains("--file-bytes"));
}
