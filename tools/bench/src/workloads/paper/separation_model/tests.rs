use super::level_io;

#[test]
fn level_io_equals_the_sum_over_all_merges() {
    // Equation 2.1, for integer growth: the merged bytes, then the bytes they are merged with.
    for (levels, growth) in [(1u32, 4u64), (2, 4), (3, 8), (4, 10)] {
        let mut all = 0;
        for level in 0..levels {
            let size = growth.pow(level);
            let merges = growth.pow(levels - level);
            let below: u64 = (1..=merges).map(|merge| (merge - 1) % growth).sum();
            all += merges * size * if level == 0 { 1 } else { 2 } + 2 * below * size;
        }
        let of_each_byte = all as f64 / growth.pow(levels) as f64;
        assert!(
            (of_each_byte - level_io(f64::from(levels), growth as f64)).abs() < 1e-9,
            "{levels}, {growth}"
        );
    }
}
