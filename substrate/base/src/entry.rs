//! The state of a key at one moment: a value, a tombstone, or operands for a merge operator.

/// Kind of an entry. The numbers are part of the on-disk format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The key has this value.
    Value = 0,
    /// The key was deleted; hides everything older.
    Tombstone = 1,
    /// Operands on top of older entries.
    Operands = 2,
    /// Operands together with the value they change; hides everything older.
    Unmerged = 3,
    /// The key has a value that is stored in a value segment: a [`crate::ValueReference`].
    Reference = 4,
    /// Operands together with the reference to the value they change; hides everything older.
    UnmergedReference = 5,
    /// Only in value segments: a reference and the value it refers to.
    Referred = 6,
}

impl Kind {
    /// Returns the kind with this number; `None` for a number that no version of the format has used.
    #[inline]
    pub fn from_u8(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Value),
            1 => Some(Self::Tombstone),
            2 => Some(Self::Operands),
            3 => Some(Self::Unmerged),
            4 => Some(Self::Reference),
            5 => Some(Self::UnmergedReference),
            6 => Some(Self::Referred),
            _ => None,
        }
    }
}

/// A borrowed entry. `value` is empty for a tombstone; the bytes of operands are those of
/// [`crate::operands_format`], those of references those of [`crate::ValueReference`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key, up to [`crate::MAX_KEY_BYTES`].
    pub key: &'a [u8],
    /// Kind of the entry.
    pub kind: Kind,
    /// The value's bytes.
    pub value: &'a [u8],
}

impl Entry<'_> {
    /// Copies the borrowed bytes.
    pub fn to_owned(&self) -> OwnedEntry {
        OwnedEntry { key: self.key.to_vec(), kind: self.kind, value: self.value.to_vec() }
    }

    /// Bytes of key and value together, as users count them.
    pub fn user_bytes(&self) -> usize {
        self.key.len() + self.value.len()
    }
}

/// An entry that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedEntry {
    /// The key.
    pub key: Vec<u8>,
    /// Kind of the entry.
    pub kind: Kind,
    /// The value's bytes; empty for a tombstone.
    pub value: Vec<u8>,
}

impl OwnedEntry {
    /// Borrows the entry.
    pub fn as_entry(&self) -> Entry<'_> {
        Entry { key: &self.key, kind: self.kind, value: &self.value }
    }
}
