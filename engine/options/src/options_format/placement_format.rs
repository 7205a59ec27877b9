//! Bytes of a keyspace's placement, before its tree. Only this file knows them; docs/FORMAT.md repeats them.
//!
//! - Nothing: all values are with their keys.
//! - 130 u8: the default placement; large values are outside, with a cost difference of 0.
//! - 131 u8 · length of the rest u16 · length from which values are medium u64 · length from which they
//!   are large u64, both the largest u64 if there are none · levels with medium values in place u32 · flags
//!   u8 · persisted cost difference of the place of large values u64.
//!
//! Earlier versions wrote two forms with ratios, which [`Placement::by_ratios`] converts to lengths:
//! - 129 u8: large below a ratio of 0.02 with a prefix of 12 bytes, with a moving threshold, large values
//!   outside, and a cost difference of 0;
//! - 128 u8 · length of the rest u16 · large ratio f64 · prefix bytes u32 · medium ratio f64, unless it
//!   is 0 · levels with medium values in place u32, unless it is 1; if the levels are there, so is a medium
//!   ratio of 0. If the thresholds move, levels are sized by whole pairs or medium values are logged, both
//!   are there, followed by the flags u8. If the thresholds move, the cost difference u64 follows.
//!
//! **Invariants**
//! - Unknown flags and longer forms are of a newer version.

use testudo_base::{
    codec::{self, Damage, Reader},
    planted,
};
use testudo_values::{LargeValues, Placement};

use super::{Unreadable, put_short, short};
use crate::stored_options::StoredOptions;

/// Placement by ratios.
pub(super) const BY_RATIOS: u8 = 128;
/// Initial state of an earlier default, with a ratio of 0.02.
pub(super) const TWO_PERCENT: u8 = 129;
/// Initial state of the default placement.
pub(super) const DEFAULT: u8 = 130;
/// Placement by lengths of values.
pub(super) const BY_LENGTHS: u8 = 131;

/// Large values are with their keys.
const WITH_KEYS: u8 = 1;
/// Levels are sized by whole pairs.
const SIZES_OF_PAIRS: u8 = 2;
/// The thresholds are fixed; without this flag they move.
const FIXED: u8 = 4;
/// Commits write medium values once, instead of large ones.
const LOGS_MEDIUM: u8 = 8;

/// Prefix bytes of every placement that earlier versions had a name for.
const PREFIX_BYTES: u32 = 12;

/// No threshold.
const NONE: u64 = u64::MAX;

/// A placement, and the state that the store added to it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Placed {
    pub(super) placement: Placement,
    pub(super) large_values: LargeValues,
    pub(super) value_excess: u64,
}

impl From<Placement> for Placed {
    fn from(placement: Placement) -> Self {
        Self { placement, ..Self::default() }
    }
}

/// Appends the placement of `options`.
pub(super) fn encode(out: &mut Vec<u8>, options: &StoredOptions) {
    let placement = options.placement();
    let are_with_keys = options.large_values() == LargeValues::WithKeys;
    if placement == Placement::inline() {
        return;
    }
    if placement == Placement::default() && !are_with_keys && options.value_excess() == 0 {
        out.push(DEFAULT);
        return;
    }
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    let mut settings = Vec::new();
    codec::put_u64(&mut settings, placement.medium_from().unwrap_or(NONE));
    codec::put_u64(&mut settings, placement.large_from().unwrap_or(NONE));
    codec::put_u32(&mut settings, placement.in_place_levels());
    settings.push(
        flag(are_with_keys && !planted!("moved-thresholds-forgotten"), WITH_KEYS)
            | flag(placement.sizes_of_pairs(), SIZES_OF_PAIRS)
            | flag(!placement.moves(), FIXED)
            | flag(placement.logs_medium(), LOGS_MEDIUM),
    );
    codec::put_u64(&mut settings, options.value_excess());
    out.push(BY_LENGTHS);
    put_short(out, &settings);
}

/// Decodes the placement that begins with `tag`; `None` if `tag` belongs to a tree.
pub(super) fn decode(tag: u8, reader: &mut Reader<'_>) -> Result<Option<Placed>, Unreadable> {
    match tag {
        DEFAULT => Ok(Some(Placement::default().into())),
        TWO_PERCENT => Ok(Some(by_ratios(0.02, PREFIX_BYTES, 0.0)?.with_moving_thresholds(true).into())),
        BY_LENGTHS => decode_lengths(short(reader)?).map(Some),
        BY_RATIOS => decode_ratios(short(reader)?).map(Some),
        _ => Ok(None),
    }
}

/// Whether a placement begins with `tag`.
pub(super) fn is_placement(tag: u8) -> bool {
    matches!(tag, BY_RATIOS | TWO_PERCENT | DEFAULT | BY_LENGTHS)
}

fn newer() -> Unreadable {
    Unreadable::Newer("an unknown placement of values")
}

const OUT_OF_BOUNDS: Damage = Damage("a placement is out of bounds");

fn with_flags(placement: Placement, flags: u8) -> Placement {
    let placement = placement.with_sizes_of_pairs(flags & SIZES_OF_PAIRS != 0);
    placement.with_logged_medium(flags & LOGS_MEDIUM != 0).with_moving_thresholds(flags & FIXED == 0)
}

fn large_values(flags: u8) -> LargeValues {
    if flags & WITH_KEYS != 0 { LargeValues::WithKeys } else { LargeValues::Separated }
}

fn decode_lengths(settings: &[u8]) -> Result<Placed, Unreadable> {
    let mut reader = Reader::new(settings);
    let [medium_from, large_from] =
        [reader.u64()?, reader.u64()?].map(|bytes| Some(bytes).filter(|bytes| *bytes != NONE));
    let (levels, flags, value_excess) = (reader.u32()?, reader.u8()?, reader.u64()?);
    if !reader.is_empty() || flags & !(WITH_KEYS | SIZES_OF_PAIRS | FIXED | LOGS_MEDIUM) != 0 {
        return Err(newer());
    }
    let placement = Placement::by_value_bytes(medium_from, large_from);
    let placement = placement.and_then(|placement| placement.with_in_place_levels(levels));
    let placement = with_flags(placement.map_err(|_| OUT_OF_BOUNDS)?, flags);
    if (placement.medium_from(), placement.large_from()) != (medium_from, large_from) {
        return Err(OUT_OF_BOUNDS.into());
    }
    Ok(Placed { placement, large_values: large_values(flags), value_excess })
}

/// Converts ratios to lengths.
fn by_ratios(large_ratio: f64, prefix_bytes: u32, medium_ratio: f64) -> Result<Placement, Damage> {
    // Earlier versions accepted a medium ratio below the large one: no value was medium.
    let has_medium = !(0.0..large_ratio).contains(&medium_ratio);
    let medium_ratio = if has_medium { medium_ratio } else { 0.0 };
    Placement::by_ratios(prefix_bytes, medium_ratio, large_ratio).map_err(|_| OUT_OF_BOUNDS)
}

fn decode_ratios(settings: &[u8]) -> Result<Placed, Unreadable> {
    let mut reader = Reader::new(settings);
    let (large_ratio, prefix_bytes) = (f64::from_bits(reader.u64()?), reader.u32()?);
    let medium_ratio = if reader.is_empty() { 0.0 } else { f64::from_bits(reader.u64()?) };
    let levels = if reader.is_empty() { None } else { Some(reader.u32().map_err(|_| newer())?) };
    let (flags, value_excess) = match reader.rest().split_first() {
        None => (FIXED, 0),
        Some((&flags, [])) if flags & !(SIZES_OF_PAIRS | LOGS_MEDIUM) == FIXED && flags != FIXED => {
            (flags, 0)
        }
        Some((&flags, excess)) if flags & !(WITH_KEYS | SIZES_OF_PAIRS | LOGS_MEDIUM) == 0 => {
            (flags, u64::from_le_bytes(excess.try_into().map_err(|_| newer())?))
        }
        Some(_) => return Err(newer()),
    };
    let placement = by_ratios(large_ratio, prefix_bytes, medium_ratio)?;
    let placement = levels.map_or(Ok(placement), |levels| placement.with_in_place_levels(levels));
    let placement = with_flags(placement.map_err(|_| OUT_OF_BOUNDS)?, flags);
    // The same default, named by ratios.
    let default = by_ratios(1.0 / 128.0, PREFIX_BYTES, 0.0)?.with_moving_thresholds(true);
    let placement = if placement == default { Placement::default() } else { placement };
    Ok(Placed { placement, large_values: large_values(flags), value_excess })
}
