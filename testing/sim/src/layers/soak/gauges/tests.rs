//! The verdict detects growth, and nothing else.

use super::*;

fn samples(growth: impl Fn(u64) -> Sample) -> Gauges {
    Gauges((0..30).map(growth).collect())
}

const STEADY: Sample =
    Sample { resident_bytes: 50 << 20, descriptors: 12, disk_bytes: 70 << 20, live_bytes: 50 << 20 };

#[test]
fn flat_figures_pass_and_warm_up_is_not_growth() {
    let warm = |round: u64| Sample { resident_bytes: (20 << 20) + (round.min(9) * (3 << 20)), ..STEADY };
    assert!(samples(|_| STEADY).judge().is_ok());
    assert!(samples(warm).judge().is_ok());
}

#[test]
fn leaks_of_memory_descriptors_or_space_are_detected() {
    let memory = |round| Sample { resident_bytes: (50 << 20) + round * (2 << 20), ..STEADY };
    let descriptors = |round| Sample { descriptors: 12 + round, ..STEADY };
    let space = |round| Sample { disk_bytes: (70 << 20) + round * (2 << 20), ..STEADY };
    for (leak, name) in [
        (samples(memory), "resident bytes"),
        (samples(descriptors), "descriptors"),
        (samples(space), "bytes on the device"),
    ] {
        let message = leak.judge().unwrap_err();
        assert!(message.contains(name), "{message}");
    }
}

#[test]
fn this_process_has_memory_and_descriptors() {
    assert!(resident_bytes() > 1 << 20 && descriptors() > 2);
}
