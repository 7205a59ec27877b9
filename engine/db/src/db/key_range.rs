//! Ranges of keys, in every form that Rust has for ranges.
//!
//! **Invariants**
//! - Every form converts to the same half-open pair of bounds; an inverted range contains no key.

use std::ops::{Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use testudo_base::key;
use testudo_run::KeyBounds;

/// A range of keys: `..`, `a..b`, `a..=b`, `a..`, `..b`, `..=b`, a pair of [`Bound`]s or [`KeyBounds`], over
/// any type of byte string: `&str`, `String`, `Vec<u8>`, arrays,
/// [`Slice`](testudo_store::read::slice::Slice), and references to them.
///
/// ```
/// # use testudo::KeyRange;
/// let (from, to) = (vec![1_u8], [2_u8, 0]);
/// assert_eq!((..).into_bounds().low, None);
/// assert_eq!((&from..).into_bounds().low, Some(vec![1]));
/// assert_eq!((&to..&[3, 0]).into_bounds().high, Some(vec![3, 0]));
/// assert_eq!(("a"..="b").into_bounds().high, Some(b"b\0".to_vec()));
/// ```
pub trait KeyRange {
    /// Converts the range to bounds that own their bytes.
    fn into_bounds(self) -> KeyBounds;
}

impl KeyRange for KeyBounds {
    fn into_bounds(self) -> KeyBounds {
        self
    }
}

impl KeyRange for RangeFull {
    fn into_bounds(self) -> KeyBounds {
        KeyBounds { low: None, high: None }
    }
}

/// Implements [`KeyRange`] for each form.
macro_rules! key_range {
    ($($range:ty),*) => {$(
        impl<K: AsRef<[u8]>> KeyRange for $range {
            fn into_bounds(self) -> KeyBounds {
                bounds_of::<K>(&self)
            }
        }
    )*};
}

key_range!(Range<K>, RangeInclusive<K>, RangeFrom<K>, RangeTo<K>, RangeToInclusive<K>, (Bound<K>, Bound<K>));

fn bounds_of<K: AsRef<[u8]>>(range: &impl RangeBounds<K>) -> KeyBounds {
    let after = |key: &K| {
        let mut next = key.as_ref().to_vec();
        next.push(0);
        next
    };
    let low = match range.start_bound() {
        Bound::Included(key) => Some(key.as_ref().to_vec()),
        Bound::Excluded(key) => Some(after(key)),
        Bound::Unbounded => None,
    };
    let high = match range.end_bound() {
        Bound::Included(key) => Some(after(key)),
        Bound::Excluded(key) => Some(key.as_ref().to_vec()),
        Bound::Unbounded => None,
    };
    KeyBounds { low, high }
}

/// Returns the bounds of the keys that start with `prefix`.
pub(crate) fn bounds_of_prefix(prefix: &[u8]) -> KeyBounds {
    KeyBounds { low: (!prefix.is_empty()).then(|| prefix.to_vec()), high: key::prefix_end(prefix) }
}
