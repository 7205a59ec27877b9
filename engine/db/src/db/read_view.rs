//! The read methods shared by keyspaces and their snapshots.
//!
//! **Invariants**
//! - The trait documents and implements them; the methods of the handles only convert keys and ranges.

use testudo_base::Result;
use testudo_run::KeyBounds;
use testudo_store::read::slice::Slice;

use crate::{Entry, Iter, ValueReader, db::key_range::bounds_of_prefix};

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
    /// ```
    /// # fn main() -> testudo::Result<()> {
    /// # let directory = std::env::temp_dir().join(format!("testudo-doc-get-{}", std::process::id()));
    /// # let db = testudo::Db::builder(&directory).temporary().open()?;
    /// # let users = db.keyspace("users", testudo::KeyspaceOptions::default())?;
    /// users.insert("ada", "1815")?;
    /// if let Some(born) = users.get("ada")? {
    ///     assert_eq!(&*born, b"1815");
    /// }
    /// assert_eq!(users.get("charles")?, None);
    /// # Ok(())
    /// # }
    /// ```
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
    /// ```
    /// # fn main() -> testudo::Result<()> {
    /// # let directory = std::env::temp_dir().join(format!("testudo-doc-contains-{}", std::process::id()));
    /// # let db = testudo::Db::builder(&directory).temporary().open()?;
    /// # let users = db.keyspace("users", testudo::KeyspaceOptions::default())?;
    /// users.insert("ada", "")?;
    /// assert!(users.contains_key("ada")?);
    /// assert!(!users.contains_key("charles")?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: `Corruption` with file, offset and keyspace; `Io`; `Closed`.
    fn contains_key(&self, key: &[u8]) -> Result<bool>;

    /// Returns the values of many keys, in the order of `keys`. Pages that are not in memory are read
    /// together.
    ///
    /// ```
    /// # fn main() -> testudo::Result<()> {
    /// # let directory = std::env::temp_dir().join(format!("testudo-doc-multi-get-{}", std::process::id()));
    /// # let db = testudo::Db::builder(&directory).temporary().open()?;
    /// # let users = db.keyspace("users", testudo::KeyspaceOptions::default())?;
    /// users.insert("ada", "1815")?;
    /// users.insert("grace", "1906")?;
    /// let born = users.multi_get(&["grace", "charles", "ada"])?;
    /// assert_eq!(born[0].as_deref(), Some(&b"1906"[..]));
    /// assert!(born[1].is_none() && born[2].is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: as [`ReadView::get`], for any of the keys.
    fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Slice>>>;

    /// Returns an iterator over the entries with keys in `range`, usable from both ends, as of this call.
    /// [`KeyRange`](crate::KeyRange) converts ranges to bounds.
    ///
    /// ```
    /// # fn main() -> testudo::Result<()> {
    /// # let directory = std::env::temp_dir().join(format!("testudo-doc-range-{}", std::process::id()));
    /// # let db = testudo::Db::builder(&directory).temporary().open()?;
    /// # let users = db.keyspace("users", testudo::KeyspaceOptions::default())?;
    /// for name in ["ada", "alan", "grace"] {
    ///     users.insert(name, "")?;
    /// }
    /// for entry in users.range("ada".."b")?.rev() {
    ///     println!("{:?}", entry?.key());
    /// }
    /// assert_eq!(users.range("alan"..)?.count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: `Closed`. Read errors are items of the iterator.
    fn range(&self, range: KeyBounds) -> Result<Iter>;

    /// Returns an iterator over the entries whose keys start with `prefix`.
    ///
    /// ```
    /// # fn main() -> testudo::Result<()> {
    /// # let directory = std::env::temp_dir().join(format!("testudo-doc-prefix-{}", std::process::id()));
    /// # let db = testudo::Db::builder(&directory).temporary().open()?;
    /// # let users = db.keyspace("users", testudo::KeyspaceOptions::default())?;
    /// users.insert("ada/born", "1815")?;
    /// users.insert("ada/died", "1852")?;
    /// users.insert("adam/born", "1723")?;
    /// let of_ada = users.prefix("ada/")?.collect::<testudo::Result<Vec<_>>>()?;
    /// assert_eq!(of_ada.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: as [`ReadView::range`].
    fn prefix(&self, prefix: &[u8]) -> Result<Iter> {
        self.range(bounds_of_prefix(prefix))
    }

    /// Returns an iterator over all entries. Each item is an entry or an error; `count()` counts both.
    ///
    /// ```
    /// # fn main() -> testudo::Result<()> {
    /// # let directory = std::env::temp_dir().join(format!("testudo-doc-iter-{}", std::process::id()));
    /// # let db = testudo::Db::builder(&directory).temporary().open()?;
    /// # let users = db.keyspace("users", testudo::KeyspaceOptions::default())?;
    /// users.insert("grace", "1906")?;
    /// users.insert("ada", "1815")?;
    /// for entry in users.iter()? {
    ///     let (name, born) = entry?.into_pair()?;
    ///     println!("{name:?} was born in {born:?}");
    /// }
    /// assert_eq!(users.iter()?.next().unwrap()?.key(), b"ada");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: as [`ReadView::range`].
    fn iter(&self) -> Result<Iter> {
        self.range(KeyBounds { low: None, high: None })
    }

    /// Returns the entry with the smallest key, or `None` if there are no entries.
    ///
    /// ```
    /// # fn main() -> testudo::Result<()> {
    /// # let directory = std::env::temp_dir().join(format!("testudo-first-{}", std::process::id()));
    /// # let db = testudo::Db::builder(&directory).temporary().open()?;
    /// let letters = db.keyspace("letters", testudo::KeyspaceOptions::default())?;
    /// assert!(letters.is_empty()? && letters.first()?.is_none());
    /// for letter in ["a", "b", "c"] {
    ///     letters.insert(letter, "")?;
    /// }
    /// assert_eq!(letters.first()?.expect("an entry").key(), b"a");
    /// assert_eq!(letters.last()?.expect("an entry").key(), b"c");
    /// assert_eq!((letters.len()?, letters.contains_prefix("b")?), (3, true));
    /// # Ok(())
    /// # }
    /// ```
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

    /// Counts the entries. Exact and slow: it reads every key, but no separated value.
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

/// Defines the methods of [`ReadView`] on a type that implements it, for any byte strings and any form of
/// range.
macro_rules! read_methods {
    () => {
        /// As [`ReadView::get`](crate::ReadView::get).
        ///
        /// Errors: as [`ReadView::get`](crate::ReadView::get).
        pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
            ReadView::get(self, key.as_ref())
        }

        /// As [`ReadView::get_reader`](crate::ReadView::get_reader).
        ///
        /// Errors: as [`ReadView::get_reader`](crate::ReadView::get_reader).
        pub fn get_reader(&self, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>> {
            ReadView::get_reader(self, key.as_ref())
        }

        /// As [`ReadView::contains_key`](crate::ReadView::contains_key).
        ///
        /// Errors: as [`ReadView::contains_key`](crate::ReadView::contains_key).
        pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
            ReadView::contains_key(self, key.as_ref())
        }

        /// As [`ReadView::multi_get`](crate::ReadView::multi_get).
        ///
        /// Errors: as [`ReadView::multi_get`](crate::ReadView::multi_get).
        pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Slice>>> {
            let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
            ReadView::multi_get(self, &keys)
        }

        /// As [`ReadView::range`](crate::ReadView::range).
        ///
        /// Errors: as [`ReadView::range`](crate::ReadView::range).
        pub fn range(&self, range: impl KeyRange) -> Result<Iter> {
            ReadView::range(self, range.into_bounds())
        }

        /// As [`ReadView::prefix`](crate::ReadView::prefix).
        ///
        /// Errors: as [`ReadView::prefix`](crate::ReadView::prefix).
        pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
            ReadView::prefix(self, prefix.as_ref())
        }

        /// As [`ReadView::iter`](crate::ReadView::iter).
        ///
        /// Errors: as [`ReadView::iter`](crate::ReadView::iter).
        pub fn iter(&self) -> Result<Iter> {
            ReadView::iter(self)
        }

        /// As [`ReadView::first`](crate::ReadView::first).
        ///
        /// Errors: as [`ReadView::first`](crate::ReadView::first).
        pub fn first(&self) -> Result<Option<Entry>> {
            ReadView::first(self)
        }

        /// As [`ReadView::last`](crate::ReadView::last).
        ///
        /// Errors: as [`ReadView::last`](crate::ReadView::last).
        pub fn last(&self) -> Result<Option<Entry>> {
            ReadView::last(self)
        }

        /// As [`ReadView::is_empty`](crate::ReadView::is_empty).
        ///
        /// Errors: as [`ReadView::is_empty`](crate::ReadView::is_empty).
        pub fn is_empty(&self) -> Result<bool> {
            ReadView::is_empty(self)
        }

        /// As [`ReadView::len`](crate::ReadView::len).
        ///
        /// Errors: as [`ReadView::len`](crate::ReadView::len).
        pub fn len(&self) -> Result<u64> {
            ReadView::len(self)
        }

        /// As [`ReadView::contains_prefix`](crate::ReadView::contains_prefix).
        ///
        /// Errors: as [`ReadView::contains_prefix`](crate::ReadView::contains_prefix).
        pub fn contains_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<bool> {
            ReadView::contains_prefix(self, prefix.as_ref())
        }
    };
}

pub(crate) use read_methods;
