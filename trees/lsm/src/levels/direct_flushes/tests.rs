use super::*;

fn flush(saved: u64, upper: u64, emptying: u64) -> FlushSeen {
    FlushSeen { bytes: 100, saved, upper, emptying }
}

#[test]
fn savings_must_cover_the_cost_of_emptying_the_levels() {
    let once = DirectFlushes::Off.after_dense(flush(40, 500, 100));
    assert_eq!(once.upper_max(), None);
    // Later costs of emptying do not count: those flushes would leave the levels anyway.
    let twice = once.after_dense(flush(40, 600, 1_000));
    assert_eq!(twice.upper_max(), None);
    assert_eq!(twice.after_dense(flush(40, 700, 2_000)).upper_max(), Some(900));
    assert_eq!(
        DirectFlushes::Off.after_dense(flush(0, 0, 0)).upper_max(),
        Some(200),
        "empty levels cost nothing"
    );
}

#[test]
fn levels_are_emptied_little_by_little() {
    let mut state = DirectFlushes::Off.after_dense(flush(10, 1_000, 10));
    let mut limits = Vec::new();
    while state.upper_max() > Some(0) {
        limits.push(state.upper_max().unwrap());
        state = state.after_dense(flush(10, 1_000, 5_000));
    }
    assert!(limits.windows(2).all(|pair| pair[1] == pair[0] - 50), "{limits:?}");
    assert_eq!(state.after_dense(flush(10, 0, 0)), state, "it stays on");
}

#[test]
fn two_sparse_flushes_end_it() {
    let on = DirectFlushes::Off.after_dense(flush(10, 0, 10));
    let doubtful = on.after_sparse(100);
    assert!(doubtful.upper_max().is_some());
    assert_eq!(doubtful.after_sparse(100), DirectFlushes::Off);
    let again = doubtful.after_dense(flush(10, 100, 5_000));
    assert!(again.after_sparse(100).upper_max().is_some(), "they were not in a row");
    assert_eq!(DirectFlushes::Worth(5).after_sparse(100), DirectFlushes::Off);
}
