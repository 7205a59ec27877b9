//! An entry that an iterator returned: its key, and its value, which may lie elsewhere still.
//!
//! **Invariants**
//! - What was read of an entry never changes, and is read once.

use testudo_base::{Kind, Result, num::u64_of, operands_format::Stack, sync::Arc};

use crate::{
    Slice,
    handles::outlying_value::{OutlyingValue, Unmerged},
};

/// A key and its value, or its operands where they cannot be merged.
///
/// A value that lies outside its tree, in a keyspace with a [`Placement`](crate::Placement), is read when
/// somebody looks at it. Until the entry is dropped it keeps the state that it is of: the store stays open,
/// and the space of the value is not used for anything else.
#[derive(Clone)]
pub struct Entry {
    key: Slice,
    value: Value,
}

#[derive(Clone)]
enum Value {
    Here(std::result::Result<Slice, Box<Unmerged>>),
    Outside(Arc<OutlyingValue>),
}

/// Operands that wait for a merge operator, and what they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseWithOperands<'e> {
    /// The value below them; `None`: there is none.
    pub base: Option<&'e [u8]>,
    /// Oldest first; at least one.
    pub operands: Vec<&'e [u8]>,
}

impl Entry {
    /// One whose value is known, or which has none that could be told.
    pub(crate) fn new(key: Slice, value: std::result::Result<Slice, Box<Unmerged>>) -> Self {
        Self { key, value: Value::Here(value) }
    }

    /// One whose value lies outside the tree.
    pub(crate) fn with_outlying(key: Slice, value: OutlyingValue) -> Self {
        Self { key, value: Value::Outside(Arc::new(value)) }
    }

    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The value. Reads from the device if it lies outside the tree: the first time, and then it reads values
    /// of the entries that follow with it, if those before were looked at, too.
    ///
    /// Errors, which leave the iterator as it is: what the merge operator says of the key's operands,
    /// `Invalid` if it panics or makes a value beyond 4 GiB; `Unsupported` if it is not registered;
    /// `Corruption` if the operands contradict themselves. [`Entry::base_with_operands`] shows what is there.
    /// If it lies outside also `Corruption` with file and offset, `Io` and `Closed`; asked again, it is read
    /// again.
    pub fn value(&self) -> Result<Slice> {
        match self.known()? {
            Ok(value) => Ok(value.clone()),
            Err(unmerged) => Err(unmerged.why.clone()),
        }
    }

    /// Bytes of the value. Reads nothing, unless operands have to be merged upon a value that lies outside.
    ///
    /// Errors: as [`Entry::value`].
    pub fn value_len(&self) -> Result<u64> {
        if let Value::Outside(outlying) = &self.value
            && let Some(length) = outlying.stated_len()
        {
            return Ok(length);
        }
        match self.known()? {
            Ok(value) => Ok(u64_of(value.len())),
            Err(unmerged) => Err(unmerged.why.clone()),
        }
    }

    /// Key and value, without a copy.
    ///
    /// Errors: as [`Entry::value`].
    pub fn into_pair(self) -> Result<(Slice, Slice)> {
        match self.value {
            Value::Here(value) => Ok((self.key, value.map_err(|unmerged| unmerged.why)?)),
            Value::Outside(outlying) => Ok((self.key, OutlyingValue::into_value(outlying)?)),
        }
    }

    /// What the key has, as it is stored, where [`Entry::value`] is an error of operands; `None` where it is
    /// not, or where the value cannot be read.
    pub fn base_with_operands(&self) -> Option<BaseWithOperands<'_>> {
        let unmerged = self.known().ok()?.as_ref().err()?;
        let Stack { existing, operands } = Stack::decode(unmerged.kind, &unmerged.stack).ok()?;
        Some(BaseWithOperands { base: existing, operands })
    }

    /// The value, or why there is none. Reads it if it lies outside.
    fn known(&self) -> Result<&std::result::Result<Slice, Box<Unmerged>>> {
        match &self.value {
            Value::Here(value) => Ok(value),
            Value::Outside(outlying) => outlying.get(),
        }
    }

    /// The value, or what is there in its place; `None` if it cannot be read.
    fn shown(&self) -> Option<(Kind, &[u8])> {
        Some(match self.known().ok()? {
            Ok(value) => (Kind::Value, value),
            Err(unmerged) => (unmerged.kind, &unmerged.stack),
        })
    }
}

impl PartialEq for Entry {
    /// Reads values that lie outside. One that cannot be read is equal to itself only.
    fn eq(&self, other: &Self) -> bool {
        if let (Value::Outside(outlying), Value::Outside(of_other)) = (&self.value, &other.value)
            && Arc::ptr_eq(outlying, of_other)
        {
            return true;
        }
        self.key == other.key && self.shown().is_some_and(|shown| other.shown() == Some(shown))
    }
}

impl Eq for Entry {}

impl std::fmt::Debug for Entry {
    /// Reads nothing.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known = match &self.value {
            Value::Here(value) => Some(value),
            Value::Outside(outlying) => outlying.get_if_read(),
        };
        match known {
            Some(Ok(value)) => write!(f, "{:?} = {value:?}", self.key),
            Some(Err(unmerged)) => write!(f, "{:?}: {}", self.key, unmerged.why),
            None => write!(f, "{:?}: a value that was not read", self.key),
        }
    }
}
