use std::{cell::RefCell, time::Duration};

use super::TreeSwitches;

#[test]
fn switches_are_evenly_spaced_and_rates_are_by_tree() {
    let trees = ["oak".to_owned(), "elm".to_owned()];
    let set = RefCell::new(Vec::new());
    let note = |tree: &str| {
        set.borrow_mut().push(tree.to_owned());
        Ok(())
    };
    let mut switches =
        TreeSwitches::new(&trees, 3, ("oak", (Duration::ZERO, 0)), (Box::new(note), Box::new(|| false)));
    // Ten operations per second with oak, twenty with elm, in turns of one second.
    for (tenths, operations) in [(0, 0), (9, 9), (10, 10), (19, 28), (20, 30), (30, 40), (39, 58), (40, 60)] {
        let now = (Duration::from_millis(tenths * 100), operations);
        switches.keep_up(tenths as f64 / 40.0, || now).unwrap();
    }
    assert_eq!(*set.borrow(), ["elm", "oak", "elm"]);
    let result = switches.result((Duration::from_secs(4), 60), Duration::from_millis(7));
    assert_eq!(result.switches, 3);
    assert_eq!((result.ops_per_second_before, result.ops_per_second_after), (10.0, 20.0));
    assert_eq!(result.ops_per_second_between, 15.0);
    assert_eq!((result.ops_per_second_by_tree["oak"], result.ops_per_second_by_tree["elm"]), (10.0, 20.0));
    assert_eq!(result.seconds_to_arrive, [Some(0.9), Some(1.0), Some(0.9)]);
    assert_eq!(result.longest_stall_ms, 7.0);
    assert!(result.line("a").contains("3 tree switches"), "{}", result.line("a"));
}

#[test]
fn unlisted_tree_switches_to_the_first_and_late_polls_catch_up() {
    let trees = ["oak".to_owned(), "elm".to_owned()];
    let set = RefCell::new(Vec::new());
    let note = |tree: &str| {
        set.borrow_mut().push(tree.to_owned());
        Ok(())
    };
    let mut switches =
        TreeSwitches::new(&trees, 4, ("fir", (Duration::ZERO, 0)), (Box::new(note), Box::new(|| false)));
    switches.keep_up(1.0, || (Duration::from_secs(1), 5)).unwrap();
    assert_eq!(*set.borrow(), ["oak", "elm", "oak", "elm"]);
    assert_eq!(
        switches.result((Duration::from_secs(1), 5), Duration::ZERO).ops_per_second_by_tree["fir"],
        5.0
    );
}
