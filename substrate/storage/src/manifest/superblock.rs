//! The superblock: which store this is, which format, and which manifest is current.
//!
//! The file `superblock` has two slots in pages of their own. An update writes the slot that does *not* hold
//! the newest valid superblock, so that a torn write leaves the other one. Byte table of a slot:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `TESTUDO\0` |
//! | 8 | 4 | format version |
//! | 12 | 4 | 1 if the store was closed and everything in it is durable, else 0 |
//! | 16 | 8 | required features, in bits, see [`KIND_BYTES`] and those behind it |
//! | 24 | 8 | feature bits that a reader may ignore |
//! | 32 | 16 | store id |
//! | 48 | 8 | generation of the superblock, +1 with each write |
//! | 56 | 8 | number of the current manifest |
//! | 64 | 8 | watermark: number of the newest manifest edit |
//! | 72 | 8 | watermark: the log reaches at least this seqno |
//! | 80 | 8 | XXH3 of bytes 0 … 80; here in every version |
//! | 88 | 8 | incarnation: the newest opening for writing; 0 before the first |
//! | 96 | 8 | XXH3 of bytes 0 … 96 |
//!
//! **Invariants**
//! - The slot for generation `g` is `g % 2`; the newest valid slot is never overwritten.
//! - The watermark is raised only after what it states is durable.
//! - A version or a required feature that this build does not know is refused before anything is written.

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

/// The on-disk format that this build writes and reads.
pub const FORMAT_VERSION: u32 = 2;
/// A superblock that is about to replace the one that is there.
const REPLACEMENT_FILE: &str = "superblock.new";
const MAGIC: &[u8; 8] = b"TESTUDO\0";
/// What the first checksum covers, in every version.
const HEAD_BYTES: usize = 80;
/// What the second one covers.
const BODY_BYTES: usize = 96;
const SLOT_BYTES: usize = BODY_BYTES + 8;
/// Entries of runs may have a byte for their kind (decision 0043). Stated by every superblock that this build
/// writes, and so by each store before it has the first such entry.
const KIND_BYTES: u64 = 1;
/// There may be value segments, and entries that refer to them (decision 0045). Stated as the other one.
const VALUE_SEGMENTS: u64 = 2;
/// Pages of runs may have been written anew, in slots that references to the runs name (decision 0049).
/// Stated as the others.
const REPLACED_PAGES: u64 = 4;
/// Entries may refer to values in pieces, in the log, too (decision 0050). Stated as the others.
const PIECES: u64 = 8;
/// Values may go on in the next page of a run (decision 0051). Stated as the others.
const CONTINUED_VALUES: u64 = 16;
/// The log may refer to values in value logs, and segments have values under their numbers (decision 0052).
/// Stated as the others.
const VALUE_LOGS: u64 = 32;
/// Footers of runs may have index and filter in them (decision 0055). Stated as the others.
const ENCLOSING_FOOTERS: u64 = 64;
/// Values that commits have written under their numbers may be such as come back to their keys (decision
/// 0052). Stated as the others.
const LOGGED_TRANSIENT_VALUES: u64 = 128;
const KNOWN_REQUIRED_FEATURES: u64 = KIND_BYTES
    | VALUE_SEGMENTS
    | REPLACED_PAGES
    | PIECES
    | CONTINUED_VALUES
    | VALUE_LOGS
    | ENCLOSING_FOOTERS
    | LOGGED_TRANSIENT_VALUES;

/// The contents of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Which store this is.
    pub store: StoreId,
    /// +1 with each write.
    pub generation: u64,
    /// Number of the current manifest.
    pub manifest: u64,
    /// What was durable when this was written.
    pub watermark: Watermark,
    /// The newest opening for writing; 0 before the first.
    pub incarnation: Incarnation,
    /// Whether the store was closed then: nothing of it is in caches alone.
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

    /// Whether no count is beyond what a reader takes for valid.
    fn is_possible(&self) -> bool {
        [self.generation, self.manifest, self.watermark.edit].iter().all(|count| *count <= COUNT_MAX)
    }

    /// `Ok(None)` if the slot holds nothing valid, an error if it is valid but not for this build.
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

/// Version, required features, and the superblock if all of it is valid. What decides whether this build
/// can read the slot is at the same place in every version.
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

/// The newest valid superblock of each slot, however little of the file is left.
///
/// Errors: `Unsupported` for a format that this build does not know, `Io`.
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
    /// Creates the file with its first superblock and makes it durable, name included.
    pub fn create(env: &dyn Env, directory: &Path, superblock: &Superblock) -> Result<Self> {
        let path = directory.join(SUPERBLOCK_FILE);
        let options = OpenOptions { mode: OpenMode::CreateNew, direct: true };
        let file = env.open(&path, options).map_err(|e| Error::io(SUPERBLOCK_FILE, e))?;
        let created = Self { file };
        // Both slots get their place now: a full device must not keep them from being written later.
        created.file.allocate(0, 2 * u64_of(PAGE_SIZE)).map_err(|e| Error::io(SUPERBLOCK_FILE, e))?;
        created.write(superblock)?;
        env.sync_dir(directory).map_err(|e| Error::io(SUPERBLOCK_FILE, e))?;
        Ok(created)
    }

    /// Puts a file with this superblock, in both slots, in the place of whatever is there, all at once, and
    /// makes it durable. The second slot has the next generation.
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
    /// Errors: `Corruption` if no slot is valid, `Unsupported` for a format that this build does not know.
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
            // An earlier process may have failed to sync the name. The slots are written anew before they
            // matter.
            env.sync_dir(directory).map_err(|e| Error::io(SUPERBLOCK_FILE, e))?;
        }
        Ok((Self { file }, newest))
    }

    /// Writes `superblock` into its slot and makes it durable.
    ///
    /// Errors: `Io`; `Corruption` if a count of it is too large to be read again. No real store reaches that.
    pub fn write(&self, superblock: &Superblock) -> Result<()> {
        if !superblock.is_possible() {
            return Err(Error::corruption(SUPERBLOCK_FILE, 0, "a count is at its end"));
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
