//! Where a moving keyspace stands: which keys are in which of its two trees, and which way the border goes.
//!
//! **Invariants**
//! - Each key belongs to exactly one side.

use testudo_contract::Heading;
use testudo_run::KeyBounds;

use crate::Slot;

/// One of the two trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The one that is left.
    From,
    /// The one where the keyspace goes.
    To,
}

/// Both, that which is left first.
pub(crate) const SIDES: [Side; 2] = [Side::From, Side::To];

/// The border between the trees of a moving keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Course {
    /// Going up, keys before it have moved; going down, it and those behind it.
    pub(crate) border: Vec<u8>,
    pub(crate) heading: Heading,
    /// Nothing counts in the tree where the keyspace goes but its own keys. After a turn it may still have
    /// dead entries beyond the border, which go before anything is put there.
    pub(crate) is_cut: bool,
    /// The objects of the tree that is left.
    pub(crate) from: Slot,
    /// The objects of the tree where the keyspace goes.
    pub(crate) to: Slot,
}

impl Course {
    /// Nothing has moved yet out of the tree whose objects are in `from`.
    pub fn beginning(from: Slot) -> Self {
        Self { border: Vec::new(), heading: Heading::Up, is_cut: true, from, to: from.other() }
    }

    /// Back to where the keyspace comes from, from here.
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

    /// With another border.
    pub(crate) fn at(&self, border: Vec<u8>) -> Self {
        Self { border, ..self.clone() }
    }

    /// The keys of a side.
    pub(crate) fn keys_of(&self, side: Side) -> KeyBounds {
        let border = Some(self.border.clone());
        match (side, self.heading) {
            (Side::To, Heading::Up) | (Side::From, Heading::Down) => KeyBounds { low: None, high: border },
            (Side::From, Heading::Up) | (Side::To, Heading::Down) => KeyBounds { low: border, high: None },
        }
    }

    /// The side that has `key`.
    #[inline]
    pub(crate) fn side_of(&self, key: &[u8]) -> Side {
        let is_before = key < self.border.as_slice();
        if is_before == (self.heading == Heading::Up) { Side::To } else { Side::From }
    }

    /// The side that has the least keys, then the other.
    pub(crate) fn in_key_order(&self) -> [Side; 2] {
        match self.heading {
            Heading::Up => [Side::To, Side::From],
            Heading::Down => [Side::From, Side::To],
        }
    }

    /// The keys between the border and `next`, which is where it goes; all that is left, if there is no next.
    pub(crate) fn piece_up_to(&self, next: Option<&[u8]>) -> KeyBounds {
        let rest = self.keys_of(Side::From);
        let next = next.map(<[u8]>::to_vec);
        match self.heading {
            Heading::Up => KeyBounds { high: next, ..rest },
            Heading::Down => KeyBounds { low: next, ..rest },
        }
    }
}

#[cfg(test)]
mod tests;
