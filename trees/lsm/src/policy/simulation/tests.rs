use super::*;

#[test]
fn new_bytes_have_bounded_write_amplification_and_few_sequences() {
    for (data, flush) in [(500 << 20, 20 << 20), (2_500 << 20, 64 << 20), (20_000 << 20, 64 << 20)] {
        for (is_pressed, sequences) in [(false, 14), (true, 40)] {
            let mut levels = SimulatedLevels::new(LsmOptions::new());
            let load =
                SimulatedLoad { incoming_bytes: data, flush_bytes: flush, overwrite_percent: 0, is_pressed };
            let costs = levels.apply(&load);
            assert!(costs.write_amplification() < 10.0, "{data}: {costs:?}");
            let later = levels.apply(&load);
            assert!(later.write_amplification() < 15.0, "{data}: {later:?}");
            assert!(later.max_sequences <= sequences, "{data}: {later:?}");
            // Only the work that flushes wait for.
            let is_even = later.dearest_flush < later.write_amplification() * 3.0;
            assert!(is_even || !is_pressed, "{data}: {later:?}");
        }
    }
}

#[test]
fn overwrites_have_bounded_space_amplification() {
    let mut levels = SimulatedLevels::new(LsmOptions::new());
    let load = SimulatedLoad {
        incoming_bytes: 5_000 << 20,
        flush_bytes: 64 << 20,
        overwrite_percent: 0,
        is_pressed: false,
    };
    levels.apply(&load);
    let costs = levels.apply(&SimulatedLoad { overwrite_percent: 100, ..load });
    assert!(costs.space < 1.3, "{costs:?}");
}
