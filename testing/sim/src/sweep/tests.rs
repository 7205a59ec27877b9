use std::time::Duration;

use super::{Enough, counted, judge, require, sweep};
use crate::{Amount, LayerReport, Limits};

#[test]
fn a_sweep_ends_when_there_is_enough() {
    let enough = Some(Enough { unit: "items", count: 10 });
    let report = sweep(&Limits::default(), 0.., enough, |_: u64| Ok(counted("items", 3))).unwrap();
    let threads = u64::try_from(Limits::default().threads).unwrap();
    assert!((12..12 + 3 * threads).contains(&report.count("items")), "{report}");
}

#[test]
fn a_sweep_ends_when_the_time_is_up() {
    let limits = Limits { amount: Amount::Time(Duration::ZERO), ..Limits::default() };
    assert_eq!(sweep(&limits, 0.., None, |_: u64| Ok(counted("items", 1))).unwrap(), LayerReport::default());
}

#[test]
fn a_failure_ends_a_sweep_and_a_panic_is_one() {
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
fn a_layer_that_reaches_too_little_fails() {
    let least = [("items", 2)];
    assert!(require("none", &Limits::default(), &counted("items", 1), &least).is_err());
    assert!(require("none", &Limits::default(), &counted("items", 2), &least).is_ok());
    let replay = Limits { seed: Some(1), ..Limits::default() };
    assert!(require("none", &replay, &counted("items", 1), &least).is_ok());
}
