//! Merge operators: they turn a value and the operands on top of it into a value (PAPERS S9, "update
//! messages").
//!
//! An operand is written without a read. It stays in write buffers and trees until the key is read, or until
//! background work meets it together with the value it changes.
//!
//! **Invariants**
//! - An operator may be called for any division of a key's operands, in their order; whether it runs early or
//!   late makes no difference to the result.
//! - Operands that cannot be merged stay unchanged: without its operator a keyspace loses nothing.

use std::{
    collections::BTreeMap,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use crate::{
    Entry, Error, ErrorKind, Kind, MAX_VALUE_BYTES, Result,
    num::u64_of,
    operands_format::{Stack, begin_stack, encode_operand},
    oversized_keys::OversizedKeys,
    planted,
};

/// Merges operands into values.
///
/// It must depend only on its arguments, and the result must not depend on how a list is split: `merge(v, [a,
/// b])` is `merge(merge(v, [a]), [b])`, and `merge(v, [combine([a, b])])`. It runs under locks: it must not
/// call the store. A panic in `merge` or `combine` counts as a refusal.
pub trait MergeOperator: Send + Sync + fmt::Debug {
    /// Its name, which the keyspaces that use it persist permanently. A change of behavior requires a new
    /// name.
    fn name(&self) -> &str;

    /// Checks an operand before it is written. By default all operands are accepted.
    ///
    /// Errors: of any kind, usually `Invalid`. `merge` of a keyspace prepends the keyspace to the message,
    /// attaches the key, returns the error, and writes nothing.
    fn check_operand(&self, key: &[u8], operand: &[u8]) -> Result<()> {
        let _ = (key, operand);
        Ok(())
    }

    /// Checks a value before it is written whole. By default all values are accepted. An operator whose
    /// `merge` refuses some values should refuse them here: otherwise they are detected only after an operand
    /// has been written on top of them.
    ///
    /// Errors: of any kind, usually `Invalid`. `insert` and `update` of a keyspace prepend the keyspace to
    /// the message, attach the key, return the error, and write nothing.
    fn check_value(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let _ = (key, value);
        Ok(())
    }

    /// Returns the value of `key` after `operands`, oldest first, on top of `existing` (`None`: no value).
    ///
    /// Errors: of any kind, usually `Invalid`. Reads of the key return it, with the keyspace before the
    /// message and the key attached, until the key is overwritten or removed. The operands are kept, and
    /// scans return them unmerged. A panic counts as `Invalid`.
    fn merge(&self, key: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>>;

    /// Combines operands, oldest first, into one with the same effect; `None` if there is none. Keeps lists
    /// of operands short.
    fn combine(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let _ = (key, operands);
        None
    }
}

/// `add-u64`: values and operands are 64-bit little-endian integers, added with wrap-around; a missing value
/// is 0.
#[derive(Debug)]
struct AddU64;

fn number(what: &str, bytes: &[u8]) -> Result<u64> {
    let bytes = <[u8; 8]>::try_from(bytes);
    bytes.map(u64::from_le_bytes).map_err(|_| Error::invalid(format!("add-u64: {what} is not 8 bytes long")))
}

impl MergeOperator for AddU64 {
    fn name(&self) -> &'static str {
        "add-u64"
    }

    fn check_operand(&self, _: &[u8], operand: &[u8]) -> Result<()> {
        number("an operand", operand).map(|_| ())
    }

    fn check_value(&self, _: &[u8], value: &[u8]) -> Result<()> {
        number("a value", value).map(|_| ())
    }

    fn merge(&self, _: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>> {
        let mut sum = existing.map_or(Ok(0), |existing| number("the value", existing))?;
        for operand in operands {
            sum = sum.wrapping_add(number("an operand", operand)?);
        }
        Ok(sum.to_le_bytes().to_vec())
    }

    fn combine(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.merge(key, None, operands).ok()
    }
}

/// `append`: operands are appended to the value. Values and operands are any bytes; a missing value is empty.
#[derive(Debug)]
struct Append;

impl MergeOperator for Append {
    fn name(&self) -> &'static str {
        "append"
    }

    fn merge(&self, _: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>> {
        let mut value = existing.unwrap_or_default().to_vec();
        value.reserve_exact(operands.iter().map(|operand| operand.len()).sum());
        operands.iter().for_each(|operand| value.extend_from_slice(operand));
        Ok(value)
    }

    fn combine(&self, _: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        Some(operands.concat())
    }
}

/// `max` and `min`: the greatest or the least of value and operands in byte order. Numbers must be big-endian
/// and of equal width. A missing value is ignored.
#[derive(Debug)]
struct Extreme {
    is_max: bool,
}

impl MergeOperator for Extreme {
    fn name(&self) -> &'static str {
        if self.is_max { "max" } else { "min" }
    }

    fn merge(&self, _: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>> {
        let all = operands.iter().copied().chain(existing);
        let chosen = if self.is_max { all.max() } else { all.min() };
        Ok(chosen.unwrap_or_default().to_vec())
    }

    fn combine(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        self.merge(key, None, operands).ok()
    }
}

/// An operator implemented by a function.
pub struct MergeFunction<F> {
    name: String,
    function: F,
}

impl<F> MergeFunction<F>
where
    F: Fn(&[u8], Option<&[u8]>, &[&[u8]]) -> Result<Vec<u8>> + Send + Sync,
{
    /// An operator named `name`; `function` implements [`MergeOperator::merge`].
    pub fn new(name: &str, function: F) -> Self {
        Self { name: name.to_owned(), function }
    }
}

impl<F> fmt::Debug for MergeFunction<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MergeFunction({:?})", self.name)
    }
}

impl<F> MergeOperator for MergeFunction<F>
where
    F: Fn(&[u8], Option<&[u8]>, &[&[u8]]) -> Result<Vec<u8>> + Send + Sync,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn merge(&self, key: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>> {
        (self.function)(key, existing, operands)
    }
}

/// The operators of a store, by name. Built-in ones, which need no registration:
///
/// - `add-u64`: values and operands are exactly 8 bytes, an unsigned little-endian integer; others are
///   refused on write. The operand is added with wrap-around; a missing value is 0.
/// - `append`: any bytes. The operand is appended to the value; a missing value is empty.
/// - `max`: any bytes. The greater one in byte order stays: write numbers big-endian and with equal width.
///   With a missing value, the operand becomes the value.
/// - `min`: any bytes. The lesser one in byte order stays.
#[derive(Clone, Debug)]
pub struct MergeOperators(BTreeMap<String, Arc<dyn MergeOperator>>);

impl Default for MergeOperators {
    /// The built-in operators. Keep the list above in sync.
    fn default() -> Self {
        let mut operators = Self(BTreeMap::new());
        operators.register(Arc::new(AddU64));
        operators.register(Arc::new(Append));
        operators.register(Arc::new(Extreme { is_max: true }));
        operators.register(Arc::new(Extreme { is_max: false }));
        operators
    }
}

impl MergeOperators {
    /// Registers an operator, replacing another one with its name.
    pub fn register(&mut self, operator: Arc<dyn MergeOperator>) {
        debug_assert!(!operator.name().is_empty(), "an operator has a name");
        self.0.insert(operator.name().to_owned(), operator);
    }

    /// The names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns the merge behavior of a keyspace with this operator; for use outside of a store.
    pub fn full_merge(&self, keyspace: &str, name: Option<&str>) -> Arc<FullMerge> {
        self.full_merge_of_store(&Arc::from(keyspace), name, &Arc::default())
    }

    /// Like [`MergeOperators::full_merge`], within the store that owns `oversized`.
    pub fn full_merge_of_store(
        &self,
        keyspace: &Arc<str>,
        name: Option<&str>,
        oversized: &Arc<OversizedKeys>,
    ) -> Arc<FullMerge> {
        let operator = name.and_then(|name| self.0.get(name)).cloned();
        let (keyspace, name) = (Arc::clone(keyspace), name.map(Box::from));
        Arc::new(FullMerge { keyspace, name, operator, oversized: Arc::clone(oversized) })
    }
}

/// Merges the operands of one keyspace into values.
#[derive(Debug)]
pub struct FullMerge {
    /// For messages.
    keyspace: Arc<str>,
    name: Option<Box<str>>,
    operator: Option<Arc<dyn MergeOperator>>,
    oversized: Arc<OversizedKeys>,
}

impl Default for FullMerge {
    fn default() -> Self {
        Self { keyspace: Arc::from(""), name: None, operator: None, oversized: Arc::default() }
    }
}

impl FullMerge {
    /// Returns the operator.
    ///
    /// Errors: `Unsupported` if the keyspace has none, or one that is not registered here.
    pub fn operator(&self) -> Result<&dyn MergeOperator> {
        if let Some(operator) = &self.operator {
            return Ok(&**operator);
        }
        let message = match &self.name {
            Some(name) => format!("its merge operator {name:?} is not registered"),
            None => "it has no merge operator; one is chosen when a keyspace is created".to_owned(),
        };
        Err(Error::new(ErrorKind::Unsupported, message))
    }

    /// Checks an operand before it is written.
    ///
    /// Errors: as [`FullMerge::operator`], and errors of the operator, with keyspace and key.
    pub fn check_operand(&self, key: &[u8], operand: &[u8]) -> Result<()> {
        let operator = self.operator().map_err(|error| self.about(key, error))?;
        if planted!("refused-operand-written") {
            return Ok(());
        }
        operator.check_operand(key, operand).map_err(|error| self.about(key, error))
    }

    /// Checks a value before it is written whole; without the operator all values are accepted.
    ///
    /// Errors: errors of the operator, with keyspace and key.
    #[inline]
    pub fn check_value(&self, key: &[u8], value: &[u8]) -> Result<()> {
        match &self.operator {
            Some(operator) if !planted!("refused-value-written") => {
                operator.check_value(key, value).map_err(|error| self.about(key, error))
            }
            _ => Ok(()),
        }
    }

    #[cold]
    fn about(&self, key: &[u8], error: Error) -> Error {
        error.context(&format!("keyspace {:?}", self.keyspace)).about_key(key)
    }

    /// Whether the operator is available.
    pub fn has_operator(&self) -> bool {
        self.operator.is_some()
    }

    /// Records the size of a whole value that was read and may get operands on top.
    #[inline]
    pub fn record_value(&self, key: &[u8], bytes: usize) {
        if self.operator.is_some() {
            self.oversized.check(key, bytes);
        }
    }

    /// Merges an entry with operands into a value, assuming that nothing older exists for its key.
    ///
    /// A value above the store's limit is returned like any other: its operands were accepted before their
    /// result was known. Its key is recorded for the check of the next operand, and so is a key whose
    /// operands cannot be merged.
    ///
    /// Errors, which name keyspace and key: `Unsupported` without the operator; errors of the operator;
    /// `Invalid` for a value beyond 4 GiB; `Corruption`.
    pub fn merge(&self, entry: &Entry<'_>) -> Result<Vec<u8>> {
        let value = self.try_merge(entry);
        match &value {
            Ok(value) => self.oversized.check(entry.key, value.len()),
            Err(_) => self.oversized.note(entry.key),
        }
        value.map_err(|error| self.about(entry.key, error))
    }

    fn try_merge(&self, entry: &Entry<'_>) -> Result<Vec<u8>> {
        let operator = self.operator()?;
        let mut stack = Stack::decode(entry.kind, entry.value)
            .map_err(|damage| Error::new(ErrorKind::Corruption, format!("operands: {}", damage.0)))?;
        if planted!("operands-in-reverse") {
            stack.operands.reverse();
        }
        // A panic must not unwind through a commit.
        let merge = || operator.merge(entry.key, stack.existing, &stack.operands);
        let answer = catch_unwind(AssertUnwindSafe(merge));
        let value =
            answer.unwrap_or_else(|_| Err(Error::invalid("the operator panicked"))).and_then(|value| {
                let fits = u64_of(value.len()) <= MAX_VALUE_BYTES;
                if fits { Ok(value) } else { Err(Error::invalid("the value is too long")) }
            });
        value.map_err(|error| {
            error.context(&format!("{} over {} operands", operator.name(), stack.operands.len()))
        })
    }

    /// Returns an equivalent entry, most likely with fewer bytes; `None` if the entry stays unchanged.
    ///
    /// `is_oldest` states that nothing older exists for the key; the result then needs nothing older either.
    pub fn try_full_merge(&self, entry: &Entry<'_>, is_oldest: bool) -> Option<(Kind, Vec<u8>)> {
        let fits = |value: &Vec<u8>| self.oversized.may_become(entry.value.len(), value.len());
        match entry.kind {
            Kind::Value | Kind::Tombstone | Kind::Reference | Kind::UnmergedReference | Kind::Referred => {
                None
            }
            Kind::Unmerged => Some((Kind::Value, self.merge(entry).ok().filter(fits)?)),
            Kind::Operands if is_oldest => {
                let whole = |value| (Kind::Value, value);
                let kept = || {
                    let mut stack = Vec::with_capacity(entry.value.len() + 1);
                    let kind = begin_stack(Kind::Tombstone, &[], &mut stack);
                    stack.extend_from_slice(entry.value);
                    (kind, stack)
                };
                Some(self.merge(entry).ok().filter(fits).map_or_else(kept, whole))
            }
            Kind::Operands => {
                let stack = Stack::decode(entry.kind, entry.value).ok().filter(|s| s.operands.len() > 1)?;
                let operator = self.operator.as_ref()?;
                let combine = || operator.combine(entry.key, &stack.operands);
                let combined = catch_unwind(AssertUnwindSafe(combine)).ok().flatten();
                let list = combined.map(|combined| encode_operand(&combined)).filter(fits);
                self.oversized.check(entry.key, list.as_ref().map_or(entry.value.len(), Vec::len));
                Some((Kind::Operands, list?))
            }
        }
    }
}

#[cfg(test)]
mod tests;
