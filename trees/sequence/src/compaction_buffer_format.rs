//! Encoding of compaction buffers, which are objects of their trees.
//!
//! Encoded (little-endian; a `fence` shares a prefix with the fence before it, see `fence_format.rs`): u8
//! format: 1, 2 if there are bases, or 3 if there are placeholders of keys from memory · count u32 of runs,
//! each a run reference · count u32 of layers, newest first, each: count u32 of sections in key order, each:
//! fence · u8: 1 if it has a run + 2 if it has a high end + 4 if it is a base + 8 if its keys came from
//! memory, which excludes 1 and 4 · number u32 of the run, if any · high end, if any, a fence after its own
//! · for keys from memory: count u32 and short hashes u32, ascending.
//!
//! **Invariants**
//! - The sections of a decoded layer are disjoint and in key order.

use std::{collections::BTreeMap, sync::Arc};

use testudo_base::{
    ObjectId, Result as StoreResult, RunId,
    codec::{self, Damage, Reader},
    num::{u32_of, usize_of},
    planted,
};
use testudo_run::{Run, RunRef};
use testudo_storage::DataFile;

use crate::{
    Fence,
    compaction_buffer::{BufferSection, CompactionBuffer},
    fence_format::{FenceWriter, decode_fence},
};

const FORMAT: u8 = 1;
/// With bases.
const FORMAT_WITH_BASES: u8 = 2;
/// With placeholders of keys from memory, and with or without bases.
const FORMAT_WITH_HASHES: u8 = 3;

const SECTION_HAS_RUN: u8 = 1;
const SECTION_HAS_HIGH: u8 = 2;
const SECTION_IS_BASE: u8 = 4;
const SECTION_FROM_MEMORY: u8 = 8;

/// A compaction buffer as it is stored.
#[derive(Debug)]
pub struct StoredBuffer {
    /// Its runs, each once.
    pub runs: Vec<RunRef>,
    /// Newest first.
    pub layers: Vec<Vec<StoredSection>>,
}

/// A section of a compaction buffer.
#[derive(Debug)]
pub struct StoredSection {
    /// See [`BufferSection::low`].
    pub low: Fence,
    /// See [`BufferSection::high`].
    pub high: Option<Fence>,
    /// Index into the buffer's runs.
    pub run: Option<usize>,
    /// See [`BufferSection::is_base`].
    pub is_base: bool,
    /// See [`BufferSection::from_memory`].
    pub from_memory: Option<Arc<[u32]>>,
}

impl StoredBuffer {
    /// Opens the buffer as object `id`. Runs shared by several buffers are opened once: `opened` has those of
    /// earlier ones.
    ///
    /// Errors: `Corruption` if a run cannot be one of this file.
    pub fn open(
        self,
        id: ObjectId,
        data: &Arc<DataFile>,
        opened: &mut BTreeMap<RunId, Arc<Run>>,
    ) -> StoreResult<Arc<CompactionBuffer>> {
        let mut runs = Vec::with_capacity(self.runs.len());
        for reference in self.runs {
            let run = match opened.get(&reference.id) {
                Some(run) => Arc::clone(run),
                None => Run::open(Arc::clone(data), reference)?,
            };
            opened.insert(run.reference().id, Arc::clone(&run));
            runs.push(run);
        }
        let section = |StoredSection { low, high, run, is_base, from_memory }| {
            let run = run.map(|at| Arc::clone(&runs[at]));
            BufferSection { low, high, run, is_base, from_memory }
        };
        let layers = self.layers.into_iter().map(|layer| layer.into_iter().map(section).collect()).collect();
        Ok(Arc::new(CompactionBuffer { id, layers }))
    }
}

/// Encodes a buffer.
pub fn encode_buffer(buffer: &CompactionBuffer) -> Vec<u8> {
    let has_any = |is_such: fn(&BufferSection) -> bool| buffer.layers.iter().flatten().any(is_such);
    let mut out =
        vec![match (has_any(|section| section.from_memory.is_some()), has_any(|section| section.is_base)) {
            (true, _) => FORMAT_WITH_HASHES,
            (false, true) => FORMAT_WITH_BASES,
            (false, false) => FORMAT,
        }];
    let runs = buffer.runs();
    codec::put_u32(&mut out, u32_of(runs.len()));
    runs.values().for_each(|run| run.reference().encode(&mut out));
    let numbers: BTreeMap<RunId, usize> = runs.into_keys().enumerate().map(|(at, id)| (id, at)).collect();
    codec::put_u32(&mut out, u32_of(buffer.layers.len()));
    for layer in &buffer.layers {
        let stored =
            |section: &&BufferSection| section.run.is_some() || section.is_base || !planted!("barrier-lost");
        let sections: Vec<&BufferSection> = layer.iter().filter(stored).collect();
        codec::put_u32(&mut out, u32_of(sections.len()));
        let mut fences = FenceWriter::default();
        for BufferSection { low, high, run, is_base, from_memory } in sections {
            fences.put(&mut out, low);
            let has = |is_there: bool, flag: u8| if is_there { flag } else { 0 };
            let ends = has(run.is_some(), SECTION_HAS_RUN) | has(high.is_some(), SECTION_HAS_HIGH);
            let kind = has(*is_base, SECTION_IS_BASE) | has(from_memory.is_some(), SECTION_FROM_MEMORY);
            codec::put_u8(&mut out, ends | kind);
            if let Some(run) = run {
                codec::put_u32(&mut out, u32_of(numbers[&run.reference().id]));
            }
            if let Some(high) = high {
                FenceWriter::after(low).put(&mut out, high);
            }
            if let Some(hashes) = from_memory {
                codec::put_u32(&mut out, u32_of(hashes.len()));
                hashes.iter().for_each(|hash| codec::put_u32(&mut out, *hash));
            }
        }
    }
    out
}

/// Decodes a buffer.
///
/// Errors: [`Damage`] if the bytes are not a valid encoding.
pub fn decode_buffer(bytes: &[u8]) -> Result<StoredBuffer, Damage> {
    let mut reader = Reader::new(bytes);
    let flags_max = match reader.u8()? {
        FORMAT => SECTION_HAS_RUN + SECTION_HAS_HIGH,
        FORMAT_WITH_BASES => SECTION_HAS_RUN + SECTION_HAS_HIGH + SECTION_IS_BASE,
        FORMAT_WITH_HASHES => SECTION_HAS_RUN + SECTION_HAS_HIGH + SECTION_IS_BASE + SECTION_FROM_MEMORY,
        _ => return Err(Damage("unknown format of a compaction buffer")),
    };
    let count = count_of(&mut reader, 32)?;
    let runs = (0..count).map(|_| RunRef::decode(&mut reader)).collect::<Result<Vec<_>, _>>()?;
    let count = count_of(&mut reader, 4)?;
    let layer = |_| decode_layer(&mut reader, runs.len(), flags_max);
    let layers = (0..count).map(layer).collect::<Result<_, _>>()?;
    reader.finish()?;
    Ok(StoredBuffer { runs, layers })
}

fn decode_layer(reader: &mut Reader<'_>, runs: usize, flags_max: u8) -> Result<Vec<StoredSection>, Damage> {
    let count = count_of(reader, 2)?;
    let mut sections: Vec<StoredSection> = Vec::new();
    let mut before = Fence::default();
    for _ in 0..count {
        let low = decode_fence(reader, &before)?;
        before.clone_from(&low);
        let flags = reader.u8()?;
        let is_placeless = flags & SECTION_FROM_MEMORY > 0 && flags & (SECTION_HAS_RUN | SECTION_IS_BASE) > 0;
        if flags > flags_max || is_placeless {
            return Err(Damage("unknown section of a compaction buffer"));
        }
        let mut run = None;
        if flags & SECTION_HAS_RUN > 0 {
            let number = usize_of(u64::from(reader.u32()?));
            run = Some(number).filter(|number| *number < runs);
            run.ok_or(Damage("a compaction buffer has no such run"))?;
        }
        let high = if flags & SECTION_HAS_HIGH > 0 { Some(decode_fence(reader, &low)?) } else { None };
        let from_memory = match flags & SECTION_FROM_MEMORY {
            0 => None,
            _ => Some(decode_hashes(reader)?),
        };
        let follows = |last: &StoredSection| last.high.as_ref().is_some_and(|high| *high <= low);
        if sections.last().is_some_and(|last| !follows(last))
            || high.as_ref().is_some_and(|high| *high <= low)
        {
            return Err(Damage("the sections of a compaction buffer overlap"));
        }
        sections.push(StoredSection { low, high, run, is_base: flags & SECTION_IS_BASE > 0, from_memory });
    }
    Ok(sections)
}

fn decode_hashes(reader: &mut Reader<'_>) -> Result<Arc<[u32]>, Damage> {
    let count = count_of(reader, 4)?;
    let hashes = (0..count).map(|_| reader.u32()).collect::<Result<Arc<[u32]>, _>>()?;
    if hashes.is_sorted_by(|a, b| a < b) {
        Ok(hashes)
    } else {
        Err(Damage("hashes of a compaction buffer do not ascend"))
    }
}

/// Decodes a count of items of at least `least_bytes` each.
fn count_of(reader: &mut Reader<'_>, least_bytes: usize) -> Result<usize, Damage> {
    let count = usize_of(u64::from(reader.u32()?));
    if count > reader.rest().len() / least_bytes {
        return Err(Damage("a compaction buffer has an impossible count"));
    }
    Ok(count)
}

#[cfg(test)]
mod tests;
