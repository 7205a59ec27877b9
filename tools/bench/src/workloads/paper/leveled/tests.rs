use super::{File, Leveled, merge};

const FILE: u64 = 1 << 20;

fn load(memtables: u64) -> Leveled {
    let mut tree = Leveled::new(FILE);
    for _ in 0..memtables {
        tree.flush();
        let held: u64 = tree.levels.iter().flatten().map(|file| file.bytes).sum();
        assert_eq!(held + tree.waiting * FILE, tree.user_bytes);
        for files in &tree.levels {
            assert!(files.windows(2).all(|pair| pair[0].high <= pair[1].low), "{files:?}");
        }
    }
    tree
}

#[test]
fn merged_files_hold_equal_bytes_where_their_bytes_were() {
    let file = |low: f64, high: f64, bytes: u64| File { low, high, bytes };
    let merged = merge(&file(0.25, 0.5, 100), &[file(0.0, 0.5, 100), file(0.5, 1.0, 100)], 150);
    assert_eq!(merged.iter().map(|file| file.bytes).collect::<Vec<_>>(), [150, 150]);
    // 50 lie before a quarter, and five sixths of the 150 between the quarters are 100 of them.
    assert!((merged[0].high - (0.25 + 0.25 * 100.0 / 150.0)).abs() < 1e-9, "{merged:?}");
    assert_eq!((merged[0].low, merged[1].low, merged[1].high), (0.0, merged[0].high, 1.0));
}

#[test]
fn levels_hold_what_they_may_and_nothing_is_lost() {
    let tree = load(442);
    let held: Vec<u64> = tree.levels.iter().map(|files| files.iter().map(|file| file.bytes).sum()).collect();
    assert_eq!(held.len(), 3);
    assert!(held[0] <= 4 * FILE && held[1] <= 40 * FILE && held[2] > 380 * FILE, "{held:?}");
    assert_eq!(tree.sequences(), tree.waiting + 3);
}

#[test]
fn each_level_is_one_more_rewriting_of_everything_and_of_what_is_below() {
    let amplification = |memtables| {
        let tree = load(memtables);
        tree.bytes_written as f64 / tree.user_bytes as f64
    };
    assert_eq!(amplification(3), 1.0);
    let (two_levels, three_levels) = (amplification(40), amplification(400));
    assert!((3.0..8.0).contains(&two_levels), "{two_levels}");
    assert!((3.0..11.0).contains(&(three_levels - two_levels)), "{two_levels} {three_levels}");
}
