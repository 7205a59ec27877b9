use super::*;

#[test]
fn new_bytes_are_written_a_bounded_number_of_times_into_few_sequences() {
    for (data, flush) in [(500 << 20, 20 << 20), (2_500 << 20, 64 << 20), (20_000 << 20, 64 << 20)] {
        let mut levels = SimulatedLevels::new(LsmOptions::new());
        let load = SimulatedLoad { incoming_bytes: data, flush_bytes: flush, overwrite_percent: 0 };
        let costs = levels.apply(&load);
        assert!(costs.write_amplification() < 11.0, "{data}: {costs:?}");
        let later = levels.apply(&load);
        assert!(later.write_amplification() < 18.0, "{data}: {later:?}");
        assert!(later.dearest_flush < later.write_amplification() * 3.0, "{data}: {later:?}");
        assert!(later.max_sequences <= 16, "{data}: {later:?}");
    }
}

#[test]
fn what_is_overwritten_takes_a_bounded_part_more_than_its_data() {
    let mut levels = SimulatedLevels::new(LsmOptions::new());
    let load = SimulatedLoad { incoming_bytes: 5_000 << 20, flush_bytes: 64 << 20, overwrite_percent: 0 };
    levels.apply(&load);
    let costs = levels.apply(&SimulatedLoad { overwrite_percent: 100, ..load });
    assert!(costs.space < 1.3, "{costs:?}");
}
