//! Encoding of the objects of a leveled tree.
//!
//! Encoded (little-endian; `str` = u32 length and bytes; a `fence` shares a prefix with the fence before it,
//! see `fence_format.rs`):
//!
//! - object 0: u8 0x4C (`L`) · u8 format, 1 · next object u64 · bytes of a flush u64 · count u32 of
//!   levels without the bottom, each: bytes to empty at the start u64 · sequences that fill it · sequences
//!   that are emptied · then the bottom, a sequence · count u32 of witnesses, runs as below. Sequences:
//!   count u32, newest first. A sequence: count u32 and objects u64 of its segments, in key order. If there
//!   are compaction buffers the format is 2, followed by: count u32 of buffers, each: number u32 of its
//!   sequence (in the order above: level by level, filling before emptying, the bottom last) · its object
//!   u64. If repeated keys were measured, the format is 3, and after the buffers, whose count may be 0,
//!   follows for each level and for the bottom: incoming keys u64 · repeated ones among them u64 · u8, 1 if
//!   the buffer is frozen.
//! - a compaction buffer: see `compaction_buffer_format.rs` of sequences.
//! - a segment: u8 format, 1 · count u32 of runs, each: fence · run reference · bytes u64 that count ·
//!   u8, 1 if it covers keys + 2 if they have a low end + 4 if they have a high end · those ends, fences
//!   after its own. If any run has an object of its own, the format is 2, and after each fence follows the
//!   id u64 of that object, instead of reference and bytes, or 0 before them.
//! - a run: u8 0x52 (`R`) · run reference · bytes u64 that count.
//!
//! **Invariants**
//! - Decoded segments are not empty, and their fences ascend.

use testudo_base::{
    ObjectId,
    codec::{self, Damage, Reader},
    num::{u32_of, usize_of},
    sync::Arc,
};
use testudo_run::RunRef;
use testudo_sequence::{Bounds, Fence, FenceWriter, decode_fence};

use crate::levels::{
    Level, Levels,
    component::{Component, LevelRun, SEGMENT_RUNS_MAX, Segment},
    repeats::{Inflow, Repeats},
};

/// First byte of object 0 of a leveled tree; no tree of another family has it.
pub const ROOT_TAG: u8 = 0x4C;
const FORMAT: u8 = 1;
/// Format of an object 0 that names compaction buffers.
const FORMAT_WITH_BUFFERS: u8 = 2;
/// Format of an object 0 with measured fractions of repeated keys; it names buffers as well.
const FORMAT_WITH_REPEATS: u8 = 3;
/// Format of a segment with runs in objects of their own.
const FORMAT_WITH_RUN_OBJECTS: u8 = 2;
/// First byte of the object of a run.
const RUN_TAG: u8 = 0x52;
/// The root object, which names all others.
pub(crate) const ROOT: ObjectId = ObjectId(0);
/// Maximum number of levels.
const LEVELS_MAX: u32 = 64;
/// Upper limit on the bytes of a flush, a run or a level, so that sums do not overflow.
const BYTES_MAX: u64 = 1 << 48;
/// Upper limit on counted keys of moves.
const ENTRIES_MAX: u64 = 1 << 48;

const COVERS: u8 = 1;
const COVER_HAS_LOW: u8 = 2;
const COVER_HAS_HIGH: u8 = 4;

/// A run as it is stored.
#[derive(Debug)]
pub(crate) struct StoredRun {
    pub(crate) low: Fence,
    pub(crate) reference: RunRef,
    pub(crate) bytes: u64,
    pub(crate) cover: Option<Bounds>,
    pub(crate) object: Option<ObjectId>,
}

/// Ids of the segments of a sequence.
pub(crate) type StoredComponent = Vec<ObjectId>;

#[derive(Debug)]
pub(crate) struct StoredLevel {
    pub(crate) began_bytes: u64,
    pub(crate) filling: Vec<StoredComponent>,
    pub(crate) emptying: Vec<StoredComponent>,
    pub(crate) repeats: Repeats,
}

#[derive(Debug)]
pub(crate) struct StoredLevels {
    pub(crate) next_object: u64,
    pub(crate) flush_bytes: u64,
    pub(crate) levels: Vec<StoredLevel>,
    pub(crate) bottom: StoredComponent,
    pub(crate) witnesses: Vec<StoredRun>,
    /// Index of the sequence, and the object of its compaction buffer.
    pub(crate) buffers: Vec<(usize, ObjectId)>,
    pub(crate) bottom_repeats: Repeats,
}

pub(crate) fn encode_root(levels: &Levels) -> Vec<u8> {
    let numbered = levels.components().enumerate();
    let buffers: Vec<(usize, ObjectId)> =
        numbered.filter_map(|(number, component)| Some((number, component.buffer()?.id))).collect();
    let has_repeats = levels.repeats().any(|repeats| !repeats.is_new());
    let format = match (has_repeats, buffers.is_empty()) {
        (true, _) => FORMAT_WITH_REPEATS,
        (false, false) => FORMAT_WITH_BUFFERS,
        (false, true) => FORMAT,
    };
    let mut out = vec![ROOT_TAG, format];
    codec::put_u64(&mut out, levels.next_object);
    codec::put_u64(&mut out, levels.flush_bytes);
    codec::put_u32(&mut out, u32_of(levels.levels.len()));
    for Level { filling, emptying, began_bytes, .. } in &levels.levels {
        codec::put_u64(&mut out, *began_bytes);
        for components in [filling, emptying] {
            codec::put_u32(&mut out, u32_of(components.len()));
            components.iter().for_each(|component| encode_component(&mut out, component));
        }
    }
    encode_component(&mut out, &levels.bottom);
    codec::put_u32(&mut out, u32_of(levels.witnesses.len()));
    let mut fences = FenceWriter::default();
    levels.witnesses.iter().for_each(|level_run| encode_run(&mut out, &mut fences, level_run));
    if format >= FORMAT_WITH_BUFFERS {
        codec::put_u32(&mut out, u32_of(buffers.len()));
        for (number, id) in buffers {
            codec::put_u32(&mut out, u32_of(number));
            codec::put_u64(&mut out, id.0);
        }
    }
    if format == FORMAT_WITH_REPEATS {
        for Repeats { seen, is_frozen } in levels.repeats() {
            codec::put_u64(&mut out, seen.entries);
            codec::put_u64(&mut out, seen.repeated);
            codec::put_u8(&mut out, u8::from(is_frozen));
        }
    }
    out
}

fn encode_component(out: &mut Vec<u8>, component: &Component) {
    codec::put_u32(out, u32_of(component.segments().len()));
    component.segments().iter().for_each(|segment| codec::put_u64(out, segment.id.0));
}

pub(crate) fn encode_segment(segment: &Segment) -> Vec<u8> {
    let has_objects = segment.runs.iter().any(|level_run| level_run.object.is_some());
    let mut out = vec![if has_objects { FORMAT_WITH_RUN_OBJECTS } else { FORMAT }];
    codec::put_u32(&mut out, u32_of(segment.runs.len()));
    let mut fences = FenceWriter::default();
    for level_run in &segment.runs {
        fences.put(&mut out, &level_run.fenced.low);
        if has_objects {
            codec::put_u64(&mut out, level_run.object.map_or(0, |object| object.0));
        }
        if level_run.object.is_none() {
            encode_reference(&mut out, level_run);
        }
        encode_cover(&mut out, level_run);
    }
    out
}

/// Encodes the object of a run.
pub(crate) fn encode_run_object(level_run: &LevelRun) -> Vec<u8> {
    let mut out = vec![RUN_TAG];
    encode_reference(&mut out, level_run);
    out
}

fn decode_run_object(bytes: &[u8]) -> Result<(RunRef, u64), Damage> {
    let mut reader = Reader::new(bytes);
    if reader.u8()? != RUN_TAG {
        return Err(Damage("unknown format of the object of a run"));
    }
    let run = (RunRef::decode(&mut reader)?, decode_bytes(&mut reader)?);
    reader.finish()?;
    Ok(run)
}

fn encode_reference(out: &mut Vec<u8>, level_run: &LevelRun) {
    level_run.run().reference().encode(out);
    codec::put_u64(out, level_run.bytes);
}

/// Encodes a run, including its reference.
fn encode_run(out: &mut Vec<u8>, fences: &mut FenceWriter, level_run: &LevelRun) {
    fences.put(out, &level_run.fenced.low);
    encode_reference(out, level_run);
    encode_cover(out, level_run);
}

fn encode_cover(out: &mut Vec<u8>, level_run: &LevelRun) {
    let Some(Bounds { low, high }) = &level_run.cover else { return codec::put_u8(out, 0) };
    let has = |end: &Option<Fence>, flag: u8| if end.is_some() { flag } else { 0 };
    codec::put_u8(out, COVERS | has(low, COVER_HAS_LOW) | has(high, COVER_HAS_HIGH));
    let mut ends = FenceWriter::after(&level_run.fenced.low);
    low.iter().chain(high).for_each(|end| ends.put(out, end));
}

pub(crate) fn decode_root(bytes: &[u8]) -> Result<StoredLevels, Damage> {
    let mut reader = Reader::new(bytes);
    let (tag, format) = (reader.u8()?, reader.u8()?);
    if tag != ROOT_TAG || !(FORMAT..=FORMAT_WITH_REPEATS).contains(&format) {
        return Err(Damage("unknown format of a leveled tree"));
    }
    let (next_object, flush_bytes) = (reader.u64()?, decode_bytes(&mut reader)?);
    let count = reader.u32()?;
    if count > LEVELS_MAX {
        return Err(Damage("a tree has an impossible number of levels"));
    }
    let mut levels = Vec::new();
    for _ in 0..count {
        let began_bytes = decode_bytes(&mut reader)?;
        let (filling, emptying) = (decode_components(&mut reader)?, decode_components(&mut reader)?);
        levels.push(StoredLevel { began_bytes, filling, emptying, repeats: Repeats::default() });
    }
    let bottom = decode_component(&mut reader)?;
    let witnesses = decode_runs(&mut reader)?;
    let mut buffers = Vec::new();
    if format >= FORMAT_WITH_BUFFERS {
        for _ in 0..count_of(&mut reader, 12)? {
            buffers.push((usize_of(u64::from(reader.u32()?)), ObjectId(reader.u64()?)));
        }
    }
    let mut bottom_repeats = Repeats::default();
    if format == FORMAT_WITH_REPEATS {
        for repeats in levels.iter_mut().map(|level| &mut level.repeats).chain([&mut bottom_repeats]) {
            *repeats = decode_repeats(&mut reader)?;
        }
    }
    reader.finish()?;
    let sequences: usize = levels.iter().map(|level| level.filling.len() + level.emptying.len()).sum();
    let are_in_order = buffers.is_sorted_by(|a, b| a.0 < b.0);
    if !are_in_order || buffers.last().is_some_and(|(number, _)| *number > sequences) {
        return Err(Damage("a compaction buffer belongs to no sequence"));
    }
    Ok(StoredLevels { next_object, flush_bytes, levels, bottom, witnesses, buffers, bottom_repeats })
}

fn decode_repeats(reader: &mut Reader<'_>) -> Result<Repeats, Damage> {
    let seen = Inflow { entries: reader.u64()?, repeated: reader.u64()? };
    let flags = reader.u8()?;
    if seen.entries > ENTRIES_MAX || seen.repeated > seen.entries || flags > 1 {
        return Err(Damage("impossible counts of repeated keys"));
    }
    Ok(Repeats { seen, is_frozen: flags == 1 })
}

fn decode_bytes(reader: &mut Reader<'_>) -> Result<u64, Damage> {
    let bytes = reader.u64()?;
    if bytes > BYTES_MAX { Err(Damage("an impossible number of bytes")) } else { Ok(bytes) }
}

fn decode_components(reader: &mut Reader<'_>) -> Result<Vec<StoredComponent>, Damage> {
    let count = count_of(reader, 4)?;
    (0..count).map(|_| decode_component(reader)).collect()
}

fn decode_component(reader: &mut Reader<'_>) -> Result<StoredComponent, Damage> {
    let count = count_of(reader, 8)?;
    (0..count).map(|_| Ok(ObjectId(reader.u64()?))).collect()
}

/// Decodes a count of items of at least `least_bytes` each.
fn count_of(reader: &mut Reader<'_>, least_bytes: usize) -> Result<usize, Damage> {
    let count = usize_of(u64::from(reader.u32()?));
    if count > reader.rest().len() / least_bytes {
        return Err(Damage("an object of a leveled tree has an impossible count"));
    }
    Ok(count)
}

/// Decodes a segment. `take` returns the object of a run.
pub(crate) fn decode_segment(
    bytes: &[u8],
    mut take: impl FnMut(ObjectId) -> Option<Arc<[u8]>>,
) -> Result<Vec<StoredRun>, Damage> {
    let mut reader = Reader::new(bytes);
    let runs = match reader.u8()? {
        FORMAT => decode_runs(&mut reader)?,
        FORMAT_WITH_RUN_OBJECTS => decode_runs_with(&mut reader, 17, |reader| {
            let object = ObjectId(reader.u64()?);
            if object == ROOT {
                return Ok((RunRef::decode(reader)?, decode_bytes(reader)?, None));
            }
            let bytes = take(object).ok_or(Damage("the object of a run is missing"))?;
            let (reference, bytes) = decode_run_object(&bytes)?;
            Ok((reference, bytes, Some(object)))
        })?,
        _ => return Err(Damage("unknown format of a segment of a level")),
    };
    reader.finish()?;
    if runs.is_empty() || runs.len() > SEGMENT_RUNS_MAX {
        return Err(Damage("a segment of a level has an impossible number of runs"));
    }
    if !runs.is_sorted_by(|a, b| a.low < b.low) {
        return Err(Damage("the fences of a level do not ascend"));
    }
    Ok(runs)
}

fn decode_runs(reader: &mut Reader<'_>) -> Result<Vec<StoredRun>, Damage> {
    decode_runs_with(reader, 64, |reader| Ok((RunRef::decode(reader)?, decode_bytes(reader)?, None)))
}

/// Decodes runs of at least `least_bytes` each. `next` decodes reference, bytes and object of the next one.
fn decode_runs_with(
    reader: &mut Reader<'_>,
    least_bytes: usize,
    mut next: impl FnMut(&mut Reader<'_>) -> Result<(RunRef, u64, Option<ObjectId>), Damage>,
) -> Result<Vec<StoredRun>, Damage> {
    let count = count_of(reader, least_bytes)?;
    let mut runs: Vec<StoredRun> = Vec::with_capacity(count);
    let mut low = Fence::default();
    for _ in 0..count {
        low = decode_fence(reader, &low)?;
        let ((reference, bytes, object), flags) = (next(reader)?, reader.u8()?);
        let cover = match flags {
            0 => None,
            _ if flags & COVERS == 0 || flags > COVERS + COVER_HAS_LOW + COVER_HAS_HIGH => {
                return Err(Damage("unknown cover of a run"));
            }
            _ => Some(decode_cover(reader, flags, &low)?),
        };
        runs.push(StoredRun { low: low.clone(), reference, bytes, cover, object });
    }
    Ok(runs)
}

fn decode_cover(reader: &mut Reader<'_>, flags: u8, fence: &Fence) -> Result<Bounds, Damage> {
    let mut before = fence.clone();
    let mut end = |flag: u8| -> Result<Option<Fence>, Damage> {
        if flags & flag == 0 {
            return Ok(None);
        }
        before = decode_fence(reader, &before)?;
        Ok(Some(before.clone()))
    };
    Ok(Bounds { low: end(COVER_HAS_LOW)?, high: end(COVER_HAS_HIGH)? })
}

#[cfg(test)]
mod tests;
