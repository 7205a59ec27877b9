//! Places for the new pages of a run: unused ones near the pages that they replace.
//!
//! **Invariants**
//! - No place in use by any version is chosen.

use std::{collections::BTreeSet, sync::Arc};

use testudo_base::{
    Error, ErrorKind, Result,
    num::{u32_of, usize_of},
    planted,
};
use testudo_storage::{Extent, PlaceSet};

use crate::{Run, RunRef, format::slot_group::GROUP_PAGES, spans::used_places};

/// Maximum pages to be placed together.
const CHAIN_PAGES_MAX: u32 = 16;
/// Pages are placed together at most this far from their original place: a scan reads them with their
/// neighbors.
const NEAR_PAGES: u32 = 16;
/// Number of free places tried on either side.
const WINDOWS_TRIED: usize = 64;
/// Minimum pages per allocation.
const PAGES_TAKEN_MIN: u32 = 4;
/// Fraction of the pages beyond the originally written ones that is allocated together, so that the number of
/// spans grows only logarithmically with these.
const PAGES_TAKEN_PARTS: u32 = 4;

/// Chooses an unused place for each of these pages, or their overflow pages: the one nearest to the
/// page's original place, so that scans find it near its neighbors. Allocates missing places.
pub(crate) fn choose_places(
    run: &Run,
    (used, has_plain): (&PlaceSet, bool),
    wanted: &[u32],
    extents: &mut Vec<Arc<Extent>>,
) -> Result<Vec<u32>> {
    let reference = run.reference();
    let own = used_places(reference);
    let all = |extents: &[Arc<Extent>]| extents.iter().map(|extent| extent.span().page_count).sum::<u32>();
    let is_free =
        |place: &u32| !used.contains(*place) && (!own.contains(*place) || planted!("used-place-taken"));
    let before = all(extents);
    let of_data = (0..reference.data_pages).filter(|place| !has_plain || reference.is_spare(*place));
    let mut free: BTreeSet<u32> = of_data.chain(reference.footer_end()..before).filter(is_free).collect();
    if let Some(missing) = u32_of(wanted.len()).checked_sub(u32_of(free.len())).filter(|more| *more > 0) {
        let data = run.data();
        let beyond = before.saturating_sub(reference.footer_end());
        let more = missing.max(PAGES_TAKEN_MIN).max(beyond / PAGES_TAKEN_PARTS);
        let outcome = data.allocate(more);
        let is_full = |error: &Error| error.kind() == ErrorKind::OutOfSpace;
        let taken = if outcome.as_ref().is_err_and(is_full) { data.allocate(missing) } else { outcome };
        extents.extend(taken?);
        free.extend(before..all(extents));
    }
    let numbers = match reference.spare_end {
        0 => places_near(wanted, &mut free),
        _ => places_in_groups(reference, wanted, &mut free),
    };
    debug_assert_eq!(numbers.len(), wanted.len(), "missing places must be allocated");
    Ok(numbers)
}

/// Takes a free place for each of these pages: one in its own slot group, so that a scan reads it with its
/// neighbors; then, for the others, those nearest to their original ones. Consecutive pages of a group get
/// consecutive places where there are some.
fn places_in_groups(reference: &RunRef, wanted: &[u32], free: &mut BTreeSet<u32>) -> Vec<u32> {
    let group_of = |page: u32| {
        let first = page - page % GROUP_PAGES;
        if page < reference.spare_end { first..first + GROUP_PAGES } else { reference.spare_end..page + 1 }
    };
    let mut places: Vec<Option<u32>> = Vec::with_capacity(wanted.len());
    let follows = |a: &u32, b: &u32| a.checked_add(1) == Some(*b) && group_of(*a).contains(b);
    for chain in wanted.chunk_by(follows) {
        let of_group: Vec<u32> = free.range(group_of(chain[0])).copied().collect();
        let mut windows = of_group.windows(chain.len());
        let together = windows.find(|window| window.windows(2).all(|pair| pair[0] + 1 == pair[1]));
        if let Some(window) = together {
            places.extend(window.iter().map(|place| Some(*place)));
            window.iter().for_each(|place| _ = free.remove(place));
            continue;
        }
        let mut of_group = of_group.into_iter();
        for _ in chain {
            let place = of_group.next();
            place.iter().for_each(|place| _ = free.remove(place));
            places.push(place);
        }
    }
    let mut left = wanted.to_vec();
    let mut number = 0;
    left.retain(|_| {
        number += 1;
        places[number - 1].is_none()
    });
    let mut others = places_near(&left, free).into_iter();
    places.into_iter().filter_map(|place| place.or_else(|| others.next())).collect()
}

/// Takes a free place for each of these pages, near its original one. Consecutive pages get consecutive
/// places where there are some, so that they are read and written together.
fn places_near(wanted: &[u32], free: &mut BTreeSet<u32>) -> Vec<u32> {
    let mut numbers = Vec::with_capacity(wanted.len());
    for chain in wanted.chunk_by(|a, b| a.checked_add(1) == Some(*b)) {
        let mut rest = chain;
        while let Some(first) = rest.first() {
            let mut count = u32_of(rest.len()).min(CHAIN_PAGES_MAX);
            let start = loop {
                match window_near(*first, count, free) {
                    Some(start) if count == 1 || start.abs_diff(*first) <= NEAR_PAGES => break start,
                    _ if count > 1 => count = count.div_ceil(2),
                    _ => return numbers,
                }
            };
            for place in start..start + count {
                free.remove(&place);
                numbers.push(place);
            }
            rest = &rest[usize_of(u64::from(count))..];
        }
    }
    numbers
}

/// Returns the start of `count` consecutive free places near a page; `None` if there are none among the
/// nearest.
fn window_near(page: u32, count: u32, free: &BTreeSet<u32>) -> Option<u32> {
    let is_window = |start: &&u32| (1..count).all(|more| free.contains(&(**start + more)));
    let ahead = free.range(..page).rev().take(WINDOWS_TRIED).find(is_window);
    let behind = free.range(page..).take(WINDOWS_TRIED).find(is_window);
    ahead.into_iter().chain(behind).copied().min_by_key(|place| place.abs_diff(page))
}
