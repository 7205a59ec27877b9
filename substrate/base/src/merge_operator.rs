//! Merge operators: what turns a value and the operands written on top of it into a value (PAPERS S9, "update
//! messages").
//!
//! An operand is written without reading. It waits in write buffers and trees until somebody reads the key,
//! or work in the background meets it together with what it changes.
//!
//! **Invariants**
//! - An operator is asked for any division of a key's operands, in their order; whether it was asked early or
//!   late makes no difference to the answer.
//! - What cannot be merged stays as it is: without its operator a keyspace loses nothing.

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
/// It must be a function of its arguments alone, and indifferent to where a list is cut: `merge(v, [a, b])`
/// is `merge(merge(v, [a]), [b])`, and `merge(v, [combine([a, b])])`. It runs under locks: it must not call
/// the store. One that panics in `merge` or `combine` has refused.
pub trait MergeOperator: Send + Sync + fmt::Debug {
    /// Its name, which the keyspaces that use it state for good. A change of what it does is another name.
    fn name(&self) -> &str;

    /// Checks an operand before it is written. By default any is accepted.
    ///
    /// Errors: of any kind, `Invalid` as a rule. `merge` of a keyspace returns it with keyspace and key
    /// before the message, and writes nothing.
    fn check_operand(&self, key: &[u8], operand: &[u8]) -> Result<()> {
        let _ = (key, operand);
        Ok(())
    }

    /// Checks a value before it is written whole. By default any is accepted. An operator whose `merge`
    /// refuses some values should refuse them here: otherwise they are found out when an operand has been
    /// written on top of them.
    ///
    /// Errors: of any kind, `Invalid` as a rule. `insert` and `update` of a keyspace return it with keyspace
    /// and key before the message, and write nothing.
    fn check_value(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let _ = (key, value);
        Ok(())
    }

    /// The value of `key` after `operands`, oldest first, on top of `existing` (`None`: no value).
    ///
    /// Errors: of any kind, `Invalid` as a rule. Reads of the key return it, with keyspace and key before the
    /// message, until the key is written anew or removed; the operands are kept, and scans show them as they
    /// are. A panic counts as `Invalid`.
    fn merge(&self, key: &[u8], existing: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>>;

    /// One operand that does what these do, oldest first; `None` where there is none. Keeps lists of operands
    /// short.
    fn combine(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let _ = (key, operands);
        None
    }
}

/// `add-u64`: values and operands are 64-bit numbers, little-endian, added with wrap-around; no value is 0.
#[derive(Debug)]
struct AddU64;

fn number(what: &str, bytes: &[u8]) -> Result<u64> {
    let bytes = <[u8; 8]>::try_from(bytes);
    bytes.map(u64::from_le_bytes).map_err(|_| Error::invalid(format!("add-u64: {what} is not of 8 bytes")))
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

/// `append`: operands go behind the value. Values and operands are any bytes; no value is an empty one.
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

/// `max` and `min`: the greatest or the least of value and operands, any bytes, in the order of bytes:
/// numbers must be big-endian and of one width. No value counts for neither.
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

/// An operator made of a function.
pub struct MergeFunction<F> {
    name: String,
    function: F,
}

impl<F> MergeFunction<F>
where
    F: Fn(&[u8], Option<&[u8]>, &[&[u8]]) -> Result<Vec<u8>> + Send + Sync,
{
    /// `function` is [`MergeOperator::merge`].
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

/// The operators that a store knows, by name. Those that need no registering:
///
/// - `add-u64`: exactly 8 bytes, an unsigned number, little-endian; others are refused when they are written.
///   The operand is added and the sum wraps around; no value is 0.
/// - `append`: any bytes. The operand goes behind the value; no value is an empty one.
/// - `max`: any bytes. The greater in the order of bytes stays: for numbers write them big-endian and of one
///   width. On no value the operand is the value.
/// - `min`: any bytes. The lesser in the same order stays.
#[derive(Clone, Debug)]
pub struct MergeOperators(BTreeMap<String, Arc<dyn MergeOperator>>);

impl Default for MergeOperators {
    /// The built-in ones. One that is added here is added to the list above.
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
    /// Adds one, in place of another one of that name.
    pub fn register(&mut self, operator: Arc<dyn MergeOperator>) {
        self.0.insert(operator.name().to_owned(), operator);
    }

    /// The names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// How the keyspace of this name merges, which states this operator; for use apart from a store.
    pub fn full_merge(&self, keyspace: &str, name: Option<&str>) -> Arc<FullMerge> {
        self.full_merge_of_store(&Arc::from(keyspace), name, &Arc::default())
    }

    /// The same in a store, which `oversized` belongs to.
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

/// How the operands of one keyspace become values.
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
    /// The operator.
    ///
    /// Errors: `Unsupported` if the keyspace has none, or one that is not known here.
    pub fn operator(&self) -> Result<&dyn MergeOperator> {
        if let Some(operator) = &self.operator {
            return Ok(&**operator);
        }
        let message = match &self.name {
            Some(name) => format!("its merge operator {name:?} is not registered"),
            None => "it has no merge operator, which is chosen when a keyspace is created".to_owned(),
        };
        Err(Error::new(ErrorKind::Unsupported, message))
    }

    /// Checks an operand before it is written.
    ///
    /// Errors: as [`FullMerge::operator`], and what the operator says, with keyspace and key.
    pub fn check_operand(&self, key: &[u8], operand: &[u8]) -> Result<()> {
        let operator = self.operator().map_err(|error| self.about(key, error))?;
        if planted!("refused-operand-written") {
            return Ok(());
        }
        operator.check_operand(key, operand).map_err(|error| self.about(key, error))
    }

    /// Checks a value before it is written whole; without the operator any is accepted.
    ///
    /// Errors: what the operator says, with keyspace and key.
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

    /// Whether it is there.
    pub fn has_operator(&self) -> bool {
        self.operator.is_some()
    }

    /// Somebody saw a whole value of so many bytes, on top of which operands may come.
    #[inline]
    pub fn record_value(&self, key: &[u8], bytes: usize) {
        if self.operator.is_some() {
            self.oversized.check(key, bytes);
        }
    }

    /// The value that an entry with operands stands for, if nothing older is said about its key than it says.
    ///
    /// A value longer than the store's longest is given like any other: its operands were accepted when
    /// nobody knew. Its key, and one whose operands cannot be merged, is noted for the next operand.
    ///
    /// Errors, which name keyspace and key: `Unsupported` without the operator; what the operator says;
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

    /// An entry that says the same in fewer bytes, most likely; `None` if it stays as it is.
    ///
    /// With `is_oldest` nothing older is said about the key anywhere; then the answer needs nothing older
    /// either.
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
