//! Rebuilds the superblock from its other slot, or from manifest and log.
//!
//! **Invariants**
//! - The old bytes are durably copied before the file is replaced atomically.
//! - The new watermark states only proven facts.

use std::path::Path;

use testudo_base::{Error, PAGE_SIZE, Result, num::usize_of};
use testudo_env::{Env, OpenMode, OpenOptions};
use testudo_storage::{SUPERBLOCK_FILE, Superblock, SuperblockFile, Watermark, survey_superblock};

use super::Site;

/// Maximum bytes to copy of a file that should have two pages.
const MAX_COPY_BYTES: u64 = 1 << 20;

impl Site<'_> {
    /// Checks the superblock and replaces it if it is damaged.
    pub(super) fn repair_superblock(&mut self) -> Result<()> {
        let (env, directory) = (&*self.options.env, self.options.directory.as_path());
        let slots = survey_superblock(env, directory)?;
        let bytes = read_old(env, directory)?;
        let Some(manifest) = &self.evidence.manifest else { return Ok(()) };
        let newest = slots.into_iter().flatten().max_by_key(|slot| slot.generation);
        let is_ours = newest.is_some_and(|newest| newest.store == self.evidence.store);
        let is_whole = bytes.as_ref().is_some_and(|bytes| bytes.len() >= 2 * PAGE_SIZE);
        let what = match newest {
            _ if bytes.is_none() => "the file is missing",
            None => "neither slot can be read",
            Some(_) if !is_ours => "it belongs to another store",
            Some(newest) if newest.manifest != manifest.number => "its newest slot is lost",
            Some(_) if !is_whole => "the file is too short",
            // The first superblock of a store occupies only one slot.
            Some(newest) if slots.contains(&None) && newest.generation > 1 => {
                "one of its slots cannot be read"
            }
            Some(newest) if slots.into_iter().flatten().any(|slot| slot.store != newest.store) => {
                "its slots belong to different stores"
            }
            Some(_) => return Ok(()),
        };
        let kept = newest.filter(|newest| is_ours && newest.manifest == manifest.number);
        let found =
            Watermark { edit: manifest.last_edit, seqno: self.plan.proven.max(manifest.state.log_seqno) };
        let openings = &manifest.state.openings;
        // Exceeds any generation the lost slot may have had, if the other slot is readable.
        let generation = newest.map_or(1, |newest| newest.generation + 2);
        debug_assert!(
            newest.is_none_or(|newest| newest.generation < generation),
            "the new slot is the newest"
        );
        let superblock = Superblock {
            store: self.evidence.store,
            generation,
            manifest: manifest.number,
            watermark: kept.map_or(found, |kept| found.max(kept.watermark)),
            incarnation: openings.last().map(|opening| opening.incarnation).unwrap_or_default(),
            is_closed: false,
        };
        let action = match kept {
            Some(_) => "rebuilt from the other slot",
            None => "rebuilt from manifest and log",
        };
        self.put_right(SUPERBLOCK_FILE, what, action, |env, directory| {
            if let Some(bytes) = bytes {
                keep_copy(env, directory, &bytes)?;
            }
            SuperblockFile::replace(env, directory, &superblock)
        })
    }
}

/// The bytes of the file; `None` if it does not exist.
fn read_old(env: &dyn Env, directory: &Path) -> Result<Option<Vec<u8>>> {
    let path = directory.join(SUPERBLOCK_FILE);
    let file = match env.open(&path, OpenOptions { mode: OpenMode::Read, direct: false }) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|e| Error::io(SUPERBLOCK_FILE, e))?,
    };
    let length = file.len().map_err(|e| Error::io(SUPERBLOCK_FILE, e))?.min(MAX_COPY_BYTES);
    let mut bytes = vec![0u8; usize_of(length)];
    for (offset, sector) in (0..).step_by(512).zip(bytes.chunks_mut(512)) {
        if file.read_at(offset, sector).is_err() {
            sector.fill(0);
        }
    }
    Ok(Some(bytes))
}

/// Copies the old bytes to the first free `superblock.before-repair-N`.
fn keep_copy(env: &dyn Env, directory: &Path, bytes: &[u8]) -> Result<()> {
    for number in 1u32.. {
        let name = format!("{SUPERBLOCK_FILE}.before-repair-{number}");
        let options = OpenOptions { mode: OpenMode::CreateNew, direct: false };
        let file = match env.open(&directory.join(&name), options) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
            opened => opened.map_err(|e| Error::io(&name, e))?,
        };
        file.write_at(0, bytes).and_then(|()| file.sync()).map_err(|e| Error::io(&name, e))?;
        return env.sync_dir(directory).map_err(|e| Error::io(&name, e));
    }
    Ok(())
}
