//! Names of the keyspaces in which a salvage puts older versions of another one's records.

use std::collections::BTreeSet;

use super::pieces::KEYSPACE_NAME_BYTES_MAX;

/// What follows the name of the other keyspace.
const SUFFIX: &str = ".older";
/// What a name begins with where that is taken or too long.
const PREFIX: &str = "older-";

/// A name like `name` that no keyspace has.
pub fn name_beside(name: &str, id: u32, taken: &BTreeSet<String>) -> String {
    let is_free = |name: &String| name.len() <= KEYSPACE_NAME_BYTES_MAX && !taken.contains(name);
    let numbered = (0_u32..).map(|number| format!("{PREFIX}{id}-{number}"));
    let mut names = std::iter::once(format!("{name}{SUFFIX}")).chain(numbered);
    names.find(is_free).unwrap_or_default()
}

/// Whether a keyspace called `other` may have older versions of what `name` has.
pub fn may_be_beside(other: &str, name: &str) -> bool {
    other.strip_suffix(SUFFIX) == Some(name) || other.starts_with(PREFIX)
}
