//! File systems that after a crash show stale blocks in a file that was about to be written: the store loses
//! nothing, opens, and needs no repair.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use testudo::{Db, Durability, Keyspace, KeyspaceOptions, RepairOptions, Tree, VerifyLevel, repair};
use testudo_db::maintenance::Stepping as _;
use testudo_env::{CrashPolicy, MemEnv, SplitMix};

fn open(machine: &Arc<MemEnv>, tree: Tree) -> (Db, Keyspace) {
    let db = Db::builder(Path::new("/db")).env(machine.clone()).memory_bytes(1 << 20).open().unwrap();
    let keyspace = db.keyspace("a", || KeyspaceOptions::default().tree(tree)).unwrap();
    (db, keyspace)
}

fn segments(machine: &MemEnv) -> Vec<PathBuf> {
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "log");
    let mut segments: Vec<_> = machine.all_files().into_iter().filter(is_segment).collect();
    segments.sort();
    segments
}

/// Writes until the next log segment has been created ahead; returns the number of records and the segment's
/// path.
fn write_until_prepared(machine: &MemEnv, db: &Db, keyspace: &Keyspace) -> (u32, PathBuf) {
    for number in 0..100_000u32 {
        keyspace.insert(number.to_be_bytes(), [7; 500]).unwrap();
        db.step().unwrap();
        let newest = segments(machine).pop().unwrap();
        if machine.file_bytes(&newest).unwrap()[..4096].iter().all(|&byte| byte == 0) {
            return (number + 1, newest);
        }
    }
    unreachable!("no segment was created in advance")
}

fn assert_sound(machine: &Arc<MemEnv>, tree: Tree, count: u32) {
    let options = RepairOptions::new("/db").env(machine.clone()).dry_run(true);
    let report = repair(options).unwrap();
    assert!(report.findings.is_empty(), "{report:?}");
    let (db, keyspace) = open(machine, tree);
    assert_eq!(keyspace.iter().unwrap().map(Result::unwrap).count(), count as usize);
    assert!(db.verify(VerifyLevel::Full).unwrap().is_valid());
    // And the log continues.
    keyspace.insert(b"more", b"x").unwrap();
    db.persist(Durability::Sync).unwrap();
    let image = machine.crash_image(&CrashPolicy::LOSE_ALL, 2);
    drop((db, keyspace));
    let (_db, keyspace) = open(&image, tree);
    assert_eq!(keyspace.iter().unwrap().map(Result::unwrap).count(), count as usize + 1);
}

#[test]
fn a_store_opens_with_any_stale_blocks_in_a_prepared_segment() {
    for (name, tree) in Tree::presets() {
        let machine = MemEnv::new(3);
        let (db, keyspace) = open(&machine, tree);
        let (count, prepared) = write_until_prepared(&machine, &db, &keyspace);
        db.persist(Durability::Sync).unwrap();
        let image = || machine.crash_image(&CrashPolicy::KEEP_ALL, 1);
        let mut noise = vec![0; image().file_bytes(&prepared).unwrap().len()];
        SplitMix::new(9).fill(&mut noise);
        let older = image().file_bytes(segments(&machine).iter().rev().nth(1).unwrap()).unwrap();
        let page = |bytes: &[u8]| [&bytes[..4096], &vec![0; noise.len() - 4096]].concat();
        let behind = [&vec![0; 4096], &noise[4096..]].concat();
        for stale in [&noise, &behind, &page(&noise), &page(&older), &older[..noise.len()].to_vec()] {
            let image = image();
            image.replace(&prepared, stale).unwrap();
            println!("{name}: {count} records, {} shows {:?}…", prepared.display(), &stale[..8]);
            assert_sound(&image, tree, count);
        }
    }
}
