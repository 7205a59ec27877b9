//! Bytes of a key or a value that a read returned.

/// Bytes that a read returned; owns them and dereferences to `[u8]`.
#[derive(Clone, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Slice(Vec<u8>);

impl Slice {
    /// Returns the bytes without a copy.
    pub fn into_vec(self) -> Vec<u8> {
        self.0
    }
}

impl From<Vec<u8>> for Slice {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<Slice> for Vec<u8> {
    /// Returns the bytes without a copy.
    fn from(slice: Slice) -> Self {
        slice.into_vec()
    }
}

impl std::ops::Deref for Slice {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Slice {
    fn eq(&self, other: &T) -> bool {
        self.0 == other.as_ref()
    }
}

impl std::fmt::Debug for Slice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}
