//! Values stored apart from their entries, as far as they were found.

use testudo_base::{Kind, Result, ValueReference, planted};

use crate::salvage::{logged_values::LoggedValues, long_values::SalvagedLongValues, report::LostRange};

/// The values that entries refer to.
#[derive(Debug, Default)]
pub(crate) struct SalvagedValues {
    /// Values stored by number.
    pub(crate) logged: LoggedValues,
    /// Long values.
    pub(crate) long: SalvagedLongValues,
}

impl SalvagedValues {
    /// The loss to report for `key` if the long value that `reference` refers to is incomplete; `None` if it
    /// is complete, or not a long value.
    pub(crate) fn lost_long_value(
        &self,
        key: &[u8],
        reference: &ValueReference,
    ) -> Result<Option<LostRange>> {
        if planted!("salvaged-pieces-unchecked") {
            return Ok(None);
        }
        let missing = self.long.first_missing(reference)?;
        Ok(missing.map(|missing| self.long.lost(key, reference, missing)))
    }
}

/// The reference of an entry to a long value.
pub(crate) fn reference_to_long_value(kind: Kind, value: &[u8]) -> Option<ValueReference> {
    let reference = ValueReference::of(kind, value).ok().flatten();
    reference.filter(|reference| !reference.is_in_segment())
}

/// The value below operands if that is a long value. Operands are never written on such a value, so a
/// write in between is lost.
pub(crate) fn long_value_without_operands(kind: Kind, value: &[u8]) -> Option<(Kind, Vec<u8>)> {
    let reference = reference_to_long_value(kind, value).filter(|_| kind == Kind::UnmergedReference)?;
    let mut base = Vec::new();
    reference.encode(&mut base);
    Some((Kind::Reference, base))
}

#[cfg(test)]
mod tests;
