//! Decodes superblock and manifest from raw bytes without trusting them, for checks of files in use and for
//! forensics.
//!
//! **Invariants**
//! - Damage is reported in the result; only failed system calls are errors.
//! - After damage, the scan resumes at the next page where a record can start.

use std::path::Path;

use testudo_base::{
    Error, PAGE_SIZE, Result, StoreId,
    num::{u64_of, usize_of},
};
use testudo_env::{Env, OpenMode, OpenOptions, read_sparse};

use crate::{
    SUPERBLOCK_FILE, Superblock,
    manifest::manifest_format::{Decoded, Edit, RecordSeed, decode_record},
};

/// Contents of a superblock slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotContents {
    /// A valid superblock.
    Superblock(Superblock),
    /// All zeros.
    Empty,
    /// Anything else, with the reason.
    Damaged(String),
}

/// Returns the contents of both superblock slots.
pub fn inspect_superblock(env: &dyn Env, directory: &Path) -> Result<[SlotContents; 2]> {
    let bytes = read_file(env, directory, SUPERBLOCK_FILE)?;
    Ok([0, 1].map(|slot| match bytes.get(slot * PAGE_SIZE..(slot + 1) * PAGE_SIZE) {
        None => SlotContents::Damaged("the file is too short".to_owned()),
        Some(page) if page.iter().all(|&byte| byte == 0) => SlotContents::Empty,
        Some(page) => match Superblock::decode(page) {
            Ok(Some(superblock)) => SlotContents::Superblock(superblock),
            Ok(None) => {
                SlotContents::Damaged("magic or checksum of the superblock does not match".to_owned())
            }
            Err(error) => SlotContents::Damaged(error.to_string()),
        },
    }))
}

/// A section of a manifest file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManifestSection {
    /// A valid record.
    Record {
        /// Offset in the file.
        offset: u64,
        /// Length of the record.
        bytes: u64,
        /// Number of the edit.
        edit_number: u64,
        /// Changes of the edit.
        edit: Edit,
    },
    /// Bytes that are not a valid record.
    Damage {
        /// Offset of the first damaged byte.
        offset: u64,
        /// Number of bytes up to the next valid record or the end.
        bytes: u64,
        /// Reason why the first record is invalid.
        why: &'static str,
    },
}

/// Walks the bytes of manifest `number` of a store. Trailing zeros are not reported.
pub fn inspect_manifest(bytes: &[u8], store: StoreId, number: u64, visit: &mut dyn FnMut(ManifestSection)) {
    let seed = RecordSeed::new(store, number);
    let end = bytes.len() - bytes.iter().rev().take_while(|&&byte| byte == 0).count();
    let (mut at, mut damage): (usize, Option<(usize, &'static str)>) = (0, None);
    while at < end {
        let why = match decode_record(&bytes[at..], seed) {
            Decoded::Record { edit, edit_number, bytes } => {
                if let Some((offset, why)) = damage.take() {
                    visit(ManifestSection::Damage {
                        offset: u64_of(offset),
                        bytes: u64_of(at - offset),
                        why,
                    });
                }
                visit(ManifestSection::Record {
                    offset: u64_of(at),
                    bytes: u64_of(bytes),
                    edit_number,
                    edit,
                });
                at = (at + bytes).next_multiple_of(PAGE_SIZE);
                continue;
            }
            Decoded::DamagedPayload(damage) => damage.0,
            Decoded::NoRecord => "no record of this manifest",
        };
        damage.get_or_insert((at, why));
        at += PAGE_SIZE;
    }
    if let Some((offset, why)) = damage {
        let bytes = u64_of(bytes.len().min(at) - offset);
        visit(ManifestSection::Damage { offset: u64_of(offset), bytes, why });
    }
}

/// Maximum length of a file that is read as a whole.
const MAX_FILE_BYTES: usize = 8 << 30;

/// Reads a file of the store from the device, bypassing the OS cache. Holes take no memory.
///
/// Errors: `Corruption` if the file is longer than 8 GiB; `Io`.
pub fn read_file(env: &dyn Env, directory: &Path, name: &str) -> Result<Vec<u8>> {
    let options = OpenOptions { mode: OpenMode::Read, direct: true };
    let failed = |error| Error::io(name, error);
    let file = env.open(&directory.join(name), options).map_err(failed)?;
    let length = usize_of(file.len().map_err(failed)?);
    if length > MAX_FILE_BYTES {
        return Err(Error::corruption(name, u64_of(MAX_FILE_BYTES), "the file exceeds the maximum length"));
    }
    let whole = length / PAGE_SIZE * PAGE_SIZE;
    let mut bytes = read_sparse(&*file, u64_of(whole)).map_err(failed)?;
    if length > whole {
        let options = OpenOptions { mode: OpenMode::Read, direct: false };
        bytes.resize(length, 0);
        let file = env.open(&directory.join(name), options).map_err(failed)?;
        file.read_at(u64_of(whole), &mut bytes[whole..]).map_err(failed)?;
    }
    Ok(bytes)
}
