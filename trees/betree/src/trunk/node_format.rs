//! Encoding of the trunk's objects, known only to this file.
//!
//! Object 0, the root pointer: format u8 = 2 · id of the root u64 · next object id u64. If the leaves have
//! a compaction buffer: format u8 = 3 · the same · object id of the buffer u64 (for its format see the
//! sequence crate). Any other object is a node (`str` = u32 length and bytes, `run` = the encoding of a run
//! reference, `fence` = u32 length of the prefix shared with the fence before it, the rest str): format u8 =
//! 2 · height u32 · pivots u32, each: low fence, child: u8 0 and node id u64, or 1 (empty leaf), or 2 and
//! run · high: u8 0, or 1 and fence · tiers u32, each: runs u32, each: low fence and run, then per pivot a
//! share: u8 0, or 1 and bytes u64, or 2, bytes u64 and from str. The first fence of a node shares nothing,
//! the first of a tier shares a prefix with the last low of the pivots.
//!
//! **Invariants**
//! - A decoded node has valid structure: pivots increase, shares match pivots, runs of a tier are disjoint.

use testudo_base::{
    MAX_KEY_BYTES, ObjectId,
    codec::{self, Damage, Reader},
    num::{u32_of, usize_of},
};
use testudo_run::RunRef;
use testudo_sequence::{Fence, FenceWriter, decode_fence};

use crate::trunk::node::{Child, Node, Share};

const FORMAT: u8 = 2;
/// Format of a root pointer that names a compaction buffer.
const FORMAT_WITH_BUFFER: u8 = 3;
/// The root pointer's object id.
pub(crate) const ROOT_POINTER: ObjectId = ObjectId(0);

/// A child as it is stored.
#[derive(Debug)]
pub(crate) enum StoredChild {
    Node(ObjectId),
    Leaf(Option<RunRef>),
}

/// A tier as it is stored.
#[derive(Debug)]
pub(crate) struct StoredTier {
    /// Each with its fence.
    pub(crate) runs: Vec<(Fence, RunRef)>,
    pub(crate) shares: Vec<Option<Share>>,
}

/// A node as it is stored.
#[derive(Debug)]
pub(crate) struct StoredNode {
    pub(crate) height: u32,
    pub(crate) high: Option<Fence>,
    pub(crate) pivots: Vec<(Fence, StoredChild)>,
    pub(crate) tiers: Vec<StoredTier>,
}

/// Contents of the root pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RootPointer {
    pub(crate) root: ObjectId,
    pub(crate) next_object: u64,
    /// The compaction buffer of the leaves.
    pub(crate) buffer: Option<ObjectId>,
}

pub(crate) fn encode_root_pointer(pointer: &RootPointer) -> Vec<u8> {
    let RootPointer { root, next_object, buffer } = pointer;
    let mut out = vec![if buffer.is_some() { FORMAT_WITH_BUFFER } else { FORMAT }];
    codec::put_u64(&mut out, root.0);
    codec::put_u64(&mut out, *next_object);
    if let Some(buffer) = buffer {
        codec::put_u64(&mut out, buffer.0);
    }
    out
}

pub(crate) fn decode_root_pointer(bytes: &[u8]) -> Result<RootPointer, Damage> {
    let mut reader = Reader::new(bytes);
    let format = reader.u8()?;
    if ![FORMAT, FORMAT_WITH_BUFFER].contains(&format) {
        return Err(Damage("unknown format of a root pointer"));
    }
    let (root, next_object) = (ObjectId(reader.u64()?), reader.u64()?);
    let buffer = if format == FORMAT_WITH_BUFFER { Some(ObjectId(reader.u64()?)) } else { None };
    reader.finish()?;
    Ok(RootPointer { root, next_object, buffer })
}

pub(crate) fn encode_node(node: &Node) -> Vec<u8> {
    let mut out = vec![FORMAT];
    codec::put_u32(&mut out, node.height);
    codec::put_u32(&mut out, u32_of(node.pivots.len()));
    let mut fences = FenceWriter::default();
    for pivot in &node.pivots {
        fences.put(&mut out, &pivot.low);
        match &pivot.child {
            Child::Node(child) => {
                codec::put_u8(&mut out, 0);
                codec::put_u64(&mut out, child.id.0);
            }
            Child::Leaf(None) => codec::put_u8(&mut out, 1),
            Child::Leaf(Some(run)) => {
                codec::put_u8(&mut out, 2);
                run.reference().encode(&mut out);
            }
        }
    }
    let last = node.pivots.last().map(|pivot| pivot.low.clone()).unwrap_or_default();
    codec::put_u8(&mut out, u8::from(node.high.is_some()));
    if let Some(high) = &node.high {
        fences.put(&mut out, high);
    }
    codec::put_u32(&mut out, u32_of(node.tiers.len()));
    for tier in &node.tiers {
        codec::put_u32(&mut out, u32_of(tier.runs.len()));
        fences = FenceWriter::after(&last);
        for fenced in &tier.runs {
            fences.put(&mut out, &fenced.low);
            fenced.run.reference().encode(&mut out);
        }
        for share in &tier.shares {
            encode_share(&mut out, share.as_ref());
        }
    }
    out
}

fn encode_share(out: &mut Vec<u8>, share: Option<&Share>) {
    match share {
        None => codec::put_u8(out, 0),
        Some(Share { from: None, bytes }) => {
            codec::put_u8(out, 1);
            codec::put_u64(out, *bytes);
        }
        Some(Share { from: Some(from), bytes }) => {
            codec::put_u8(out, 2);
            codec::put_u64(out, *bytes);
            codec::put_bytes(out, from);
        }
    }
}

pub(crate) fn decode_node(bytes: &[u8]) -> Result<StoredNode, Damage> {
    let mut reader = Reader::new(bytes);
    if reader.u8()? != FORMAT {
        return Err(Damage("unknown format of a node"));
    }
    let height = reader.u32()?;
    let pivots = decode_pivots(&mut reader, height)?;
    let last = pivots.last().map_or_else(Fence::default, |(low, _)| low.clone());
    let high = match reader.u8()? {
        0 => None,
        1 => Some(decode_fence(&mut reader, &last)?),
        _ => return Err(Damage("unknown bound of a node")),
    };
    let increasing = pivots.windows(2).all(|pair| pair[0].0 < pair[1].0);
    let below_high = high.as_ref().is_none_or(|high| pivots.last().is_some_and(|(low, _)| low < high));
    if pivots.is_empty() || !increasing || !below_high {
        return Err(Damage("pivots of a node do not increase"));
    }
    let count = reader.u32()?;
    let mut tiers = Vec::new();
    for _ in 0..count {
        tiers.push(decode_tier(&mut reader, pivots.len(), last.clone())?);
    }
    reader.finish()?;
    Ok(StoredNode { height, high, pivots, tiers })
}

fn decode_pivots(reader: &mut Reader<'_>, height: u32) -> Result<Vec<(Fence, StoredChild)>, Damage> {
    let count = usize_of(u64::from(reader.u32()?));
    if count * 9 > reader.rest().len() {
        return Err(Damage("a node has an impossible number of pivots"));
    }
    let mut pivots = Vec::with_capacity(count);
    let mut low = Fence::default();
    for _ in 0..count {
        low = decode_fence(reader, &low)?;
        let child = match reader.u8()? {
            0 if height > 1 => StoredChild::Node(ObjectId(reader.u64()?)),
            1 if height == 1 => StoredChild::Leaf(None),
            2 if height == 1 => StoredChild::Leaf(Some(RunRef::decode(reader)?)),
            _ => return Err(Damage("a child does not fit the height of its node")),
        };
        pivots.push((low.clone(), child));
    }
    Ok(pivots)
}

fn decode_tier(reader: &mut Reader<'_>, pivots: usize, mut low: Fence) -> Result<StoredTier, Damage> {
    let count = reader.u32()?;
    let mut runs: Vec<(Fence, RunRef)> = Vec::new();
    for _ in 0..count {
        low = decode_fence(reader, &low)?;
        let run = RunRef::decode(reader)?;
        let key = low.to_vec();
        let overlaps = |(last_low, last): &(Fence, RunRef)| *last_low >= low || last.keys.reach(&key);
        if runs.last().is_some_and(overlaps) || run.keys.begin_before(&key) {
            return Err(Damage("runs of a tier overlap"));
        }
        runs.push((low.clone(), run));
    }
    let mut shares = Vec::with_capacity(pivots);
    for _ in 0..pivots {
        shares.push(match reader.u8()? {
            0 => None,
            1 => Some(Share { from: None, bytes: reader.u64()? }),
            2 => {
                let bytes = reader.u64()?;
                Some(Share { from: Some(reader.bytes(MAX_KEY_BYTES)?.to_vec()), bytes })
            }
            _ => return Err(Damage("unknown share of a tier")),
        });
    }
    Ok(StoredTier { runs, shares })
}
