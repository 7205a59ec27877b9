//! Bytes of a keyspace's options in the catalogue. Only this file knows them; docs/FORMAT.md repeats them.
//!
//! - turtle (1) and splinter (2): tree u8 · leaf bytes u64 · maximum pivots u64 · name of the merge
//!   operator (UTF-8), if any, to the end.
//! - Before a tree: the placement, see `options_format/placement_format.rs`.
//! - Every other tree: tree u8 · length of its settings u16 · settings · length of the merge operator's
//!   name u16, 0 without one · name (UTF-8).
//! - A keyspace that moves between two trees (4), or has moved: the settings are the options of both trees,
//!   without a merge operator, each preceded by its length u16: those of the source, empty if the move has
//!   ended, then those of the target.
//!
//! **Invariants**
//! - Bytes of a newer version are distinguished from damaged ones: an unknown tree, settings longer than the
//!   known ones, and anything after the name.
//! - Decoded options are within their limits.

use testudo_base::{
    Error, ErrorKind, KeyspaceId,
    codec::{self, Damage, Reader},
    num::{u16_of, usize_of},
    planted,
};
use testudo_values::Placement;

mod placement_format;

use self::placement_format::Placed;
use crate::{
    keyspace_options::KeyspaceOptions,
    passage::Passage,
    stored_options::StoredOptions,
    tree::{Forecast, Stage, Tree, TreeKind, TreelineOptions},
};

const TURTLE: u8 = 1;
const SPLINTER: u8 = 2;
const LEVELED: u8 = 3;
const MOVING: u8 = 4;
const LSBM: u8 = 5;
const TREELINE: u8 = 6;

/// Why the options of a keyspace cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// No version writes such bytes.
    Damaged(Damage),
    /// Valid as far as this version can tell, but written by a later one.
    Newer(&'static str),
}

impl From<Damage> for Unreadable {
    fn from(damage: Damage) -> Self {
        Self::Damaged(damage)
    }
}

impl Unreadable {
    /// The error for a reader of `file`.
    pub fn into_error(self, file: &str, keyspace: KeyspaceId) -> Error {
        match self {
            Self::Damaged(Damage(why)) => Error::corruption(file, 0, format!("keyspace {keyspace}: {why}")),
            Self::Newer(what) => {
                let message = format!("{file}: keyspace {keyspace} has {what}: a newer version is needed");
                Error::new(ErrorKind::Unsupported, message)
            }
        }
    }
}

impl StoredOptions {
    /// Encodes the options for the catalogue.
    pub fn encode(&self) -> Vec<u8> {
        let bytes = self.encoded();
        debug_assert!(
            Self::decode(&bytes).is_ok_and(|decoded| decoded == *self)
                || self.validate().is_err()
                || planted!("moved-thresholds-forgotten"),
            "settings within their limits survive encoding"
        );
        bytes
    }

    fn encoded(&self) -> Vec<u8> {
        let operator = self.merge_operator_name().unwrap_or_default().as_bytes();
        let mut out = Vec::new();
        placement_format::encode(&mut out, self);
        if self.passage() != Passage::Never {
            let of_tree = |tree| {
                let inline = KeyspaceOptions::default().tree(tree).placement(Placement::inline());
                Self::from(inline).encode()
            };
            let mut settings = Vec::new();
            put_short(&mut settings, &self.moving_from().map(of_tree).unwrap_or_default());
            put_short(&mut settings, &of_tree(self.tree()));
            out.push(MOVING);
            put_short(&mut out, &settings);
            put_short(&mut out, operator);
            return out;
        }
        let tree = self.tree();
        let mut settings = Vec::new();
        tree.settings().into_iter().for_each(|(_, value)| codec::put_u64(&mut settings, value));
        let tag = tag_of(tree.kind());
        out.push(tag);
        if tag == TURTLE || tag == SPLINTER {
            out.extend_from_slice(&settings);
            out.extend_from_slice(operator);
        } else {
            put_short(&mut out, &settings);
            put_short(&mut out, operator);
        }
        out
    }

    /// Decodes bytes of the catalogue.
    ///
    /// Errors: [`Unreadable`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Unreadable> {
        let mut reader = Reader::new(bytes);
        let mut tag = reader.u8()?;
        let mut placed = Placed::from(Placement::inline());
        if let Some(found) = placement_format::decode(tag, &mut reader)? {
            placed = found;
            tag = reader.u8()?;
        }
        let mut passage = Passage::Never;
        let (tree, operator) = match tag {
            TURTLE | SPLINTER => {
                let tree = if tag == TURTLE { Tree::turtle() } else { Tree::splinter() };
                let tree = tree.with_run_bytes(reader.u64()?).with_max_pivots(usize_of(reader.u64()?));
                (tree, reader.rest())
            }
            LEVELED | LSBM | TREELINE => {
                let mut settings = Reader::new(short(&mut reader)?);
                let run_bytes = settings.u64()?;
                let (growth_factor, level1_flushes) = (narrow(settings.u64()?)?, narrow(settings.u64()?)?);
                let tree = match tag {
                    LEVELED => Tree::leveled(),
                    TREELINE => Tree::treeline(),
                    _ => Tree::lsbm().with_retained_percent(narrow(settings.u64()?)?),
                };
                let tree = tree.with_run_bytes(run_bytes).with_growth_factor(growth_factor);
                let mut tree = tree.with_level1_flushes(level1_flushes);
                if tag == TREELINE && !settings.is_empty() {
                    let mut pages = TreelineOptions::new().with_stage(match settings.u64()? {
                        0 => Stage::All,
                        1 => Stage::Sparse,
                        _ => return Err(Unreadable::Newer("unknown settings")),
                    });
                    if !settings.is_empty() {
                        pages = pages.with_fill_percent(narrow(settings.u64()?)?);
                    }
                    if !settings.is_empty() {
                        pages = pages.with_forecast(match settings.u64()? {
                            0 => Forecast::Off,
                            1 => Forecast::Inserts,
                            _ => return Err(Unreadable::Newer("unknown settings")),
                        });
                    }
                    tree = tree.with_treeline(pages);
                }
                let operator = short(&mut reader)?;
                if !settings.is_empty() || !reader.is_empty() {
                    return Err(Unreadable::Newer("unknown settings"));
                }
                (tree, operator)
            }
            MOVING => {
                let mut settings = Reader::new(short(&mut reader)?);
                passage = match short(&mut settings)? {
                    [] => Passage::Ended,
                    left => Passage::from_tree(tree_at_rest(left)?),
                };
                let tree = tree_at_rest(short(&mut settings)?)?;
                let operator = short(&mut reader)?;
                if !settings.is_empty() || !reader.is_empty() {
                    return Err(Unreadable::Newer("unknown settings"));
                }
                (tree, operator)
            }
            0 => return Err(Damage("tree number 0 is invalid").into()),
            _ => return Err(Unreadable::Newer("an unknown tree")),
        };
        let name = std::str::from_utf8(operator).map_err(|_| Damage("a name is not UTF-8"))?;
        let chosen = KeyspaceOptions::default().tree(tree).placement(placed.placement);
        let chosen = if name.is_empty() { chosen } else { chosen.merge_operator(name) };
        let options = Self::from(chosen).with_passage(passage);
        let options = options.with_large_values(placed.large_values).with_value_excess(placed.value_excess);
        options.validate().map_err(|_| Damage("settings of a keyspace are out of bounds"))?;
        Ok(options)
    }
}

/// Decodes one of the trees of a moving keyspace.
fn tree_at_rest(bytes: &[u8]) -> Result<Tree, Unreadable> {
    if let Some(&tag) = bytes.first()
        && (tag == MOVING || placement_format::is_placement(tag))
    {
        return Err(Damage("a tree of a moving keyspace moves itself, or has a placement").into());
    }
    let options = StoredOptions::decode(bytes)?;
    match options.merge_operator_name() {
        None => Ok(options.tree()),
        Some(_) => Err(Damage("a tree of a moving keyspace has a merge operator").into()),
    }
}

/// Writes bytes preceded by their length.
fn put_short(out: &mut Vec<u8>, bytes: &[u8]) {
    codec::put_u16(out, u16_of(bytes.len()));
    out.extend_from_slice(bytes);
}

fn short<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], Damage> {
    let length = reader.u16()?;
    reader.take(usize::from(length))
}

/// A setting that is encoded wider than its type.
fn narrow(value: u64) -> Result<u32, Damage> {
    u32::try_from(value).map_err(|_| Damage("a setting of a tree is too large"))
}

fn tag_of(kind: TreeKind) -> u8 {
    match kind {
        TreeKind::Turtle => TURTLE,
        TreeKind::Splinter => SPLINTER,
        TreeKind::Leveled => LEVELED,
        TreeKind::Lsbm => LSBM,
        TreeKind::Treeline => TREELINE,
    }
}

#[cfg(test)]
mod tests;
