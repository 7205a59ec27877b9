//! Recomputes the checksums of a changed store, so that the content of its files counts as valid.
//!
//! The places of checksums are determined once, in the valid files ([`sites_of`]), since a damaged file
//! cannot be walked; the tables are those of docs/FORMAT.md. This file computes them on its own, without the
//! store's encoders.
//!
//! **Invariants**
//! - Only checksums are changed. A length that reaches beyond its file is left unsealed.

use testudo_base::{
    PAGE_SIZE, StoreId,
    checksum::checksum64,
    num::{low32, low64, usize_of},
};

/// A structure with a checksum.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Site {
    /// A slot of the superblock.
    Superblock(usize),
    /// A record of the manifest.
    Manifest(usize),
    /// The header page of a log segment.
    LogHeader,
    /// A record of the log.
    LogRecord(usize),
    /// A block of the data file.
    Page(usize),
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn length_at(bytes: &[u8], at: usize) -> Option<usize> {
    u32_at(bytes, at).map(|length| usize_of(length.into()))
}

fn manifest_seed(store: StoreId, number: u64) -> u64 {
    let mut bytes = store.0.to_le_bytes().to_vec();
    bytes.extend_from_slice(&number.to_le_bytes());
    checksum64(&bytes, 0x4d41_4e49)
}

fn log_salt(store: StoreId, segment: &[u8]) -> Option<u64> {
    Some(checksum64(&store.0.to_le_bytes(), u64_at(segment, 48)?))
}

fn page_seed(store: StoreId) -> u64 {
    low64(store.0 >> 64) ^ low64(store.0)
}

/// Builds a manifest record with `payload`, padded to whole pages.
pub(crate) fn manifest_record(payload: &[u8], edit_number: u64, store: StoreId, manifest: u64) -> Vec<u8> {
    let mut record = vec![0; 24];
    record[..4].copy_from_slice(&testudo_base::num::u32_of(payload.len()).to_le_bytes());
    record[8..16].copy_from_slice(&edit_number.to_le_bytes());
    record.extend_from_slice(payload);
    record.resize(record.len().next_multiple_of(PAGE_SIZE), 0);
    // The length fits, so sealing cannot fail.
    let _ = seal_manifest(&mut record, 0, manifest_seed(store, manifest));
    record
}

/// Seals a superblock slot that starts at `at`.
pub(crate) fn seal_superblock(file: &mut [u8], at: usize) -> Option<()> {
    for end in [80, 96] {
        let checksum = checksum64(file.get(at..at + end)?, 0);
        file.get_mut(at + end..at + end + 8)?.copy_from_slice(&checksum.to_le_bytes());
    }
    Some(())
}

fn seal_manifest(file: &mut [u8], at: usize, seed: u64) -> Option<()> {
    let (length, edit_number) = (u32_at(file, at)?, u64_at(file, at + 8)?);
    let payload = file.get(at + 24..)?.get(..usize_of(length.into()))?;
    let payload_checksum = checksum64(payload, seed ^ edit_number);
    let mut header = length.to_le_bytes().to_vec();
    header.extend_from_slice(&edit_number.to_le_bytes());
    let checksum = low32(checksum64(&header, seed));
    file[at + 4..at + 8].copy_from_slice(&checksum.to_le_bytes());
    file[at + 16..at + 24].copy_from_slice(&payload_checksum.to_le_bytes());
    Some(())
}

fn seal_log_header(file: &mut [u8]) -> Option<()> {
    let page = file.get_mut(..PAGE_SIZE)?;
    page[16..24].fill(0);
    let checksum = checksum64(page, 0);
    page[16..24].copy_from_slice(&checksum.to_le_bytes());
    Some(())
}

fn seal_log_record(file: &mut [u8], at: usize, salt: u64) -> Option<()> {
    let length = length_at(file, at + 4)?;
    let checksum = checksum64(file.get(at + 40..)?.get(..length)?, salt);
    file[at + 8..at + 16].copy_from_slice(&checksum.to_le_bytes());
    let checksum = low32(checksum64(&file[at + 4..at + 40], salt));
    file[at..at + 4].copy_from_slice(&checksum.to_le_bytes());
    Some(())
}

fn page_checksum(file: &[u8], at: usize, store: StoreId) -> Option<u64> {
    let length = length_at(file, at + 12)?;
    Some(checksum64(file.get(at + 8..)?.get(..32 + length)?, page_seed(store)))
}

/// Returns the number in the name of a manifest.
fn manifest_number(name: &str) -> Option<u64> {
    name.strip_prefix("manifest-")?.parse().ok()
}

/// Seals one structure of the file called `name`; `None` if impossible.
pub(crate) fn seal(name: &str, file: &mut [u8], site: Site, store: StoreId) -> Option<()> {
    match site {
        Site::Superblock(at) => seal_superblock(file, at),
        Site::Manifest(at) => seal_manifest(file, at, manifest_seed(store, manifest_number(name)?)),
        Site::LogHeader => seal_log_header(file),
        Site::LogRecord(at) => {
            let salt = log_salt(store, file)?;
            seal_log_record(file, at, salt)
        }
        Site::Page(at) => {
            let checksum = page_checksum(file, at, store)?;
            file[at..at + 8].copy_from_slice(&checksum.to_le_bytes());
            Some(())
        }
    }
}

/// Returns everything in a valid file that has a checksum.
pub(crate) fn sites_of(name: &str, file: &[u8], store: StoreId) -> Vec<Site> {
    let pages = (0..file.len()).step_by(PAGE_SIZE);
    // A structure is at a place where sealing changes nothing.
    let is_sealed = |site: &Site| {
        let mut copy = file.to_vec();
        seal(name, &mut copy, *site, store).is_some() && copy == file
    };
    let is_used = |at: &usize| file[*at..].iter().take(PAGE_SIZE).any(|&byte| byte != 0);
    match name {
        "superblock" => pages.filter(is_used).map(Site::Superblock).filter(is_sealed).collect(),
        "data" => pages
            .filter(is_used)
            .map(Site::Page)
            .filter(
                |site| matches!(site, Site::Page(at) if page_checksum(file, *at, store) == u64_at(file, *at)),
            )
            .collect(),
        _ if manifest_number(name).is_some() => {
            pages.filter(is_used).map(Site::Manifest).filter(is_sealed).collect()
        }
        _ if name.starts_with("wal-") => log_sites(file, store),
        _ => Vec::new(),
    }
}

fn log_sites(file: &[u8], store: StoreId) -> Vec<Site> {
    let mut sites = Vec::new();
    let Some(salt) = log_salt(store, file).filter(|_| file.starts_with(b"TSTDOWAL")) else { return sites };
    sites.push(Site::LogHeader);
    let mut at = PAGE_SIZE;
    while let Some(header) = file.get(at..at + 40) {
        let is_record = header[36] != 0 && u32_at(header, 0) == Some(low32(checksum64(&header[4..], salt)));
        if is_record {
            sites.push(Site::LogRecord(at));
            at += (40 + length_at(header, 4).unwrap_or(0)).next_multiple_of(8);
        } else {
            at = (at + 1).next_multiple_of(PAGE_SIZE);
        }
    }
    sites
}
