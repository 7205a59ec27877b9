use super::*;

/// Ends a round that begins and ends with 5000 pages in use, and needs `pages` more.
fn end_round(target: &mut FreeSpaceTarget, pages: u64) {
    target.note_used(5000 + pages);
    target.end_round(5000);
}

fn begun() -> FreeSpaceTarget {
    let mut target = FreeSpaceTarget::new(5000);
    (0..ROUNDS).for_each(|_| end_round(&mut target, 0));
    target
}

#[test]
fn the_average_of_recent_rounds_is_kept() {
    let mut target = FreeSpaceTarget::new(5000);
    for _ in 0..ROUNDS - 1 {
        end_round(&mut target, 1000);
        assert_eq!(target.kept_pages(100_000, 200_000), None, "too few rounds");
    }
    end_round(&mut target, 9000);
    assert_eq!(target.kept_pages(100_000, 200_000), Some(2000));
    for _ in 0..ROUNDS {
        end_round(&mut target, 400);
    }
    assert_eq!(target.kept_pages(100_000, 200_000), Some(400));
}

#[test]
fn pages_freed_during_a_round_are_not_needed_twice() {
    let mut target = begun();
    for _ in 0..ROUNDS {
        // Ten jobs, each of which allocates 300 pages and then frees as many.
        for _ in 0..10 {
            target.note_used(5300);
        }
        target.end_round(5000);
    }
    assert_eq!(target.kept_pages(100_000, 200_000), Some(300));
}

#[test]
fn a_growing_store_keeps_the_pages_by_which_it_grows() {
    let mut target = FreeSpaceTarget::new(0);
    for round in 0..2 * u64_of(ROUNDS) {
        target.note_used(1000 * round + 1200);
        target.end_round(1000 * round + 1000);
    }
    assert_eq!(target.kept_pages(100_000, 200_000), Some(1200));
}

#[test]
fn a_small_surplus_is_not_released() {
    let mut target = begun();
    for _ in 0..ROUNDS {
        end_round(&mut target, 400);
    }
    assert_eq!(target.kept_pages(400 + 99, 1600), None, "less than a megabyte");
    assert_eq!(target.kept_pages(400 + 499, 16_000), None);
    assert_eq!(target.kept_pages(400 + 500, 16_000), Some(400));
}
