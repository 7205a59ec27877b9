//! An entry that an iterator returned: its key, and its value, which may not have been read yet.
//!
//! **Invariants**
//! - A value is read at most once successfully, and never changes afterwards.

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
        pinned::Pinned,
        separated_value::{SeparatedValue, Told},
    },
};

/// A key and its value, or its operands if they cannot be merged.
///
/// A separated value (one in a value segment, see [`Placement`](testudo_values::Placement)) is read lazily,
/// on first access. The entry pins the state it was read from until it is dropped: the store stays open, and
/// the space of the value is not reused.
#[derive(Clone)]
pub struct Entry {
    key: Slice,
    value: Value,
}

#[derive(Clone)]
enum Value {
    Here(Told),
    Separated(Arc<SeparatedValue>),
    Long(Arc<LongValue>),
}

/// A long value, which is read on demand.
struct LongValue {
    pinned: Arc<Pinned>,
    reference: ValueReference,
    told: OnceLock<Told>,
}

/// Unmerged operands, and the value they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseWithOperands<'e> {
    /// The base value, or `None` if there is none.
    pub base: Option<&'e [u8]>,
    /// The operands, oldest first; at least one.
    pub operands: Vec<&'e [u8]>,
}

impl Entry {
    /// An entry whose value is known, or cannot be determined.
    pub(crate) fn new(key: Slice, value: Told) -> Self {
        Self { key, value: Value::Here(value) }
    }

    /// An entry with a separated value.
    pub(crate) fn with_separated(key: Slice, value: SeparatedValue) -> Self {
        Self { key, value: Value::Separated(Arc::new(value)) }
    }

    /// An entry with a long value.
    pub(crate) fn with_long_value(key: Slice, pinned: &Arc<Pinned>, reference: ValueReference) -> Self {
        let pinned = Arc::clone(pinned);
        let value = LongValue { pinned, reference, told: OnceLock::new() };
        Self { key, value: Value::Long(Arc::new(value)) }
    }

    /// Heap memory of the entry in bytes, without values that have not been read.
    pub(crate) fn memory_bytes(&self) -> usize {
        let value = match &self.value {
            Value::Here(Ok(value)) => value.len(),
            _ => 0,
        };
        self.key.len() + value
    }

    /// Returns the key.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Returns the value. If it is separated, the first call reads it from the device. That read
    /// includes values of the entries that follow, if the values of earlier entries were read too.
    ///
    /// Errors: any error of the merge operator about the key's operands; `Invalid` if the operator panics or
    /// produces a value beyond 4 GiB; `Unsupported` if it is not registered; `Corruption` if the operands
    /// contradict themselves. [`Entry::base_with_operands`] returns the stored operands. No error affects the
    /// iterator.
    ///
    /// For a separated value also `Corruption` with file and offset, `Io` and `Closed`; the next call
    /// reads it again. `Invalid` for a value from an `insert_reader` that is longer than a quarter of the
    /// memory budget: [`Entry::reader`] reads it.
    pub fn value(&self) -> Result<Slice> {
        match self.known()? {
            Ok(value) => Ok(value.clone()),
            Err(unmerged) => Err(unmerged.why.clone()),
        }
    }

    /// Returns the length of the value in bytes. Reads nothing, unless operands have to be merged with a
    /// separated value.
    ///
    /// Errors: as [`Entry::value`].
    pub fn value_len(&self) -> Result<u64> {
        match &self.value {
            Value::Separated(separated) => {
                if let Some(length) = separated.stated_len() {
                    return Ok(length);
                }
            }
            Value::Long(value) => return Ok(u64::from(value.reference.length)),
            Value::Here(_) => {}
        }
        match self.known()? {
            Ok(value) => Ok(u64_of(value.len())),
            Err(unmerged) => Err(unmerged.why.clone()),
        }
    }

    /// Returns a reader of the value. A value that was written by
    /// [`Keyspace::insert_reader`](crate::Keyspace::insert_reader) is read on demand, in little memory.
    ///
    /// Errors: as [`Entry::value`], except for its limit on the length.
    pub fn reader(&self) -> Result<ValueReader> {
        match &self.value {
            Value::Long(value) => Ok(ValueReader::of_long(&value.pinned, value.reference)),
            Value::Here(_) | Value::Separated(_) => self.value().map(ValueReader::of_whole),
        }
    }

    /// Returns a reader of a long value, or the error if it cannot be read.
    pub(crate) fn long_value(&self) -> Option<Result<ValueReader>> {
        match &self.value {
            Value::Long(_) => Some(self.reader()),
            Value::Here(Err(unmerged)) if !matches!(unmerged.kind, Kind::Operands | Kind::Unmerged) => {
                Some(Err(unmerged.why.clone()))
            }
            Value::Here(_) | Value::Separated(_) => None,
        }
    }

    /// Returns key and value, without a copy.
    ///
    /// Errors: as [`Entry::value`].
    pub fn into_pair(self) -> Result<(Slice, Slice)> {
        match self.value {
            Value::Here(value) => Ok((self.key, value.map_err(|unmerged| unmerged.why)?)),
            Value::Separated(separated) => Ok((self.key, SeparatedValue::into_value(separated)?)),
            Value::Long(_) => {
                let value = self.value()?;
                Ok((self.key, value))
            }
        }
    }

    /// Returns the operands and their base as stored, if [`Entry::value`] fails because of the operands;
    /// `None` otherwise, or if the value cannot be read.
    pub fn base_with_operands(&self) -> Option<BaseWithOperands<'_>> {
        let unmerged = self.known().ok()?.as_ref().err()?;
        if !matches!(unmerged.kind, Kind::Operands | Kind::Unmerged) {
            return None;
        }
        let Stack { existing, operands } = Stack::decode(unmerged.kind, &unmerged.stack).ok()?;
        Some(BaseWithOperands { base: existing, operands })
    }

    /// Returns the value, or why there is none. Reads a separated value.
    fn known(&self) -> Result<&Told> {
        match &self.value {
            Value::Here(value) => Ok(value),
            Value::Separated(separated) => separated.get(),
            Value::Long(value) => value.get(),
        }
    }

    /// Returns the value, or the stored bytes in its place; `None` if it cannot be read.
    fn shown(&self) -> Option<(Kind, &[u8])> {
        Some(match self.known().ok()? {
            Ok(value) => (Kind::Value, value),
            Err(unmerged) => (unmerged.kind, &unmerged.stack),
        })
    }
}

impl LongValue {
    /// Returns the whole value.
    fn get(&self) -> Result<&Told> {
        if let Some(told) = self.told.get() {
            return Ok(told);
        }
        let value = self.pinned.read(|| self.pinned.read_whole(&self.reference))?;
        Ok(self.told.get_or_init(|| Ok(value)))
    }
}

impl PartialEq for Entry {
    /// Reads separated values. An entry whose value cannot be read equals only itself.
    fn eq(&self, other: &Self) -> bool {
        if let (Value::Separated(separated), Value::Separated(of_other)) = (&self.value, &other.value)
            && Arc::ptr_eq(separated, of_other)
        {
            return true;
        }
        if let (Value::Long(long), Value::Long(of_other)) = (&self.value, &other.value)
            && long.reference == of_other.reference
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
            Value::Separated(separated) => separated.get_if_read(),
            Value::Long(value) => value.told.get(),
        };
        match known {
            Some(Ok(value)) => write!(f, "{:?} = {value:?}", self.key),
            Some(Err(unmerged)) => write!(f, "{:?}: {}", self.key, unmerged.why),
            None => write!(f, "{:?}: a value not read yet", self.key),
        }
    }
}
