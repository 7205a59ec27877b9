//! Conversion of other libraries' errors into ours.

use std::{fmt::Display, io};

use testudo::Error;

/// Wraps an error reported by `place`.
pub(crate) fn failed<E: Display>(place: &str) -> impl Fn(E) -> Error + '_ {
    move |error| Error::io(place, io::Error::other(error.to_string()))
}
