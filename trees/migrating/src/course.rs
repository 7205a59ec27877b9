//! The course of a migration: which keys are in which of its two trees, and the direction of the border.
//!
//! **Invariants**
//! - Each key belongs to exactly one side.

use testudo_contract::Heading;
use testudo_run::KeyBounds;

use crate::Slot;

/// One of the two trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The source.
    From,
    /// The destination.
    To,
}

/// Both, the source first.
pub(crate) const SIDES: [Side; 2] = [Side::From, Side::To];

/// The border between the trees of a moving keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Course {
    /// Going up, keys before it have moved; going down, keys from it on.
    pub(crate) border: Vec<u8>,
    pub(crate) heading: Heading,
    /// Only its own keys count in the destination tree. After a turn it may still have garbage beyond the
    /// border, which is removed before any portion is added.
    pub(crate) is_cut: bool,
    /// Slot of the source tree's objects.
    pub(crate) from: Slot,
    /// Slot of the destination tree's objects.
    pub(crate) to: Slot,
}

impl Course {
    /// Starts a migration of the tree whose objects are in `from`.
    pub fn beginning(from: Slot) -> Self {
        Self { border: Vec::new(), heading: Heading::Up, is_cut: true, from, to: from.other() }
    }

    /// Reverses the migration at the current border.
    #[must_use]
    pub fn turned(&self) -> Self {
        Self {
            border: self.border.clone(),
            heading: self.heading.reversed(),
            is_cut: false,
            from: self.to,
            to: self.from,
        }
    }

    /// Returns the course with another border.
    pub(crate) fn at(&self, border: Vec<u8>) -> Self {
        debug_assert!(
            self.keys_of(Side::From).contains(&border),
            "the border moves into the keys that are left"
        );
        Self { border, ..self.clone() }
    }

    /// Returns the keys of a side.
    pub(crate) fn keys_of(&self, side: Side) -> KeyBounds {
        let border = Some(self.border.clone());
        match (side, self.heading) {
            (Side::To, Heading::Up) | (Side::From, Heading::Down) => KeyBounds { low: None, high: border },
            (Side::From, Heading::Up) | (Side::To, Heading::Down) => KeyBounds { low: border, high: None },
        }
    }

    /// Returns the side that has `key`.
    #[inline]
    pub(crate) fn side_of(&self, key: &[u8]) -> Side {
        let is_before = key < self.border.as_slice();
        if is_before == (self.heading == Heading::Up) { Side::To } else { Side::From }
    }

    /// Returns the side with the least keys, then the other.
    pub(crate) fn in_key_order(&self) -> [Side; 2] {
        match self.heading {
            Heading::Up => [Side::To, Side::From],
            Heading::Down => [Side::From, Side::To],
        }
    }

    /// Returns the keys between the border and `next`, the border's next position; all remaining ones if
    /// there is none.
    pub(crate) fn portion_up_to(&self, next: Option<&[u8]>) -> KeyBounds {
        let rest = self.keys_of(Side::From);
        debug_assert!(next.is_none_or(|next| rest.contains(next)), "a piece is among the keys that are left");
        let next = next.map(<[u8]>::to_vec);
        match self.heading {
            Heading::Up => KeyBounds { high: next, ..rest },
            Heading::Down => KeyBounds { low: next, ..rest },
        }
    }
}

#[cfg(test)]
mod tests;
