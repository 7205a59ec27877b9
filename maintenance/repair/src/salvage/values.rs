//! Values stored apart from their entries, as far as they were found.

use testudo_base::{Kind, Result, ValueReference, planted};

use crate::salvage::{logged_values::LoggedValues, pieces::SalvagedPieces, report::LostRange};

/// The values that entries refer to.
#[derive(Debug, Default)]
pub(crate) struct SalvagedValues {
    /// Values stored by number.
    pub(crate) logged: LoggedValues,
    /// Values in pieces.
    pub(crate) pieces: SalvagedPieces,
}

impl SalvagedValues {
    /// The loss to report for `key` if the value in pieces that `reference` refers to is incomplete; `None`
    /// if it is complete, or not a value in pieces.
    pub(crate) fn lost_pieces(&self, key: &[u8], reference: &ValueReference) -> Result<Option<LostRange>> {
        if planted!("salvaged-pieces-unchecked") {
            return Ok(None);
        }
        let missing = self.pieces.first_missing(reference)?;
        Ok(missing.map(|piece| self.pieces.lost(key, reference, piece)))
    }
}

/// The reference of an entry to a value in pieces.
pub(crate) fn reference_to_pieces(kind: Kind, value: &[u8]) -> Option<ValueReference> {
    let reference = ValueReference::of(kind, value).ok().flatten();
    reference.filter(|reference| reference.pieces().is_some())
}

/// The value below operands if that is a value in pieces. Operands are never written on such a value, so a
/// write in between is lost.
pub(crate) fn pieces_without_operands(kind: Kind, value: &[u8]) -> Option<(Kind, Vec<u8>)> {
    let reference = reference_to_pieces(kind, value).filter(|_| kind == Kind::UnmergedReference)?;
    let mut base = Vec::new();
    reference.encode(&mut base);
    Some((Kind::Reference, base))
}

#[cfg(test)]
mod tests;
