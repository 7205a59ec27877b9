//! Page locations of a run: a sequence of pages over one or more spans of the data file, some of which may be
//! replaced by pages at other places of these spans.

use testudo_base::ExtentSpan;
use testudo_storage::PlaceSet;

use crate::RunRef;

/// Returns the physical page of a place, and how many places follow it in the same span (itself included).
pub(crate) fn locate(spans: impl Iterator<Item = ExtentSpan>, place: u32) -> Option<(u64, u32)> {
    let mut left = place;
    for span in spans {
        if left < span.page_count {
            return Some((span.first_page + u64::from(left), span.page_count - left));
        }
        left -= span.page_count;
    }
    None
}

/// Returns the physical page of a run's page, and how many of its pages are contiguous from there (itself
/// included).
#[inline]
pub(crate) fn locate_page<S: Iterator<Item = ExtentSpan>>(
    reference: &RunRef,
    spans: impl Fn() -> S,
    page: u32,
) -> Option<(u64, u32)> {
    let Some(replaced) = &reference.replaced else { return locate(spans(), page) };
    if !replaced.is_known() && page < reference.data_pages {
        return None;
    }
    let place = reference.place_of(page);
    let (physical, room) = locate(spans(), place.at)?;
    if place.at != page || place.writing.generation != reference.id {
        return Some((physical, 1));
    }
    let next = replaced.next_from(page).map_or(u32::MAX, |next| next - page);
    let end = reference.footer_end().saturating_sub(page);
    Some((physical, room.min(next).min(end).max(1)))
}

/// Returns the places of all data and overflow pages and of the map. All are in use if that was not read.
pub(crate) fn used_places(reference: &RunRef) -> PlaceSet {
    let mut places = PlaceSet::default();
    if !reference.has_known_places() {
        let all = reference.spans.iter().map(|span| span.page_count).sum();
        (0..all).for_each(|place| places.insert(place));
        return places;
    }
    let map_and_overflow = reference.footer_end()..reference.page_count();
    let data = (0..reference.data_pages).filter(|page| !reference.is_spare(*page));
    let used = data.chain(map_and_overflow);
    used.for_each(|page| places.insert(reference.place_of(page).at));
    places
}
