//! The superblock: store id, format version, and the current manifest.
//!
//! The file `superblock` has two slots, one page each. An update writes the slot that does *not* hold the
//! newest valid superblock, so that a torn write leaves the other one. Layout of a slot:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `TESTUDO\0` |
//! | 8 | 4 | format version |
//! | 12 | 4 | 1 if the store was closed and everything in it is durable, else 0 |
//! | 16 | 8 | required features, as bits, see [`KIND_BYTES`] and the constants after it |
//! | 24 | 8 | feature bits that a reader may ignore |
//! | 32 | 16 | store id |
//! | 48 | 8 | generation of the superblock, +1 per write |
//! | 56 | 8 | number of the current manifest |
//! | 64 | 8 | watermark: number of the newest manifest edit |
//! | 72 | 8 | watermark: the log is durable up to at least this seqno |
//! | 80 | 8 | XXH3 of bytes 0 … 80; at this offset in every version |
//! | 88 | 8 | incarnation: the newest opening for writing; 0 before the first |
//! | 96 | 8 | XXH3 of bytes 0 … 96 |
//!
//! **Invariants**
//! - The slot for generation `g` is `g % 2`; the newest valid slot is never overwritten.
//! - The watermark is raised only after the state it records is durable.
//! - An unknown version or required feature is refused before anything is written.

use std::{path::Path, sync::Arc};

use testudo_base::{
    Error, ErrorKind, Incarnation, PAGE_SIZE, Result, Seqno, StoreId,
    checksum::checksum64,
    codec::{self, Reader},
    num::u64_of,
    planted,
};
use testudo_env::{AlignedBuffer, Env, File, OpenMode, OpenOptions};

use crate::{SUPERBLOCK_FILE, Watermark, manifest::watermark::COUNT_MAX};

/// On-disk format version that this build writes and reads.
pub const FORMAT_VERSION: u32 = 2;
/// File name of a replacement superblock before the rename.
const REPLACEMENT_FILE: &str = "superblock.new";
const MAGIC: &[u8; 8] = b"TESTUDO\0";
/// Bytes covered by the first checksum, in every version.
const HEAD_BYTES: usize = 80;
/// Bytes covered by the second checksum.
const BODY_BYTES: usize = 96;
const SLOT_BYTES: usize = BODY_BYTES + 8;
/// Entries of runs may have a kind byte (decision 0043). Set in every superblock that this build writes, and
/// so before a store has its first such entry.
const KIND_BYTES: u64 = 1;
/// The store may have value segments, and entries that refer to them (decision 0045). Set likewise.
const VALUE_SEGMENTS: u64 = 2;
/// Pages of runs may have been replaced; references to the runs name their slots (decision 0049). Set
/// likewise.
const REPLACED_PAGES: u64 = 4;
/// Entries may refer to long values, also in the log (decision 0050). Set likewise.
const LONG_VALUES: u64 = 8;
/// Values may continue in the next page of a run (decision 0051). Set likewise.
const CONTINUED_VALUES: u64 = 16;
/// The log may refer to values in value logs, and segments hold values by number (decision 0052). Set
/// likewise.
const VALUE_LOGS: u64 = 32;
/// Footers of runs may contain index and filter (decision 0055). Set likewise.
const ENCLOSING_FOOTERS: u64 = 64;
/// Values that commits wrote under their numbers may be transient, i.e. return to their keys (decision 0052).
/// Set likewise.
const LOGGED_TRANSIENT_VALUES: u64 = 128;
/// Maps may have the lists of replaced pages (decision 0068). Set likewise.
const MAP_PAGES: u64 = 256;
/// Pages of runs may be split into any number of sections (decision 0069), and runs may have spare pages
/// (decision 0071). Set likewise.
const PAGE_SECTIONS: u64 = 512;
const KNOWN_REQUIRED_FEATURES: u64 = KIND_BYTES
    | VALUE_SEGMENTS
    | REPLACED_PAGES
    | LONG_VALUES
    | CONTINUED_VALUES
    | VALUE_LOGS
    | ENCLOSING_FOOTERS
    | LOGGED_TRANSIENT_VALUES
    | MAP_PAGES
    | PAGE_SECTIONS;

/// Contents of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Id of the store.
    pub store: StoreId,
    /// Generation of the superblock, +1 per write.
    pub generation: u64,
    /// Number of the current manifest.
    pub manifest: u64,
    /// The durable watermark at the time of writing.
    pub watermark: Watermark,
    /// The newest opening for writing; 0 before the first.
    pub incarnation: Incarnation,
    /// Whether the store was closed: everything in it is durable.
    pub is_closed: bool,
}

impl Superblock {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(PAGE_SIZE);
        out.extend_from_slice(MAGIC);
        codec::put_u32(&mut out, FORMAT_VERSION);
        codec::put_u32(&mut out, self.is_closed.into());
        codec::put_u64(&mut out, KNOWN_REQUIRED_FEATURES);
        codec::put_u64(&mut out, 0);
        codec::put_u128(&mut out, self.store.0);
        codec::put_u64(&mut out, self.generation);
        codec::put_u64(&mut out, self.manifest);
        codec::put_u64(&mut out, self.watermark.edit);
        codec::put_u64(&mut out, self.watermark.seqno.0);
        put_checksum(&mut out);
        codec::put_u64(&mut out, self.incarnation.0);
        put_checksum(&mut out);
        out
    }

    /// Whether all counters are in the range that a reader accepts.
    fn is_possible(&self) -> bool {
        [self.generation, self.manifest, self.watermark.edit].iter().all(|count| *count <= COUNT_MAX)
    }

    /// Decodes a slot: `Ok(None)` if it is invalid, an error if it is valid but unsupported by this build.
    pub(crate) fn decode(slot: &[u8]) -> Result<Option<Self>> {
        let Ok((version, required, superblock)) = decode_fields(slot) else { return Ok(None) };
        if version != FORMAT_VERSION || required & !KNOWN_REQUIRED_FEATURES != 0 {
            let message = format!(
                "the store has format version {version} (features {required:#x}); this build reads version \
                 {FORMAT_VERSION}"
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Ok(superblock)
    }
}

fn put_checksum(out: &mut Vec<u8>) {
    let checksum = checksum64(out, 0);
    codec::put_u64(out, checksum);
}

/// Decodes version, required features, and the superblock if it is valid. The fields that decide whether this
/// build can read the slot have the same offsets in every version.
fn decode_fields(slot: &[u8]) -> std::result::Result<(u32, u64, Option<Superblock>), codec::Damage> {
    let mut reader = Reader::new(slot);
    let magic = reader.take(8)?;
    let version = reader.u32()?;
    let is_closed = reader.u32()? == 1;
    let required = reader.u64()?;
    reader.u64()?;
    let store = StoreId(reader.u128()?);
    let (generation, manifest) = (reader.u64()?, reader.u64()?);
    let (edit, seqno) = (reader.u64()?, Seqno(reader.u64()?));
    if magic != MAGIC || reader.u64()? != checksum64(&slot[..HEAD_BYTES], 0) {
        return Err(codec::Damage("not a superblock"));
    }
    let watermark = Watermark { edit, seqno };
    let incarnation = Incarnation(reader.u64()?);
    let superblock = Superblock { store, generation, manifest, watermark, incarnation, is_closed };
    let is_whole = reader.u64()? == checksum64(&slot[..BODY_BYTES], 0) && superblock.is_possible();
    Ok((version, required, is_whole.then_some(superblock)))
}

/// Reads both slots as far as possible; `None` for an invalid slot.
///
/// Errors: `Unsupported` for a format unknown to this build; `Io`.
pub fn survey_superblock(env: &dyn Env, directory: &Path) -> Result<[Option<Superblock>; 2]> {
    let path = directory.join(SUPERBLOCK_FILE);
    let file = match env.open(&path, OpenOptions { mode: OpenMode::Read, direct: false }) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok([None, None]),
        opened => opened.map_err(|e| Error::io(SUPERBLOCK_FILE, e))?,
    };
    let mut slots = [None, None];
    for (offset, slot) in (0..).step_by(PAGE_SIZE).zip(&mut slots) {
        let mut bytes = [0u8; SLOT_BYTES];
        if file.read_at(offset, &mut bytes).is_ok() {
            *slot = Superblock::decode(&bytes)?;
        }
    }
    Ok(slots)
}

/// The open superblock file.
#[derive(Debug)]
pub struct SuperblockFile {
    file: Arc<dyn File>,
}

impl SuperblockFile {
    /// Creates the file with its first superblock and makes it and its directory entry durable.
    pub fn create(env: &dyn Env, directory: &Path, superblock: &Superblock) -> Result<Self> {
        let path = directory.join(SUPERBLOCK_FILE);
        let options = OpenOptions { mode: OpenMode::CreateNew, direct: true };
        let file = env.open(&path, options).map_err(|e| Error::io(SUPERBLOCK_FILE, e))?;
        let created = Self { file };
        // Both slots are allocated now, so that a full device cannot prevent later writes.
        created.file.allocate(0, 2 * u64_of(PAGE_SIZE)).map_err(|e| Error::io(SUPERBLOCK_FILE, e))?;
        created.write(superblock)?;
        env.sync_dir(directory).map_err(|e| Error::io(SUPERBLOCK_FILE, e))?;
        Ok(created)
    }

    /// Atomically replaces the file by one with this superblock in both slots, and makes it durable. The
    /// second slot has the next generation.
    pub fn replace(env: &dyn Env, directory: &Path, superblock: &Superblock) -> Result<()> {
        let failed = |error| Error::io(SUPERBLOCK_FILE, error);
        let path = directory.join(REPLACEMENT_FILE);
        match env.remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let options = OpenOptions { mode: OpenMode::CreateNew, direct: true };
        let made = Self { file: env.open(&path, options).map_err(failed)? };
        made.file.allocate(0, 2 * u64_of(PAGE_SIZE)).map_err(failed)?;
        made.write(superblock)?;
        made.write(&Superblock { generation: superblock.generation + 1, ..*superblock })?;
        env.rename(&path, &directory.join(SUPERBLOCK_FILE)).map_err(failed)?;
        env.sync_dir(directory).map_err(failed)
    }

    /// Opens the file and reads the newest valid superblock.
    ///
    /// Errors: `Corruption` if no slot is valid; `Unsupported` for a format unknown to this build.
    pub fn open(env: &dyn Env, directory: &Path, writable: bool) -> Result<(Self, Superblock)> {
        let path = directory.join(SUPERBLOCK_FILE);
        let mode = if writable { OpenMode::Write } else { OpenMode::Read };
        let file =
            env.open(&path, OpenOptions { mode, direct: true }).map_err(|e| Error::io(SUPERBLOCK_FILE, e))?;
        let mut buffer = AlignedBuffer::zeroed(2 * PAGE_SIZE);
        let length = file.len().map_err(|e| Error::io(SUPERBLOCK_FILE, e))?;
        if length < u64_of(buffer.len()) {
            return Err(Error::corruption(SUPERBLOCK_FILE, length, "the file is too short"));
        }
        file.read_at(0, &mut buffer).map_err(|e| Error::io(SUPERBLOCK_FILE, e))?;
        let slots = [Superblock::decode(&buffer[..PAGE_SIZE])?, Superblock::decode(&buffer[PAGE_SIZE..])?];
        if let [Some(first), Some(second)] = &slots
            && first.store != second.store
        {
            return Err(Error::corruption(SUPERBLOCK_FILE, 0, "the two slots belong to different stores"));
        }
        let newest = slots.into_iter().flatten().max_by_key(|slot| slot.generation);
        let newest = newest
            .ok_or_else(|| Error::corruption(SUPERBLOCK_FILE, 0, "neither slot holds a valid superblock"))?;
        if writable {
            // An earlier process may have failed to sync the directory entry. The slots are rewritten before
            // they matter.
            env.sync_dir(directory).map_err(|e| Error::io(SUPERBLOCK_FILE, e))?;
        }
        Ok((Self { file }, newest))
    }

    /// Writes `superblock` into its slot and makes it durable.
    ///
    /// Errors: `Io`; `Corruption` if a counter exceeds the range that a reader accepts, which no real store
    /// reaches.
    pub fn write(&self, superblock: &Superblock) -> Result<()> {
        if !superblock.is_possible() {
            return Err(Error::corruption(SUPERBLOCK_FILE, 0, "a counter exceeds its maximum"));
        }
        let mut page = AlignedBuffer::zeroed(PAGE_SIZE);
        let bytes = superblock.encode();
        page[..bytes.len()].copy_from_slice(&bytes);
        let slot = if planted!("newest-superblock-overwritten") { 0 } else { superblock.generation % 2 };
        let offset = slot * u64_of(PAGE_SIZE);
        self.file.write_at(offset, &page).map_err(|e| Error::io(SUPERBLOCK_FILE, e))?;
        self.file.sync().map_err(|e| Error::io(SUPERBLOCK_FILE, e))
    }
}
