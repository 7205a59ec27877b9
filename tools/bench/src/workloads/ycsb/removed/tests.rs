use super::Removed;

#[test]
fn record_counts_once_until_restored() {
    let removed = Removed::new();
    removed.take_back(5);
    for record in [5, 5, 64, (1 << 20) + 5] {
        removed.add(record);
    }
    assert_eq!(removed.count(), 3);
    assert_eq!(
        [5, 6, 64, 1 << 20, (1 << 20) + 5].map(|record| removed.contains(record)),
        [true, false, true, false, true]
    );
    removed.take_back(5);
    removed.take_back(5);
    assert_eq!(removed.count(), 2);
}
