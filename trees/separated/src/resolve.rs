//! Replaces a reference with its value.

use testudo_base::{
    Entry, Error, ErrorKind, Kind, Result, ValueReference, codec::Damage, operands_format::with_value_read,
};
use testudo_run::Access;
use testudo_storage::Neighbours;
use testudo_values::SegmentSet;

/// Returns the tree's entry with the value that it refers to, and the number of other lookups of that value's
/// page; `None` if a page is missing, which was noted.
pub(crate) fn resolve(
    segments: &SegmentSet,
    entry: &Entry<'_>,
    access: Access<'_>,
) -> Result<Option<(Kind, Vec<u8>, Neighbours)>> {
    let reference = ValueReference::of(entry.kind, entry.value).map_err(damaged)?;
    let Some(reference) = reference else {
        return Err(damaged(Damage("a value of a segment where entries are")));
    };
    let Some((value, neighbours)) = segments.read(entry.key, &reference, access)? else { return Ok(None) };
    Ok(Some(match entry.kind {
        Kind::UnmergedReference => {
            (Kind::Unmerged, with_value_read(entry.value, &value).map_err(damaged)?, neighbours)
        }
        _ => (Kind::Value, value, neighbours),
    }))
}

/// Converts damage of an entry to `Corruption`.
pub(crate) fn damaged(Damage(why): Damage) -> Error {
    Error::new(ErrorKind::Corruption, format!("an entry of a tree: {why}"))
}
