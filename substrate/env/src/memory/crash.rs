//! The state of a disk after a power loss.
//!
//! **Invariants**
//! - Synced bytes, lengths and names survive every crash unless a later unsynced operation touched them.
//! - The outcome is a function of disk, policy and seed; files do not affect each other.

use std::sync::Arc;

use super::{
    dir_node::Inode,
    disk::{Disk, Node},
    file_node::{CHUNK_BYTES, Chunk, Chunks, FileNode, SECTOR_SIZE, SECTORS_PER_CHUNK, Version},
};
use crate::{SplitMix, random::mix};

/// Percentage of unsynced written sectors that a tearing crash corrupts.
const TORN_PERCENT: u8 = 25;
/// Among this many last chunks of a file, those that were reserved and never written may show stale contents.
const STALE_CHUNKS: usize = 16;

/// Contents of a torn sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TornMode {
    /// Sectors are old or new, never torn.
    Keep,
    /// Zeros.
    Zero,
    /// Random bytes.
    Garbage,
    /// Zeros or random bytes.
    Mix,
}

/// How a crash treats unsynced changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashPolicy {
    /// Chance, 0..=100, that an unsynced sector, length change or name operation survives.
    pub keep_percent: u8,
    /// Whether and how a quarter of the sectors touched by unsynced writes are torn. With random bytes, space
    /// that was reserved, not synced and never written may show such bytes, too.
    pub torn: TornMode,
}

impl CrashPolicy {
    /// Nothing unsynced survives.
    pub const LOSE_ALL: Self = Self { keep_percent: 0, torn: TornMode::Keep };
    /// Everything survives.
    pub const KEEP_ALL: Self = Self { keep_percent: 100, torn: TornMode::Keep };
    /// The percentages that a crash test should try.
    pub const KEEP_PERCENTS: [u8; 5] = [0, 10, 50, 90, 100];
    /// The torn modes that a crash test should try.
    pub const TORN_MODES: [TornMode; 4] = [TornMode::Keep, TornMode::Zero, TornMode::Garbage, TornMode::Mix];

    /// Every combination of [`CrashPolicy::KEEP_PERCENTS`] and [`CrashPolicy::TORN_MODES`].
    pub fn all() -> impl Iterator<Item = Self> {
        Self::KEEP_PERCENTS
            .into_iter()
            .flat_map(|keep_percent| Self::TORN_MODES.map(|torn| Self { keep_percent, torn }))
    }

    /// One of [`CrashPolicy::all`], chosen by the seed.
    pub fn random(seed: u64) -> Self {
        let mut random = SplitMix::new(seed);
        let mut pick =
            |count: usize| testudo_base::num::usize_of(random.below(testudo_base::num::u64_of(count)));
        Self {
            keep_percent: Self::KEEP_PERCENTS[pick(Self::KEEP_PERCENTS.len())],
            torn: Self::TORN_MODES[pick(Self::TORN_MODES.len())],
        }
    }
}

/// Returns the disk after the crash: everything on it is durable, and unnamed nodes are gone.
pub(super) fn crash_disk(disk: &Disk, policy: CrashPolicy, seed: u64) -> Disk {
    disk.survivor(|inode, node| {
        let mut random = random_of(seed, inode);
        match node {
            Node::File(file) => Node::File(crash_file(file, policy, &mut random)),
            Node::Directory(directory) => Node::Directory(directory.crash(policy.keep_percent, &mut random)),
        }
    })
}

/// Applies a failed sync to a file: an arbitrary part of the unsynced changes is on the device, and no later
/// sync writes the rest, because it counts as clean. It stays readable unless the cache has evicted it.
pub(super) fn fail_sync(file: &mut FileNode, policy: CrashPolicy, evicted: bool, seed: u64) {
    let medium = crash_file(file, policy, &mut SplitMix::new(mix(seed)));
    if evicted {
        *file = medium;
        return;
    }
    file.durable = medium.durable;
    file.durable_length = medium.durable_length;
    file.durable_reserved = medium.durable_reserved;
    file.pending.clear();
    file.lengths.clear();
}

fn random_of(seed: u64, inode: Inode) -> SplitMix {
    SplitMix::new(mix(seed ^ mix(inode)))
}

fn crash_file(file: &FileNode, policy: CrashPolicy, random: &mut SplitMix) -> FileNode {
    let keep_reserved = random.percent(policy.keep_percent);
    let mut reserved = if keep_reserved { file.reserved.clone() } else { file.durable_reserved.clone() };
    let mut content = Arc::clone(&file.durable);
    for (&chunk, versions) in &file.pending {
        let mut bytes = file.durable.get(&chunk).map_or([0; _], |durable| **durable);
        for sector in 0..SECTORS_PER_CHUNK {
            crash_sector(&mut bytes, sector, versions, policy, random);
        }
        if bytes.iter().any(|&byte| byte != 0) {
            Arc::make_mut(&mut content).insert(chunk, Arc::new(bytes));
            reserved.insert(chunk, chunk + 1);
        } else if file.durable.contains_key(&chunk) {
            Arc::make_mut(&mut content).remove(&chunk);
        }
    }
    // The newest length that survives, otherwise the synced one.
    let survivor = file.lengths.iter().rev().find(|_| random.percent(policy.keep_percent));
    let length = survivor.copied().unwrap_or(file.durable_length);
    cut(&mut content, length);
    reserved.remove(length.div_ceil(CHUNK_BYTES), u64::MAX);
    if keep_reserved && matches!(policy.torn, TornMode::Garbage | TornMode::Mix) {
        show_stale_blocks(file, &mut content, length, random);
    }
    FileNode {
        live: Arc::clone(&content),
        live_length: length,
        durable: content,
        durable_length: length,
        durable_reserved: reserved.clone(),
        reserved,
        ..FileNode::default()
    }
}

/// Fills with random bytes some of the chunks whose space is not durably reserved and that were never
/// written.
fn show_stale_blocks(file: &FileNode, content: &mut Arc<Chunks>, length: u64, random: &mut SplitMix) {
    let is_stale = |chunk: &u64| {
        file.reserved.missing(*chunk, chunk + 1) == 0
            && file.durable_reserved.missing(*chunk, chunk + 1) == 1
            && !content.contains_key(chunk)
            && !file.pending.contains_key(chunk)
    };
    let stale: Vec<u64> = (0..length / CHUNK_BYTES).rev().take(STALE_CHUNKS).filter(is_stale).collect();
    for chunk in stale {
        if random.percent(TORN_PERCENT) {
            let mut bytes = [0; _];
            random.fill(&mut bytes);
            Arc::make_mut(content).insert(chunk, Arc::new(bytes));
        }
    }
}

/// Applies the crash to one sector of `bytes`, the durable chunk.
fn crash_sector(
    bytes: &mut Chunk,
    sector: usize,
    versions: &[Version],
    policy: CrashPolicy,
    random: &mut SplitMix,
) {
    let bit = 1 << sector;
    let touched = |version: &&Version| (version.written | version.zeroed) & bit != 0;
    if !versions.iter().any(|version| touched(&version)) {
        return;
    }
    let range = sector * SECTOR_SIZE..(sector + 1) * SECTOR_SIZE;
    let written = versions.iter().any(|version| version.written & bit != 0);
    if written && policy.torn != TornMode::Keep && random.percent(TORN_PERCENT) {
        let garbage = match policy.torn {
            TornMode::Mix => random.percent(50),
            torn => torn == TornMode::Garbage,
        };
        let sector = &mut bytes[range];
        sector.fill(0);
        if garbage {
            random.fill(sector);
        }
        return;
    }
    // From the newest version on, each may be the one that reached the medium.
    let survivor = versions.iter().rev().filter(touched).find(|_| random.percent(policy.keep_percent));
    match survivor {
        Some(Version { bytes: Some(version), .. }) => bytes[range.clone()].copy_from_slice(&version[range]),
        Some(Version { bytes: None, .. }) => bytes[range].fill(0),
        None => {}
    }
}

/// Drops everything beyond `length`.
fn cut(chunks: &mut Arc<Chunks>, length: u64) {
    let beyond = chunks.range(length / CHUNK_BYTES..).next().is_some();
    if !beyond {
        return;
    }
    let chunks = Arc::make_mut(chunks);
    chunks.split_off(&length.div_ceil(CHUNK_BYTES));
    let tail = testudo_base::num::usize_of(length % CHUNK_BYTES);
    if tail > 0
        && let Some(last) = chunks.get_mut(&(length / CHUNK_BYTES))
    {
        Arc::make_mut(last)[tail..].fill(0);
    }
}
