//! Power losses: at random instants of random scripts, during background work and during recovery itself;
//! and, for a small script, at every single I/O operation.
//!
//! `TESTUDO_SEED` and `TESTUDO_CONFIGURATION` replay one run; `TESTUDO_IMAGES` makes a long one of it.

use std::sync::Arc;

use testudo_env::{CrashPolicy, MemEnv, TornMode};
use testudo_testkit::{
    Campaign, Failure, Report, Runner, Script,
    campaign::{catch, run_in_parallel},
    configuration::{Configuration, crash_configurations},
    model::Model,
    op::{Crash, Op},
    store::Opener,
};

/// Crash images opened in all.
const IMAGES_IN_ALL: usize = 5_000;
/// Ops of one script.
const OP_COUNT: usize = 1_000;

#[test]
fn five_thousand_crash_images_keep_the_prefix_rule() {
    let replays = std::env::var("TESTUDO_SEED").is_ok();
    let fresh = *Campaign::seeds([]).last().expect("one seed at least");
    let images_in_all =
        std::env::var("TESTUDO_IMAGES").map_or(IMAGES_IN_ALL, |count| count.parse().expect("a number"));
    let configurations = crash_configurations();
    let mut total = Report::default();
    for round in 0.. {
        // Fixed seeds and fresh ones in turn.
        let seed = if replays || round % 2 == 1 { fresh + round / 2 } else { round };
        total += run_in_parallel(&configurations, |configuration| {
            let Configuration { name, opener, profile } = configuration;
            Campaign { test: "crash", configuration: name, opener, profile, op_count: OP_COUNT }.run(seed)
        });
        if total.crash_images >= images_in_all || replays {
            break;
        }
    }
    println!("{total:?}");
    if !replays {
        assert!(total.armed_images > 1000 && total.nested_images > 200, "{total:?}");
        assert!(total.lost_commits > 1000 && total.kept_commits > 1000, "{total:?}");
    }
}

/// Writes, a drain, a drop and a clean close.
const SMALL_SCRIPT: &str = "
    create 0
    insert 0 a 1:100
    batch synced 0/b=2:5000 0/c=3:10
    create 1
    insert 1 x 4:3000
    flush
    update 0 a follow:5:200
    batch buffered 0/d=6:10 1/y=7:10 0/b=-
    persist
    remove 0 c
    step 5
    drop 1
    reopen
    insert 0 e 8:20000
    flush
    step 5
    batch synced 0/f=9:10
";

/// What may be left after a power loss.
const POLICIES: [CrashPolicy; 4] = [
    CrashPolicy::LOSE_ALL,
    CrashPolicy::KEEP_ALL,
    CrashPolicy { keep_percent: 50, torn: TornMode::Mix },
    CrashPolicy { keep_percent: 90, torn: TornMode::Keep },
];

/// Runs the small script and loses power after `after` I/O operations; `None` if it never came to that.
fn run_until(opener: &dyn Opener, after: u64, crash: Crash) -> Result<Option<Report>, Failure> {
    let mut script: Script = SMALL_SCRIPT.parse().expect("a script");
    script.0.insert(0, Op::Arm { after, crash });
    catch(&script, || {
        let mut runner = Runner::new(opener, 1);
        let report = runner.run(&script)?;
        Ok((report.armed_images > 0).then_some(report))
    })
}

#[test]
fn a_small_script_survives_a_crash_at_every_operation() {
    for configuration in crash_configurations() {
        for policy in POLICIES {
            let mut after = 0;
            while let Some(report) = {
                let crash = Crash { policy, seed: after, nested: Vec::new() };
                run_until(&configuration.opener, after, crash)
                    .unwrap_or_else(|failure| panic!("{policy:?} after {after}: {failure}"))
            } {
                assert_eq!(report.armed_images, 1);
                after += 1;
            }
            println!("{}, {policy:?}: {after} crashes", configuration.name);
            assert!(after > 30);
        }
    }
}

#[test]
fn recovery_survives_a_crash_at_every_operation() {
    let policy = CrashPolicy { keep_percent: 50, torn: TornMode::Mix };
    for configuration in crash_configurations() {
        for after in (0..).step_by(7) {
            let mut nested = 0;
            let outcome = loop {
                let crash = Crash { policy, seed: after + nested, nested: vec![nested] };
                let report = run_until(&configuration.opener, after, crash)
                    .unwrap_or_else(|failure| panic!("after {after}, nested {nested}: {failure}"));
                match report {
                    Some(report) if report.nested_images == 1 => nested += 1,
                    other => break other,
                }
            };
            if outcome.is_none() {
                break;
            }
        }
    }
}

/// Rounds after which the manifest must have been rotated.
const ROTATION_ROUNDS_MAX: u32 = 20_000;

/// A machine right before its manifest is rotated by a write and a flush, and what it holds.
fn before_rotation(opener: &dyn Opener) -> (Arc<MemEnv>, Model) {
    let mut runner = Runner::new(opener, 1);
    let mut perform = |line: &str| -> (Arc<MemEnv>, Model) {
        let before = (runner.machine().crash_image(&CrashPolicy::KEEP_ALL, 1), runner.model().clone());
        let script: Script = line.parse().expect("a script");
        runner.run_ops(&script).unwrap_or_else(|failure| panic!("{failure}"));
        before
    };
    perform("create 0");
    for round in 0..ROTATION_ROUNDS_MAX {
        let before = perform(&format!("insert 0 {} {round}:50\nflush", round % 7));
        if !before.0.all_files().iter().any(|path| path.ends_with("manifest-0000000001")) {
            panic!("the machine was rotated before");
        }
        let after = perform("get 0 a");
        if after.0.all_files().iter().any(|path| path.ends_with("manifest-0000000002")) {
            return before;
        }
    }
    panic!("the manifest was never rotated");
}

#[test]
fn rotation_of_the_manifest_survives_a_crash_at_every_operation() {
    for configuration in crash_configurations() {
        let (machine, model) = before_rotation(&configuration.opener);
        for policy in POLICIES {
            for after in 0.. {
                let crash = Crash { policy, seed: after, nested: vec![after % 11] };
                let script = "insert 0 a 1:10\nflush\ninsert 0 b 2:10\nflush\ninsert 0 c 3:10\nflush";
                let mut script: Script = script.parse().expect("a script");
                script.0.insert(0, Op::Arm { after, crash });
                let image = machine.crash_image(&CrashPolicy::KEEP_ALL, 1);
                let run = || Runner::resume(&configuration.opener, image, model.clone()).run(&script);
                let report = catch(&script, run)
                    .unwrap_or_else(|failure| panic!("{policy:?} after {after}: {failure}"));
                if report.armed_images == 0 {
                    break;
                }
            }
        }
    }
}
