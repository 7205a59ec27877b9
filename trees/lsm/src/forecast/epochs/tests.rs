use super::*;

const SIZE: EpochSize = EpochSize { inserts: 1_000, parts: 50 };

fn noted(epochs: &mut Epochs, keys: impl Iterator<Item = u64>) {
    keys.for_each(|key| _ = epochs.note_insert(&key.to_be_bytes(), SIZE));
}

fn between(epochs: &Epochs, low: u64, high: u64) -> f64 {
    epochs.shares().unwrap().between(&low.to_be_bytes(), Some(&high.to_be_bytes()))
}

#[test]
fn inserts_are_expected_where_they_were_in_both_epochs() {
    let mut epochs = Epochs::new(SIZE);
    // Nine of ten inserts are in the upper half.
    let key = |at: u64| if at.is_multiple_of(10) { at % 500 } else { 500 + at * 7 % 500 };
    noted(&mut epochs, (0..1_999).map(key));
    assert!(epochs.shares().is_none(), "the second epoch has not ended");
    noted(&mut epochs, std::iter::once(999));
    let all = epochs.shares().unwrap().agreement();
    assert!((0.8..=1.0).contains(&all), "{all}");
    let (lower, narrow) = (between(&epochs, 0, 500), between(&epochs, 600, 700));
    assert!((0.04..=0.16).contains(&lower), "{lower}");
    assert!((0.1..=0.25).contains(&narrow), "{narrow}");
}

#[test]
fn a_hot_spot_that_moves_is_expected_nowhere() {
    let mut appended = Epochs::new(SIZE);
    noted(&mut appended, 0..10_000);
    assert!(appended.shares().unwrap().agreement() < 0.01);
    let mut moved = Epochs::new(SIZE);
    noted(&mut moved, (0..2_000).map(|at| at % 100));
    assert!(moved.shares().unwrap().agreement() > 0.7);
    noted(&mut moved, (0..1_000).map(|at| (1 << 40) | (at % 100)));
    assert!(moved.shares().unwrap().agreement() < 0.01);
}

#[test]
fn equal_and_long_keys_are_counted_in_bounded_memory() {
    let mut epochs = Epochs::new(EpochSize { inserts: 5_000, parts: 250 });
    for at in 0..20_000_u64 {
        let mut key = vec![b'k'; 4_000];
        key[..8].copy_from_slice(&at.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
        epochs.note_insert(&key, EpochSize { inserts: 5_000, parts: 250 });
    }
    assert!(epochs.shares().unwrap().agreement() > 0.7);
    assert!(epochs.memory_bytes() < 160 << 10, "{}", epochs.memory_bytes());
    let mut equal = Epochs::new(SIZE);
    noted(&mut equal, (0..3_000).map(|_| 7));
    assert!(equal.shares().unwrap().agreement() <= 1.0);
}
