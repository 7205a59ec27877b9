//! Names of the keyspaces in which salvage stores older versions of another keyspace's records.

use std::collections::BTreeSet;

use super::long_values::KEYSPACE_NAME_BYTES_MAX;

/// Suffix after the name of the other keyspace.
const SUFFIX: &str = ".older";
/// Prefix of a name if that one is taken or too long.
const PREFIX: &str = "older-";

/// A name derived from `name` that is not taken.
pub fn name_beside(name: &str, id: u32, taken: &BTreeSet<String>) -> String {
    let is_free = |name: &String| name.len() <= KEYSPACE_NAME_BYTES_MAX && !taken.contains(name);
    let numbered = (0_u32..).map(|number| format!("{PREFIX}{id}-{number}"));
    let mut names = std::iter::once(format!("{name}{SUFFIX}")).chain(numbered);
    names.find(is_free).unwrap_or_default()
}

/// Whether the keyspace `other` may have older versions of records of `name`.
pub fn may_be_beside(other: &str, name: &str) -> bool {
    other.strip_suffix(SUFFIX) == Some(name) || other.starts_with(PREFIX)
}
