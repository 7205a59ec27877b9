use super::shrink;
use crate::Script;

fn script(count: u32) -> Script {
    (0..count).map(|count| format!("step {count}\n")).collect::<String>().parse().unwrap()
}

#[test]
fn shrinking_keeps_only_ops_the_failure_needs() {
    let needed = script(500).0[3..6].to_vec();
    let small = shrink(&script(500), 1000, |shorter| needed.iter().all(|op| shorter.0.contains(op)));
    assert_eq!(small.0, needed);
}

#[test]
fn the_number_of_runs_is_bounded() {
    let mut runs = 0;
    shrink(&script(500), 20, |_| {
        runs += 1;
        false
    });
    assert_eq!(runs, 20);
}
