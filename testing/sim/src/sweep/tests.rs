use std::{collections::BTreeSet, time::Duration};

use testudo_testkit::configuration::crash_configurations;

use super::{Enough, counted, judge, require, search, sweep};
use crate::{Amount, LayerReport, Limits};

#[test]
fn a_sweep_ends_when_its_count_is_reached() {
    let enough = Some(Enough { unit: "items", count: 10 });
    let report = sweep(&Limits::default(), 0.., enough, |_: u64| Ok(counted("items", 3))).unwrap();
    assert_eq!(report.count("items"), 12);
}

#[test]
fn sweep_counts_do_not_depend_on_the_number_of_threads() {
    let counts = |threads| {
        let limits = Limits { threads, ..Limits::default() };
        let enough = Some(Enough { unit: "items", count: 500 });
        // Later items end long before earlier ones.
        let run = |item: u64| {
            if item.is_multiple_of(7) {
                (0..2_000).for_each(|_| std::thread::yield_now());
            }
            Ok(counted("items", usize::try_from(item % 5).unwrap()))
        };
        sweep(&limits, 0.., enough, run).unwrap()
    };
    let alone = counts(1);
    assert_eq!((counts(2), counts(8)), (alone.clone(), alone));
}

#[test]
fn only_fixed_seeds_need_coverage_and_fresh_seeds_are_reported() {
    let configurations = crash_configurations();
    let rounds = u64::try_from(configurations.len()).unwrap();
    let (seen, asked) = (std::sync::Mutex::new(BTreeSet::new()), std::sync::Mutex::new(0));
    let enough = Enough { unit: "items", count: 30 * rounds };
    let is_covered = |report: &LayerReport| {
        *asked.lock().unwrap() = report.count("items");
        Ok(())
    };
    let report = search(&Limits::default(), &configurations, enough, is_covered, |_, seed| {
        seen.lock().unwrap().insert(seed);
        Ok(counted("items", 1))
    })
    .unwrap();
    let fresh = report.fresh_seeds_from.unwrap();
    assert_eq!((report.count("items"), *asked.lock().unwrap()), (36 * rounds, 30 * rounds));
    let seen = seen.into_inner().unwrap();
    assert!((0..30).chain(fresh..fresh + 6).all(|seed| seen.contains(&seed)), "{seen:?}");
}

#[test]
fn a_sweep_ends_when_the_time_is_up() {
    let limits = Limits { amount: Amount::Time(Duration::ZERO), ..Limits::default() };
    assert_eq!(sweep(&limits, 0.., None, |_: u64| Ok(counted("items", 1))).unwrap(), LayerReport::default());
}

#[test]
fn a_failure_or_a_panic_ends_a_sweep() {
    let run = |item: u64| {
        judge("none", None, Some(item), || {
            assert!(item != 5, "five");
            Ok(counted("items", 1))
        })
    };
    let failure = sweep(&Limits::default(), 0.., None, run).unwrap_err();
    assert_eq!(failure.seed, Some(5));
    assert!(failure.message.contains("five"), "{failure}");
}

#[test]
fn a_layer_with_too_little_coverage_fails() {
    let least = [("items", 2)];
    assert!(require("none", &Limits::default(), &counted("items", 1), &least).is_err());
    assert!(require("none", &Limits::default(), &counted("items", 2), &least).is_ok());
    let replay = Limits { seed: Some(1), ..Limits::default() };
    assert!(require("none", &replay, &counted("items", 1), &least).is_ok());
}
