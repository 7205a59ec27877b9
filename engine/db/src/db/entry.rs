//! An entry that an iterator returned: its key, and its value, which may lie elsewhere still.
//!
//! **Invariants**
//! - What was read of an entry never changes, and is read once.

use testudo_base::{
    Kind, Result, ValueReference,
    num::u64_of,
    operands_format::Stack,
    sync::{Arc, OnceLock},
};
use testudo_store::read::slice::Slice;

use crate::{
    ValueReader,
    db::{
        outlying_value::{OutlyingValue, Told},
        pinned::Pinned,
    },
};

/// A key and its value, or its operands where they cannot be merged.
///
/// A value that lies outside its tree, in a keyspace with a [`Placement`](testudo_values::Placement), is read when
/// somebody looks at it. Until the entry is dropped it keeps the state that it is of: the store stays open,
/// and the space of the value is not used for anything else.
#[derive(Clone)]
pub struct Entry {
    key: Slice,
    value: Value,
}

#[derive(Clone)]
enum Value {
    Here(Told),
    Outside(Arc<OutlyingValue>),
    InPieces(Arc<ValueInPieces>),
}

/// A value that was written in pieces.
struct ValueInPieces {
    pinned: Arc<Pinned>,
    reference: ValueReference,
    told: OnceLock<Told>,
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
    pub(crate) fn new(key: Slice, value: Told) -> Self {
        Self { key, value: Value::Here(value) }
    }

    /// One whose value lies outside the tree.
    pub(crate) fn with_outlying(key: Slice, value: OutlyingValue) -> Self {
        Self { key, value: Value::Outside(Arc::new(value)) }
    }

    /// One whose value lies in pieces.
    pub(crate) fn with_pieces(key: Slice, pinned: &Arc<Pinned>, reference: ValueReference) -> Self {
        let pinned = Arc::clone(pinned);
        let value = ValueInPieces { pinned, reference, told: OnceLock::new() };
        Self { key, value: Value::InPieces(Arc::new(value)) }
    }

    /// Bytes of memory that it takes beside itself; not those of values that are yet to be read.
    pub(crate) fn memory_bytes(&self) -> usize {
        let value = match &self.value {
            Value::Here(Ok(value)) => value.len(),
            _ => 0,
        };
        self.key.len() + value
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
    /// again. `Invalid` for a value that was written in pieces and is longer than a quarter of the memory
    /// budget: [`Entry::reader`] reads it.
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
        match &self.value {
            Value::Outside(outlying) => {
                if let Some(length) = outlying.stated_len() {
                    return Ok(length);
                }
            }
            Value::InPieces(pieces) => return Ok(u64::from(pieces.reference.length)),
            Value::Here(_) => {}
        }
        match self.known()? {
            Ok(value) => Ok(u64_of(value.len())),
            Err(unmerged) => Err(unmerged.why.clone()),
        }
    }

    /// A reader of the value. One that was written by
    /// [`Keyspace::insert_reader`](crate::Keyspace::insert_reader) is read in pieces, in little memory.
    ///
    /// Errors: as [`Entry::value`], but for the length.
    pub fn reader(&self) -> Result<ValueReader> {
        match &self.value {
            Value::InPieces(pieces) => Ok(ValueReader::in_pieces(&pieces.pinned, pieces.reference)),
            Value::Here(_) | Value::Outside(_) => self.value().map(ValueReader::of_whole),
        }
    }

    /// A reader of its value if that was written in pieces, or why there is none though it was.
    pub(crate) fn pieces(&self) -> Option<Result<ValueReader>> {
        match &self.value {
            Value::InPieces(_) => Some(self.reader()),
            Value::Here(Err(unmerged)) if !matches!(unmerged.kind, Kind::Operands | Kind::Unmerged) => {
                Some(Err(unmerged.why.clone()))
            }
            Value::Here(_) | Value::Outside(_) => None,
        }
    }

    /// Key and value, without a copy.
    ///
    /// Errors: as [`Entry::value`].
    pub fn into_pair(self) -> Result<(Slice, Slice)> {
        match self.value {
            Value::Here(value) => Ok((self.key, value.map_err(|unmerged| unmerged.why)?)),
            Value::Outside(outlying) => Ok((self.key, OutlyingValue::into_value(outlying)?)),
            Value::InPieces(_) => {
                let value = self.value()?;
                Ok((self.key, value))
            }
        }
    }

    /// What the key has, as it is stored, where [`Entry::value`] is an error of operands; `None` where it is
    /// not, or where the value cannot be read.
    pub fn base_with_operands(&self) -> Option<BaseWithOperands<'_>> {
        let unmerged = self.known().ok()?.as_ref().err()?;
        if !matches!(unmerged.kind, Kind::Operands | Kind::Unmerged) {
            return None;
        }
        let Stack { existing, operands } = Stack::decode(unmerged.kind, &unmerged.stack).ok()?;
        Some(BaseWithOperands { base: existing, operands })
    }

    /// The value, or why there is none. Reads it if it lies outside.
    fn known(&self) -> Result<&Told> {
        match &self.value {
            Value::Here(value) => Ok(value),
            Value::Outside(outlying) => outlying.get(),
            Value::InPieces(pieces) => pieces.get(),
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

impl ValueInPieces {
    /// The whole value.
    fn get(&self) -> Result<&Told> {
        if let Some(told) = self.told.get() {
            return Ok(told);
        }
        let value = self.pinned.read(|| self.pinned.read_whole(&self.reference))?;
        Ok(self.told.get_or_init(|| Ok(value)))
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
        if let (Value::InPieces(pieces), Value::InPieces(of_other)) = (&self.value, &other.value)
            && pieces.reference == of_other.reference
        {
            return self.key == other.key;
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
            Value::InPieces(pieces) => pieces.told.get(),
        };
        match known {
            Some(Ok(value)) => write!(f, "{:?} = {value:?}", self.key),
            Some(Err(unmerged)) => write!(f, "{:?}: {}", self.key, unmerged.why),
            None => write!(f, "{:?}: a value that was not read", self.key),
        }
    }
}
