use super::*;

fn boundaries(bytes: &[u64]) -> Vec<Boundary> {
    let mut before = 0;
    let mut boundaries = Vec::new();
    for (pivot, bytes) in bytes.iter().enumerate() {
        if pivot > 0 {
            boundaries
                .push(Boundary { key: vec![u8::try_from(pivot).unwrap()].into(), bytes_before: before });
        }
        before += bytes;
    }
    boundaries
}

fn sizes(bytes: &[u64], bytes_max: u64) -> Vec<u64> {
    let parts = cut(bytes.iter().sum(), &boundaries(bytes), bytes_max);
    for pair in parts.windows(2) {
        assert!(pair[0].bounds.high.is_some() && pair[0].bounds.high == pair[1].bounds.low);
    }
    assert_eq!(parts[0].bounds.low, None);
    assert_eq!(parts[parts.len() - 1].bounds.high, None);
    parts.into_iter().map(|part| part.bytes).collect()
}

#[test]
fn small_or_seamless_destinations_are_not_cut() {
    assert_eq!(sizes(&[10, 10, 10], 30), [30]);
    assert_eq!(sizes(&[1000], 30), [1000]);
    assert_eq!(sizes(&[0, 0], 30), [0]);
}

#[test]
fn parts_have_about_equal_sizes() {
    assert_eq!(sizes(&[10; 8], 20), [20, 20, 20, 20]);
    assert_eq!(sizes(&[10; 9], 40), [30, 30, 30]);
    assert_eq!(sizes(&[10; 5], 25), [30, 20]);
}

#[test]
fn a_pivot_with_most_of_the_bytes_makes_no_empty_parts() {
    assert_eq!(sizes(&[1, 97, 1, 1], 25), [98, 1, 1]);
    assert_eq!(sizes(&[0, 0, 100, 0], 25), [100]);
    assert_eq!(sizes(&[50, 0, 0, 50], 25), [50, 50]);
}
