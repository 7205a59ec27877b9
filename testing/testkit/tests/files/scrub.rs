#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
//! Scrubbing a store in use: every flipped byte of a live page is found, and resuming covers everything once.

use std::{collections::BTreeSet, ops::ControlFlow, path::Path, sync::Arc, time::Duration};

use testudo::{Durability, Finding, ScrubOptions, ScrubPosition, ScrubReport, VerifyLevel};
use testudo_db::maintenance::Stepping as _;
use testudo_env::{CrashPolicy, Env, FaultError, FaultPlan, FaultyEnv, IoClass, MemEnv};
use testudo_testkit::{
    busy_store::BusyStore,
    configuration::{Configuration, crash_configurations},
    engine_store::EngineOpener,
};

const SOURCE: &str = "/db";
const PAGE: usize = 4096;

fn busy(opener: &EngineOpener, env: Arc<dyn Env>, seed: u64) -> BusyStore {
    BusyStore::open(opener, env, Path::new(SOURCE), seed).unwrap()
}

fn scrub(store: &BusyStore) -> ScrubReport {
    store.db.scrub(ScrubOptions::new()).unwrap()
}

/// Pages of the data file that a run of the store occupies or once occupied.
fn live_pages(store: &BusyStore, machine: &MemEnv) -> Vec<usize> {
    store.db.compact().unwrap();
    let bytes = machine.file_bytes("/db/data").unwrap();
    (0..bytes.len() / PAGE).filter(|page| bytes[page * PAGE..][..40] != [0; 40]).collect()
}

#[test]
fn a_valid_store_is_scrubbed_under_concurrent_writes() {
    for Configuration { name, opener, .. } in crash_configurations() {
        let machine = MemEnv::new(1);
        let mut store = busy(&opener, machine, 1);
        store.work(2000).unwrap();
        let db = store.db.clone();
        let report = db
            .scrub(ScrubOptions::new().observer(|_| {
                store.work(20).unwrap();
                ControlFlow::Continue(())
            }))
            .unwrap();
        assert_eq!((report.findings.as_slice(), report.position), (&[][..], None), "{name}");
        assert!(report.runs > 0 && report.bytes > 0, "{name}");
        store.db.check_invariants().unwrap();
    }
}

#[test]
fn every_flipped_byte_of_a_live_page_is_located() {
    let opener = crash_configurations().remove(1).opener;
    let machine = MemEnv::new(2);
    let mut store = busy(&opener, machine.clone(), 2);
    store.work(400).unwrap();
    let pages = live_pages(&store, &machine);
    let live = store.db.stats().space.live_bytes;
    let (mut found, mut flips) = (0u64, 0u64);
    for page in pages {
        for byte in (0..PAGE).step_by(61) {
            let offset = u64::try_from(page * PAGE + byte).unwrap();
            machine.corrupt("/db/data", offset, 0x20).unwrap();
            let report = scrub(&store);
            machine.corrupt("/db/data", offset, 0x20).unwrap();
            flips += 1;
            if report.findings.is_empty() {
                continue;
            }
            found += 1;
            let covers =
                |finding: &Finding| (finding.offset..finding.offset + finding.bytes).contains(&offset);
            assert!(report.findings.iter().any(covers), "{:?} for {offset}", report.findings);
            for finding in &report.findings {
                assert_eq!(finding.file, "data");
                assert!(["alpha", "beta"].contains(&finding.keyspace.as_deref().unwrap()));
            }
        }
    }
    // Other pages are no longer referenced.
    let per_page = u64::try_from((0..PAGE).step_by(61).count()).unwrap();
    assert_eq!(found, live / PAGE as u64 * per_page, "of {flips} flips");
    assert!(found > 0 && scrub(&store).findings.is_empty());
}

#[test]
fn flipped_bytes_of_manifest_superblock_or_sealed_log_are_found() {
    let opener = crash_configurations().remove(1).opener;
    let machine = MemEnv::new(3);
    let mut store = busy(&opener, machine.clone(), 3);
    store.work(400).unwrap();
    // Enough for several log segments, none of which can be released.
    store.keyspaces[2].insert("pins", "the log").unwrap();
    let mut number = 0;
    while machine.all_files().iter().filter(|path| path.to_string_lossy().contains("wal-")).count() < 3 {
        store.keyspaces[0].insert(format!("fill{number}"), vec![7; 3000]).unwrap();
        store.db.persist(Durability::Sync).unwrap();
        number += 1;
    }
    assert!(scrub(&store).findings.is_empty());
    let mut files: Vec<_> = machine.all_files();
    let is_log = |path: &std::path::PathBuf| path.to_string_lossy().contains("wal-");
    let sealed = files.iter().find(|path| is_log(path)).unwrap().clone();
    files.retain(|path| path.to_string_lossy().contains("manifest-") || path.ends_with("superblock"));
    files.push(sealed);
    assert_eq!(files.len(), 3);
    for path in files {
        let bytes = machine.file_bytes(&path).unwrap();
        let content = bytes.len() - bytes.iter().rev().take_while(|&&byte| byte == 0).count();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_covered = |offset: usize| bytes[offset] != 0;
        let step = (content / 150).max(1);
        for offset in (0..content).step_by(step).filter(|&offset| is_covered(offset)) {
            machine.corrupt(&path, u64::try_from(offset).unwrap(), 1).unwrap();
            let report = scrub(&store);
            machine.corrupt(&path, u64::try_from(offset).unwrap(), 1).unwrap();
            assert!(report.findings.iter().any(|finding| finding.file == name), "{name} at {offset}");
        }
    }
    assert!(scrub(&store).findings.is_empty());
}

#[test]
fn resuming_covers_everything_once() {
    for Configuration { name, opener, .. } in crash_configurations() {
        let machine = MemEnv::new(4);
        let mut store = busy(&opener, machine.clone(), 4);
        store.work(2000).unwrap();
        store.db.compact().unwrap();
        for page in live_pages(&store, &machine) {
            machine.corrupt("/db/data", u64::try_from(page * PAGE + 50).unwrap(), 1).unwrap();
        }
        let whole = scrub(&store);
        assert!(!whole.findings.is_empty() && whole.position.is_none());
        let (mut position, mut bytes, mut parts) = (None, 0, Vec::new());
        loop {
            let options = ScrubOptions::default().resume_from(position);
            let report = store.db.scrub(options.observer(|_| ControlFlow::Break(()))).unwrap();
            bytes += report.bytes;
            parts.extend(report.findings);
            match report.position {
                Some(next) => {
                    assert_ne!(position, Some(next), "{name}: no progress");
                    let kept: ScrubPosition = next.to_string().parse().unwrap();
                    assert_eq!(kept, next);
                    position = Some(kept);
                }
                None => break,
            }
        }
        let damaged =
            |findings: &[testudo::Finding]| findings.iter().map(|finding| finding.bytes).sum::<u64>();
        assert_eq!(bytes, whole.bytes, "{name}: every byte once");
        assert_eq!(damaged(&parts), damaged(&whole.findings), "{name}");
    }
    assert!("1.2".parse::<ScrubPosition>().is_err() && "a.b.c".parse::<ScrubPosition>().is_err());
}

#[test]
fn a_scrub_keeps_its_rate() {
    let opener = crash_configurations().remove(1).opener;
    let machine = MemEnv::new(5);
    let mut store = busy(&opener, machine.clone(), 5);
    store.work(2000).unwrap();
    store.db.compact().unwrap();
    let started = machine.monotonic();
    let options = ScrubOptions::default().bytes_per_second(10_000);
    store.db.scrub(options).unwrap();
    let seconds = (machine.monotonic() - started).as_secs_f64();
    let expected = store.db.stats().space.live_bytes as f64 / 10_000.0;
    assert!(seconds >= expected && seconds < expected * 1.2 + 1.0, "{seconds} s, expected {expected}");
    assert!(Duration::from_secs_f64(seconds) > Duration::from_secs(1));
}

#[test]
fn an_unreadable_page_is_its_own_finding() {
    let opener = crash_configurations().remove(1).opener;
    let machine = MemEnv::new(6);
    let faulty = FaultyEnv::new(machine.clone());
    let mut store = busy(&opener, faulty.clone(), 6);
    store.work(2000).unwrap();
    store.db.compact().unwrap();
    let valid = scrub(&store).bytes;
    for skip in 0..6 {
        // The read of a stretch fails, then the read of its second page.
        let plan = FaultPlan::once(skip, FaultError::Device).of_class(IoClass::Read).on_path("/db/data");
        faulty.set_plan(Some(plan));
        let report = scrub(&store);
        faulty.set_plan(None);
        assert_eq!(report.bytes, valid, "everything else is read");
        assert!(report.findings.len() <= 1);
    }
    faulty.set_plan(Some(
        FaultPlan::once(0, FaultError::Device).of_class(IoClass::Read).on_path("/db/data").for_good(),
    ));
    let report = scrub(&store);
    faulty.set_plan(None);
    assert!(report.findings.iter().all(|finding| finding.what.contains("cannot be read")));
    let unread: u64 = report.findings.iter().map(|finding| finding.bytes).sum();
    assert_eq!(unread, store.db.stats().space.live_bytes);
}

#[test]
fn a_full_verification_finds_damage_in_several_runs() {
    let opener = crash_configurations().remove(1).opener;
    let machine = MemEnv::new(7);
    let mut store = busy(&opener, machine.clone(), 7);
    store.work(2000).unwrap();
    store.db.compact().unwrap();
    let pages = live_pages(&store, &machine);
    let (first, last) = (pages[0], pages[pages.len() - 1]);
    drop(store);
    let image = machine.crash_image(&CrashPolicy::KEEP_ALL, 1);
    let store = busy(&opener, image.clone(), 7);
    assert_eq!(store.db.verify(VerifyLevel::Full).unwrap().findings, []);
    let flip = |page| image.corrupt("/db/data", u64::try_from(page * PAGE + 45).unwrap(), 1).unwrap();
    let findings = || BTreeSet::from_iter(store.db.verify(VerifyLevel::Full).unwrap().findings);
    // A damaged multi-page block is checked page by page, so one byte may cause several findings.
    let [of_first, of_last] = [first, last].map(|page| {
        flip(page);
        let found = findings();
        flip(page);
        assert!(!found.is_empty() && found.iter().all(|finding| finding.file == "data"), "{found:?}");
        found
    });
    assert!(of_first.is_disjoint(&of_last), "{of_first:?} {of_last:?}");
    flip(first);
    flip(last);
    assert_eq!(findings(), &of_first | &of_last);
}

#[test]
fn writes_torn_by_power_loss_are_not_damage() {
    let opener = crash_configurations().remove(0).opener;
    for seed in 0..200 {
        let machine = MemEnv::new(seed);
        let db = opener.open_db(machine.clone(), Path::new(SOURCE)).unwrap();
        let keyspace = db.keyspace("a", testudo::KeyspaceOptions::default).unwrap();
        for key in ["a", "b", "c"] {
            keyspace.insert(key, "value").unwrap();
            db.persist(Durability::Buffered).unwrap();
        }
        let image = machine.crash_image(&CrashPolicy::random(seed), seed);
        let db = opener.open_db(image, Path::new(SOURCE)).unwrap();
        let report = db.verify(VerifyLevel::Full).unwrap();
        assert!(report.is_valid(), "seed {seed}: {:?}", report.findings);
    }
}
