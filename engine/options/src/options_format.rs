//! Bytes of a keyspace's options in the catalogue. Only this file knows them; docs/FORMAT.md repeats them.
//!
//! - turtle (1) and splinter (2): tree u8 · leaf bytes u64 · maximum pivots u64 · name of the merge
//!   operator (UTF-8), if any, to the end.
//! - Before a tree, unless all values are with their keys, one of three forms of the placement:
//!   - 130 u8: large pairs are those below a 128th with a prefix of 12 bytes, with a moving threshold, their
//!     values outside, and a cost difference of 0;
//!   - 129 u8: the same below 0.02;
//!   - 128 u8 · length of the placement u16 · large ratio f64 · prefix bytes u32 · small ratio f64,
//!     unless it is 0 · levels with medium values in place u32, unless it is 1. If the levels are
//!     written, so is a small ratio of 0. If the thresholds move, levels are sized by whole pairs or medium
//!     values are logged, both are written, followed by the flags u8. If the thresholds move, the persisted
//!     cost difference of the place of large values follows, u64.
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

use testudo_values::{LargeValues, Placement};

use crate::{
    keyspace_options::KeyspaceOptions,
    passage::Passage,
    stored_options::StoredOptions,
    tree::{Tree, TreeKind},
};

const TURTLE: u8 = 1;
const SPLINTER: u8 = 2;
const LEVELED: u8 = 3;
const MOVING: u8 = 4;
const LSBM: u8 = 5;
const TREELINE: u8 = 6;
/// A placement precedes the tree.
const PLACED: u8 = 128;
/// Initial state of a keyspace with [`large_below_two_percent`].
const LARGE_BELOW_2_PERCENT: u8 = 129;
/// Initial state of a keyspace with [`Placement::large`].
const LARGE: u8 = 130;

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

/// [`Placement::large`] of earlier versions.
fn large_below_two_percent() -> Placement {
    Placement::large().with_large_ratio(0.02).expect("a ratio")
}

impl StoredOptions {
    /// Encodes the options for the catalogue.
    pub fn encode(&self) -> Vec<u8> {
        let operator = self.merge_operator_name().unwrap_or_default().as_bytes();
        let mut out = Vec::new();
        let placement = self.chosen_placement();
        let is_as_begun = self.large_values() == LargeValues::Outside && self.value_excess() == 0;
        if placement == Placement::large() && is_as_begun {
            out.push(LARGE);
        } else if placement == large_below_two_percent() && is_as_begun {
            out.push(LARGE_BELOW_2_PERCENT);
        } else if placement != Placement::inline() {
            let mut settings = Vec::new();
            codec::put_u64(&mut settings, placement.large_ratio().to_bits());
            codec::put_u32(&mut settings, placement.prefix_bytes());
            let has_levels =
                placement.in_place_levels() != Placement::inline().in_place_levels() || has_flags(placement);
            if placement.small_ratio() > 0.0 || has_levels {
                codec::put_u64(&mut settings, placement.small_ratio().to_bits());
            }
            if has_levels {
                codec::put_u32(&mut settings, placement.in_place_levels());
            }
            if has_flags(placement) {
                let are_with_keys = self.large_values() == LargeValues::WithKeys;
                settings
                    .push(encode_flags(placement, are_with_keys && !planted!("moved-thresholds-forgotten")));
            }
            if placement.moves() {
                codec::put_u64(&mut settings, self.value_excess());
            }
            out.push(PLACED);
            put_short(&mut out, &settings);
        }
        if self.passage() != Passage::Never {
            let of_tree = |tree| {
                let inline = KeyspaceOptions::default().tree(tree).placement(Placement::inline());
                Self::from(inline).encode()
            };
            let mut settings = Vec::new();
            put_short(&mut settings, &self.moving_from().map(of_tree).unwrap_or_default());
            put_short(&mut settings, &of_tree(self.chosen_tree()));
            out.push(MOVING);
            put_short(&mut out, &settings);
            put_short(&mut out, operator);
            return out;
        }
        let tree = self.chosen_tree();
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
        let (mut placement, mut large_values, mut value_excess) =
            (Placement::inline(), LargeValues::Outside, 0);
        if tag == PLACED {
            (placement, large_values, value_excess) = decode_placement(short(&mut reader)?)?;
            tag = reader.u8()?;
        } else if tag == LARGE {
            placement = Placement::large();
            tag = reader.u8()?;
        } else if tag == LARGE_BELOW_2_PERCENT {
            placement = large_below_two_percent();
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
                let tree = tree.with_level1_flushes(level1_flushes);
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
        let chosen = KeyspaceOptions::default().tree(tree).placement(placement);
        let chosen = if name.is_empty() { chosen } else { chosen.merge_operator(name) };
        let options = Self::from(chosen).with_passage(passage);
        let options = options.with_large_values(large_values).with_value_excess(value_excess);
        options.validate().map_err(|_| Damage("settings of a keyspace are out of bounds"))?;
        Ok(options)
    }
}

/// Values of large pairs are with their keys.
const WITH_KEYS: u8 = 1;
/// Levels are sized by whole pairs …
const SIZES_OF_PAIRS: u8 = 2;
/// … the thresholds are fixed; without this flag they move …
const FIXED: u8 = 4;
/// … and commits write the values of medium pairs once, instead of those of large pairs.
const LOGS_MEDIUM: u8 = 8;

fn has_flags(placement: Placement) -> bool {
    placement.moves() || placement.sizes_of_pairs() || placement.logs_medium()
}

fn encode_flags(placement: Placement, are_with_keys: bool) -> u8 {
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    flag(are_with_keys, WITH_KEYS)
        | flag(placement.sizes_of_pairs(), SIZES_OF_PAIRS)
        | flag(!placement.moves(), FIXED)
        | flag(placement.logs_medium(), LOGS_MEDIUM)
}

fn decode_placement(settings: &[u8]) -> Result<(Placement, LargeValues, u64), Unreadable> {
    let newer = || Unreadable::Newer("an unknown placement of values");
    let excess_of = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).map_err(|_| newer());
    let mut reader = Reader::new(settings);
    let (large_ratio, prefix_bytes) = (f64::from_bits(reader.u64()?), reader.u32()?);
    let small_ratio = if reader.is_empty() { 0.0 } else { f64::from_bits(reader.u64()?) };
    let in_place_levels = if reader.is_empty() { None } else { Some(reader.u32().map_err(|_| newer())?) };
    let (flags, large_values, value_excess) = match reader.rest().split_first() {
        None => (0, None, 0),
        Some((&flags, [])) if flags & !(SIZES_OF_PAIRS | LOGS_MEDIUM) == FIXED && flags != FIXED => {
            (flags, None, 0)
        }
        Some((&flags, excess)) if flags & !(WITH_KEYS | SIZES_OF_PAIRS | LOGS_MEDIUM) == 0 => {
            let are_with_keys = flags & WITH_KEYS != 0;
            let values = if are_with_keys { LargeValues::WithKeys } else { LargeValues::Outside };
            (flags, Some(values), excess_of(excess)?)
        }
        Some(_) => return Err(newer()),
    };
    let placement = Placement::inline().with_large_ratio(large_ratio);
    let placement = placement.and_then(|placement| placement.with_small_ratio(small_ratio));
    let placement = placement.and_then(|placement| placement.with_prefix_bytes(prefix_bytes));
    let placement = placement.and_then(|placement| match in_place_levels {
        Some(levels) => placement.with_in_place_levels(levels),
        None => Ok(placement),
    });
    let placement = placement.map_err(|_| Damage("a placement is out of bounds"))?;
    let placement = placement.with_moving_thresholds(large_values.is_some());
    let placement = placement.with_sizes_of_pairs(flags & SIZES_OF_PAIRS != 0);
    let placement = placement.with_logged_medium(flags & LOGS_MEDIUM != 0);
    Ok((placement, large_values.unwrap_or_default(), value_excess))
}

/// Decodes one of the trees of a moving keyspace.
fn tree_at_rest(bytes: &[u8]) -> Result<Tree, Unreadable> {
    if let Some(&(MOVING | PLACED | LARGE)) = bytes.first() {
        return Err(Damage("a tree of a moving keyspace moves itself, or has a placement").into());
    }
    let options = StoredOptions::decode(bytes)?;
    match options.merge_operator_name() {
        None => Ok(options.chosen_tree()),
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
