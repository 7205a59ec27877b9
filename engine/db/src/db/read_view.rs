//! What keyspaces and snapshots of them have in common: reading.

use testudo_base::Result;
use testudo_run::KeyBounds;
use testudo_store::read::slice::Slice;

use crate::{Iter, ValueReader};

/// What can be read from: a [`Keyspace`](crate::Keyspace) as it is now, or as a snapshot shows it
/// ([`SnapshotKeyspace`](crate::SnapshotKeyspace)). For code that takes either, as `&dyn ReadView` or by a
/// type parameter; both types have the same methods for any bytes and any form of range themselves.
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
/// assert_eq!(sizes(&snapshot.of(&letters)?)?, (1, 0));
/// # Ok(())
/// # }
/// ```
pub trait ReadView {
    /// The value of `key`, or `None`.
    ///
    /// Errors: `Corruption` with file, offset and keyspace, `Io`, `Closed`; where the key has operands, what
    /// their operator says of them, `Unsupported` without it, and `Invalid` if it panics or makes a value
    /// beyond 4 GiB. `Invalid` also for a value longer than a quarter of the memory budget that was written
    /// in pieces: [`ReadView::get_reader`] reads it. Never a wrong answer.
    fn get(&self, key: &[u8]) -> Result<Option<Slice>>;

    /// A reader of the value of `key`, or `None`. A value that was written by
    /// [`Keyspace::insert_reader`](crate::Keyspace::insert_reader) is read in pieces, in little memory; any
    /// other one is read at once.
    ///
    /// Errors: as [`ReadView::get`].
    fn get_reader(&self, key: &[u8]) -> Result<Option<ValueReader>>;

    /// Whether `key` has a value. Operands are not merged for that, so a key has one also if it cannot be
    /// read.
    ///
    /// Errors: `Corruption` with file, offset and keyspace, `Io`, `Closed`.
    fn contains_key(&self, key: &[u8]) -> Result<bool>;

    /// The values of many keys, in the order of `keys`. Pages that are not in memory are read together.
    ///
    /// Errors: as [`ReadView::get`], of any of the keys.
    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Slice>>>;

    /// The entries with keys in `range`, from both ends, as they are now. [`KeyRange`](crate::KeyRange) makes
    /// bounds of a range.
    ///
    /// Errors: `Closed`. Those of reading come with the entries.
    fn range(&self, range: KeyBounds) -> Result<Iter>;

    /// The entries whose keys start with `prefix`.
    ///
    /// Errors: as [`ReadView::range`].
    fn prefix(&self, prefix: &[u8]) -> Result<Iter>;

    /// All entries.
    ///
    /// Errors: as [`ReadView::range`].
    fn iter(&self) -> Result<Iter> {
        self.range(KeyBounds { low: None, high: None })
    }
}

/// The trait for a type that has its methods, for any bytes, already.
macro_rules! read_view {
    ($view:ty) => {
        impl ReadView for $view {
            fn get(&self, key: &[u8]) -> Result<Option<Slice>> {
                <$view>::get(self, key)
            }

            fn get_reader(&self, key: &[u8]) -> Result<Option<ValueReader>> {
                <$view>::get_reader(self, key)
            }

            fn contains_key(&self, key: &[u8]) -> Result<bool> {
                <$view>::contains_key(self, key)
            }

            fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Slice>>> {
                <$view>::multi_get(self, keys)
            }

            fn range(&self, range: KeyBounds) -> Result<Iter> {
                <$view>::range(self, range)
            }

            fn prefix(&self, prefix: &[u8]) -> Result<Iter> {
                <$view>::prefix(self, prefix)
            }
        }
    };
}

read_view!(crate::Keyspace);
read_view!(crate::SnapshotKeyspace);
