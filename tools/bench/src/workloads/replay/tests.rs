use std::{
    fmt::Write,
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
};

use testudo::{Db, KeyspaceOptions, Placement, Tree};
use testudo_base::num::low32;
use testudo_env::SplitMix;

use crate::{Context, Outcome, ReplayArgs, StoreArgs};

fn args(file: PathBuf, dir: PathBuf) -> ReplayArgs {
    let json = Some(dir.join("out.json"));
    ReplayArgs {
        file,
        store: StoreArgs {
            write_share: None,
            leaf_bytes: None,
            placement: None,
            tree: "turtle".to_owned(),
            memory: 32 << 20,
            dir: None,
            tmp: Some(dir),
            json,
            smoke: false,
        },
        format: None,
        value_scale: 0.5,
        limit: None,
        verify_every: 2,
        sync: false,
    }
}

fn replayed(args: &ReplayArgs) -> serde_json::Value {
    let context = Context::new(Arc::new(AtomicBool::new(false)));
    assert_eq!(super::run(args, &context).unwrap(), Outcome::Fine);
    let text = std::fs::read_to_string(args.store.json.as_ref().unwrap()).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn replayed_batches_match_the_model() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("history.txt");
    let mut random = SplitMix::new(5);
    let mut text = String::new();
    for time in 0..400 {
        let count = 1 + random.below(9);
        writeln!(text, "B {time} {count}").unwrap();
        for _ in 0..count {
            let key = random.below(300);
            match random.below(4) {
                0 => writeln!(text, "D dir/file {key}").unwrap(),
                _ => writeln!(text, "P {} dir/file {key}", random.below(2_000)).unwrap(),
            }
        }
    }
    std::fs::write(&file, text).unwrap();
    let result = replayed(&args(file, dir.path().to_owned()));
    assert_eq!(result["wrong_answers"], 0);
    assert_eq!(result["workload"], "replay:history");
    assert!(result["ops_by_class"]["read"].as_u64().unwrap() > 400, "{result}");
    assert_eq!(result["ops_by_class"]["write"], 400);
    assert!(result["records"].as_u64().unwrap() > 100);
}

#[test]
fn block_trace_is_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("disk.bin");
    let mut random = SplitMix::new(6);
    let mut bytes = Vec::new();
    for second in 0..2_000u64 {
        bytes.extend(second.to_be_bytes());
        bytes.extend(1024u32.to_be_bytes());
        bytes.push(u8::from(random.percent(60)));
        bytes.extend(random.below(500).to_be_bytes());
    }
    std::fs::write(&file, bytes).unwrap();
    let result = replayed(&ReplayArgs { limit: Some(1_500), ..args(file, dir.path().to_owned()) });
    assert_eq!(result["wrong_answers"], 0);
    assert!(result["ops"].as_u64().unwrap() >= 1_500);
}

#[test]
fn accesses_fill_absent_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("blocks.u32");
    let mut random = SplitMix::new(7);
    let bytes: Vec<u8> = (0..2_000).flat_map(|_| low32(random.below(100)).to_be_bytes()).collect();
    std::fs::write(&file, bytes).unwrap();
    let result = replayed(&args(file, dir.path().to_owned()));
    assert_eq!((&result["wrong_answers"], &result["records"]), (&0.into(), &100.into()));
}

#[test]
fn damaged_trace_error_names_the_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("history.txt");
    std::fs::write(&file, "B 1 1\nP 3 x\nB 1 1\noops\n").unwrap();
    let context = Context::new(Arc::new(AtomicBool::new(false)));
    let error = super::run(&args(file, dir.path().to_owned()), &context).unwrap_err();
    assert!(error.to_string().contains("line 4"), "{error}");
}

#[test]
fn replay_uses_the_requested_store_options() {
    let dir = tempfile::tempdir().unwrap();
    let (file, store) = (dir.path().join("blocks.u32"), dir.path().join("store"));
    std::fs::write(&file, 7_u32.to_be_bytes()).unwrap();
    let mut args = args(file, dir.path().to_owned());
    args.store.tree = "parallax".to_owned();
    args.store.leaf_bytes = Some(64 << 10);
    args.store.placement = Some(Placement::separate());
    args.store.write_share = Some(0.3);
    args.store.dir = Some(store.clone());
    args.store.tmp = None;
    replayed(&args);
    let db = Db::builder(store).open().unwrap();
    let options = db.keyspace(super::KEYSPACE, KeyspaceOptions::default).unwrap().options();
    let expected = Tree::leveled().with_run_bytes(64 << 10);
    assert_eq!((options.get_tree(), options.get_placement()), (expected, Placement::separate()));
}
