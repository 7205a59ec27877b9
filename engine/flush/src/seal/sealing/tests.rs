//! Examples of when buffers are sealed, and which.
//!
//! **Invariants**
//! - Every expectation follows from a rule in the parent's header.

use super::{Fill, choose};

/// Fills buffers round-robin, one byte each, and checks when the last answer says so. Returns the active
/// bytes when sealing is due, and the number of checks.
fn fill(keyspaces: usize, write_buffers: u64) -> (u64, u32) {
    let (mut active, mut check_at, mut looks) = (0u64, 0, 0);
    loop {
        if active >= check_at {
            looks += 1;
            let largest = active.div_ceil(keyspaces as u64);
            match (Fill { active, largest, sealed: 0 }).is_time(write_buffers) {
                Ok(()) => return (active, looks),
                Err(next) => check_at = next,
            }
        }
        active += 1;
    }
}

#[test]
fn single_keyspace_seals_at_half_of_write_memory() {
    let (active, looks) = fill(1, 100 << 20);
    assert!((50 << 20..(50 << 20) + 400_000).contains(&active), "{active}");
    assert!(looks < 12, "{looks}");
}

#[test]
fn two_keyspaces_seal_with_a_third_of_memory_left() {
    let (active, _) = fill(2, 99 << 20);
    assert!((66 << 20..(66 << 20) + 400_000).contains(&active), "{active}");
}

#[test]
fn many_keyspaces_seal_with_an_eighth_of_memory_left() {
    let (active, looks) = fill(1000, 80 << 20);
    assert!((70 << 20..(70 << 20) + 400_000).contains(&active), "{active}");
    assert!(looks < 12, "{looks}");
}

#[test]
fn small_write_memory_is_sealed_by_halves() {
    let (active, _) = fill(1000, 80_000);
    assert!((40_000..40_400).contains(&active), "{active}");
    assert_eq!(choose(&[5; 16], 80), [0, 1, 2, 3, 4, 5, 6, 7], "half");
    assert_eq!(choose(&[1 << 12; 256], 1 << 20).len(), 64, "or the minimum size of a round");
}

#[test]
fn sealed_buffers_count_but_are_not_sealed_again() {
    let fill = |sealed| Fill { active: 40, largest: 40, sealed };
    assert!(fill(9).is_time(100).is_err());
    assert_eq!(fill(10).is_time(100), Ok(()), "including the half that a round takes");
}

#[test]
fn largest_buffers_are_chosen_until_they_fill_a_round() {
    const MIB: u64 = 1 << 20;
    assert_eq!(choose(&[3 * MIB, 9 * MIB, MIB, 5 * MIB], 64 * MIB), [1]);
    assert_eq!(choose(&[3 * MIB, 4 * MIB, MIB, 5 * MIB], 64 * MIB), [3, 1]);
    assert_eq!(choose(&[2 * MIB, 2 * MIB, 2 * MIB], 8 * MIB), [0]);
    assert_eq!(choose(&[1, 2], MIB), [1, 0]);
    assert_eq!(choose(&[1], 4), [0], "tiny memory still seals something");
    assert!(choose(&[], 64).is_empty());
}
