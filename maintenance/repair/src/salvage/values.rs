//! Values that lie elsewhere than their entries, as far as they were found.

use testudo_base::{Kind, Result, ValueReference, planted};

use crate::salvage::{logged_values::LoggedValues, pieces::SalvagedPieces, report::LostRange};

/// Where the values are to which entries refer.
#[derive(Debug, Default)]
pub(crate) struct SalvagedValues {
    /// Those that lie under their numbers.
    pub(crate) logged: LoggedValues,
    /// Those in pieces.
    pub(crate) pieces: SalvagedPieces,
}

impl SalvagedValues {
    /// What is lost of `key` because the value in pieces that `reference` leads to is not whole; `None` if it
    /// is, or if it leads to another one.
    pub(crate) fn lost_pieces(&self, key: &[u8], reference: &ValueReference) -> Result<Option<LostRange>> {
        if planted!("salvaged-pieces-unchecked") {
            return Ok(None);
        }
        let missing = self.pieces.first_missing(reference)?;
        Ok(missing.map(|piece| self.pieces.lost(key, reference, piece)))
    }
}

/// The reference of an entry that leads to a value in pieces.
pub(crate) fn reference_to_pieces(kind: Kind, value: &[u8]) -> Option<ValueReference> {
    let reference = ValueReference::of(kind, value).ok().flatten();
    reference.filter(|reference| reference.pieces().is_some())
}

/// The value below operands, where that is one in pieces: upon these no operand was ever written, so that
/// a write between them is lost.
pub(crate) fn pieces_without_operands(kind: Kind, value: &[u8]) -> Option<(Kind, Vec<u8>)> {
    let reference = reference_to_pieces(kind, value).filter(|_| kind == Kind::UnmergedReference)?;
    let mut base = Vec::new();
    reference.encode(&mut base);
    Some((Kind::Reference, base))
}

#[cfg(test)]
mod tests;
