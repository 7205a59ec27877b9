//! The read methods shared by keyspaces and their snapshots.

use testudo_base::Result;
use testudo_run::KeyBounds;
use testudo_store::read::slice::Slice;

use crate::{Entry, Iter, ValueReader};

/// A readable keyspace: a [`Keyspace`](crate::Keyspace) as it is now, or one shown by a snapshot
/// ([`SnapshotKeyspace`](crate::SnapshotKeyspace)). For code that accepts either, as `&dyn ReadView` or by a
/// type parameter. Both types also have these methods themselves, for any byte strings and any form of range.
///
/// ```
/// # fn main() -> testudo::Result<()> {
/// use testudo::{Db, KeyRange, KeyspaceOptions, ReadView};
///
/// fn sizes(view: &dyn ReadView) -> testudo::Result<(usize, usize)> {
///     // `count` would count an error as an entry.
///     let (all, some) = (view.iter()?, view.range(("b"..).into_bounds())?);
///     let all: Vec<_> = all.collect::<testudo::Result<_>>()?;
///     let some: Vec<_> = some.collect::<testudo::Result<_>>()?;
///     Ok((all.len(), some.len()))
/// }
/// # let directory = std::env::temp_dir().join(format!("testudo-view-{}", std::process::id()));
/// # let db = Db::builder(&directory).temporary().open()?;
/// let letters = db.keyspace("letters", KeyspaceOptions::default())?;
/// letters.insert("a", "1")?;
/// let snapshot = db.snapshot()?;
/// letters.insert("b", "2")?;
/// assert_eq!(sizes(&letters)?, (2, 1));
/// assert_eq!(sizes(&snapshot.keyspace(&letters)?)?, (1, 0));
/// # Ok(())
/// # }
/// ```
pub trait ReadView {
    /// Returns the value of `key`, or `None` if there is none.
    ///
    /// Errors: `Corruption` with file, offset and keyspace; `Io`; `Closed`. If the key has operands: any
    /// error of their merge operator, `Unsupported` if it is not registered, and `Invalid` if it panics or
    /// produces a value beyond 4 GiB. `Invalid` also for a value from an `insert_reader` that is longer
    /// than a quarter of the memory budget: [`ReadView::get_reader`] reads it. Never a wrong answer.
    fn get(&self, key: &[u8]) -> Result<Option<Slice>>;

    /// Returns a reader of the value of `key`, or `None` if there is none. A value that was written by
    /// [`Keyspace::insert_reader`](crate::Keyspace::insert_reader) is read on demand, in little memory; any
    /// other value is read at once.
    ///
    /// Errors: as [`ReadView::get`].
    fn get_reader(&self, key: &[u8]) -> Result<Option<ValueReader>>;

    /// Returns `true` if `key` has a value. Operands are not merged for this, so the result is `true` even if
    /// the value cannot be read.
    ///
    /// Errors: `Corruption` with file, offset and keyspace; `Io`; `Closed`.
    fn contains_key(&self, key: &[u8]) -> Result<bool>;

    /// Returns the values of many keys, in the order of `keys`. Pages that are not in memory are read
    /// together.
    ///
    /// Errors: as [`ReadView::get`], for any of the keys.
    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Slice>>>;

    /// Returns an iterator over the entries with keys in `range`, usable from both ends, as of this call.
    /// [`KeyRange`](crate::KeyRange) converts ranges to bounds.
    ///
    /// Errors: `Closed`. Read errors are items of the iterator.
    fn range(&self, range: KeyBounds) -> Result<Iter>;

    /// Returns an iterator over the entries whose keys start with `prefix`.
    ///
    /// Errors: as [`ReadView::range`].
    fn prefix(&self, prefix: &[u8]) -> Result<Iter>;

    /// Returns an iterator over all entries.
    ///
    /// Errors: as [`ReadView::range`].
    fn iter(&self) -> Result<Iter> {
        self.range(KeyBounds { low: None, high: None })
    }

    /// Returns the entry with the smallest key, or `None` if there are no entries.
    ///
    /// Errors: `Corruption` with file, offset and keyspace; `Io`; `Closed`.
    fn first(&self) -> Result<Option<Entry>> {
        self.iter()?.next().transpose()
    }

    /// Returns the entry with the largest key, or `None` if there are no entries.
    ///
    /// Errors: as [`ReadView::first`].
    fn last(&self) -> Result<Option<Entry>> {
        self.iter()?.next_back().transpose()
    }

    /// Returns `true` if there are no entries.
    ///
    /// Errors: as [`ReadView::first`].
    fn is_empty(&self) -> Result<bool> {
        Ok(self.first()?.is_none())
    }

    /// Counts the entries. Exact and slow: it reads every key, but no value outside its tree.
    ///
    /// Errors: as [`ReadView::first`].
    fn len(&self) -> Result<u64> {
        self.iter()?.try_fold(0, |count, entry| entry.map(|_| count + 1))
    }

    /// Returns `true` if the key of any entry starts with `prefix`.
    ///
    /// Errors: as [`ReadView::first`].
    fn contains_prefix(&self, prefix: &[u8]) -> Result<bool> {
        Ok(self.prefix(prefix)?.next().transpose()?.is_some())
    }
}

/// Implements the trait for a type that already has its methods, for any byte strings.
macro_rules! read_view {
    ($view:ty) => {
        impl $crate::ReadView for $view {
            fn get(&self, key: &[u8]) -> testudo_base::Result<Option<testudo_store::read::slice::Slice>> {
                <$view>::get(self, key)
            }

            fn get_reader(&self, key: &[u8]) -> testudo_base::Result<Option<$crate::ValueReader>> {
                <$view>::get_reader(self, key)
            }

            fn contains_key(&self, key: &[u8]) -> testudo_base::Result<bool> {
                <$view>::contains_key(self, key)
            }

            fn multi_get(
                &self,
                keys: &[&[u8]],
            ) -> testudo_base::Result<Vec<Option<testudo_store::read::slice::Slice>>> {
                <$view>::multi_get(self, keys)
            }

            fn range(&self, range: testudo_run::KeyBounds) -> testudo_base::Result<$crate::Iter> {
                <$view>::range(self, range)
            }

            fn prefix(&self, prefix: &[u8]) -> testudo_base::Result<$crate::Iter> {
                <$view>::prefix(self, prefix)
            }
        }
    };
}

pub(crate) use read_view;
