//! Looking for damage, and what can be done about it.

pub(crate) mod findings;
pub(crate) mod scrub;
pub(crate) mod values;
pub(crate) mod verify;
