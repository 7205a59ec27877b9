//! Verification and scrubbing: finds damage in an open store and reports it.

pub(crate) mod findings;
pub(crate) mod scrub;
pub(crate) mod values;
pub(crate) mod verify;
