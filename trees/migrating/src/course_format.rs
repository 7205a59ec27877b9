//! Encoding of the object with the course of a migration, known only to this file.
//!
//! format u8 = 1 · slot of the source tree u8 · slot of the destination tree u8 · flags u8, 1 if the
//! border goes down + 2 if the destination tree has entries beyond the border that must be cut off · border,
//! u32 length and bytes.
//!
//! **Invariants**
//! - A decoded course has two slots of trees, and a valid border.

use testudo_base::{
    MAX_KEY_BYTES,
    codec::{self, Damage, Reader},
};
use testudo_contract::Heading;

use crate::{Course, Slot};

const FORMAT: u8 = 1;
const GOES_DOWN: u8 = 1;
const IS_UNCUT: u8 = 2;

impl Course {
    /// Encodes the course for the manifest.
    pub fn encode(&self) -> Vec<u8> {
        let down = if self.heading == Heading::Down { GOES_DOWN } else { 0 };
        let uncut = if self.is_cut { 0 } else { IS_UNCUT };
        let mut out = vec![FORMAT, self.from.number(), self.to.number(), down | uncut];
        codec::put_bytes(&mut out, &self.border);
        out
    }

    /// Decodes a course.
    ///
    /// Errors: [`Damage`] if [`Course::encode`] cannot have written `bytes`.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != FORMAT {
            return Err(Damage("unknown format of a border"));
        }
        let slot = |number: u8| Slot::of_tree(number).ok_or(Damage("a tree has no such slot"));
        let (from, to) = (slot(reader.u8()?)?, slot(reader.u8()?)?);
        let flags = reader.u8()?;
        if from == to || flags > GOES_DOWN + IS_UNCUT {
            return Err(Damage("a border between impossible trees"));
        }
        let border = reader.bytes(MAX_KEY_BYTES)?.to_vec();
        reader.finish()?;
        let heading = if flags & GOES_DOWN == 0 { Heading::Up } else { Heading::Down };
        Ok(Self { border, heading, is_cut: flags & IS_UNCUT == 0, from, to })
    }
}

#[cfg(test)]
mod tests;
