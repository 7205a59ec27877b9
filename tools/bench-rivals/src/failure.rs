//! What other libraries say went wrong, as an error of ours.

use std::{fmt::Display, io};

use testudo::Error;

/// Makes an error of what `place` said.
pub(crate) fn failed<E: Display>(place: &str) -> impl Fn(E) -> Error + '_ {
    move |error| Error::io(place, io::Error::other(error.to_string()))
}
