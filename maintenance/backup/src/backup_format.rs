//! File formats of a backup repository. Encoded and decoded only here; docs/format/backup.md repeats the
//! tables.
//!
//! Little-endian, `str` = u32 length and bytes. Every file begins with an 8-byte magic and the version u32
//! (2; runs 3 or 2). Checksums cover every byte.
//!
//! - `repository`: magic `TSTDOREP` · version · u32 0 · repository id u128 · checksum of all before u64.
//! - `run-STORE-INCARNATION-RUN`, a run: magic `TSTDORUN` · version · length of the reference u32 · store
//!   id u128 · bytes of pages u64 · checksum of the pages u64 · run reference · checksum of all before
//!   u64 · the pages as the store has them.
//! - `tail-ID`, operations: magic `TSTDOTAI` · version · u32 0 · repository id u128 · backup id u64 ·
//!   frames, each: payload length u32 · operations u32 · checksum of both and the payload u64 · payload as
//!   in the log.
//! - `backup-ID`: magic `TSTDOBAK` · version · u32 0 · repository id u128 · backup id u64 · store id
//!   u128 · time in ms since 1970 u64 · seqno u64 · new runs u64 · new bytes u64 · tail: bytes u64,
//!   checksum u64, operations u64 · state `str`, a manifest record · runs u32, each: reference `str`, bytes
//!   u64, checksum u64 · checksum of all before u64.
//!
//! **Invariants**
//! - Decoded content is consistent: references decode, lengths match, no bytes are left over.

use testudo_base::{
    StoreId,
    checksum::checksum64,
    codec::{self, Damage, Reader},
    num::{u32_of, u64_of, usize_of},
};
use testudo_run::RunRef;
use testudo_storage::ManifestState;

/// Version of the repository's format that this build writes and reads.
pub(crate) const VERSION: u32 = 2;
/// Version of a run whose blocks may have kind bytes (decision 0043); runs of [`VERSION`] have none.
const RUN_VERSION: u32 = 3;
/// Version of a run with a map (decision 0068).
const MAPPED_RUN_VERSION: u32 = 4;
/// Version of a run whose list of replaced pages has sections (decision 0069).
const SECTIONED_RUN_VERSION: u32 = 5;
/// Version of a backup with runs that have maps.
const MAPPED_VERSION: u32 = 3;
/// Version of a backup with runs that have sections.
const SECTIONED_VERSION: u32 = 4;
/// Bytes of a frame's header.
pub(crate) const FRAME_HEADER_BYTES: usize = 16;
/// Bytes of a tail file before its first frame.
pub(crate) const TAIL_HEADER_BYTES: usize = 40;
/// Bytes of a run file needed to determine the length of its header.
pub(crate) const RUN_PREFIX_BYTES: usize = 16;
/// Maximum payload of a frame, which holds one commit or a single operation.
pub(crate) const MAX_FRAME_BYTES: usize = u32::MAX as usize;
const RUN_FIXED_BYTES: usize = 56;
const MAX_REFERENCE_BYTES: usize = 1 << 26;

/// Random identity of a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RepositoryId(pub(crate) u128);

/// Reason why bytes do not decode as the expected file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    Damaged(&'static str),
    /// Written in this other version; valid otherwise, as far as it was read.
    OtherVersion(u32),
}

impl From<Damage> for Unreadable {
    fn from(Damage(why): Damage) -> Self {
        Self::Damaged(why)
    }
}

fn head(magic: &[u8; 8], version: u32, word: u32) -> Vec<u8> {
    let mut out = magic.to_vec();
    codec::put_u32(&mut out, version);
    codec::put_u32(&mut out, word);
    out
}

/// Reads the magic and a version between [`VERSION`] and `newest`; returns the word after them.
fn read_head(reader: &mut Reader<'_>, magic: &[u8; 8], newest: u32) -> Result<u32, Unreadable> {
    if reader.take(8)? != magic {
        return Err(Unreadable::Damaged("the magic does not match"));
    }
    match reader.u32()? {
        version if (VERSION..=newest).contains(&version) => Ok(reader.u32()?),
        other if other > 0 => Err(Unreadable::OtherVersion(other)),
        _ => Err(Unreadable::Damaged("no such version")),
    }
}

fn seal(mut out: Vec<u8>) -> Vec<u8> {
    let checksum = checksum64(&out, 0);
    codec::put_u64(&mut out, checksum);
    out
}

/// The bytes before the trailing checksum, which is verified.
fn unseal(bytes: &[u8]) -> Result<&[u8], Unreadable> {
    let (body, checksum) =
        bytes.split_last_chunk::<8>().ok_or(Unreadable::Damaged("the file is too short"))?;
    if u64::from_le_bytes(*checksum) != checksum64(body, 0) {
        return Err(Unreadable::Damaged("the checksum does not match"));
    }
    Ok(body)
}

fn require_zero(word: u32) -> Result<(), Unreadable> {
    if word == 0 { Ok(()) } else { Err(Unreadable::Damaged("a reserved field is not zero")) }
}

pub(crate) fn encode_repository(id: RepositoryId) -> Vec<u8> {
    let mut out = head(b"TSTDOREP", VERSION, 0);
    codec::put_u128(&mut out, id.0);
    seal(out)
}

pub(crate) fn decode_repository(bytes: &[u8]) -> Result<RepositoryId, Unreadable> {
    let word = read_head(&mut Reader::new(bytes), b"TSTDOREP", VERSION)?;
    require_zero(word)?;
    let mut reader = Reader::new(unseal(bytes)?);
    reader.take(16)?;
    let id = RepositoryId(reader.u128()?);
    reader.finish()?;
    Ok(id)
}

/// Header of a run file, before its pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunHeader {
    pub(crate) store: StoreId,
    pub(crate) page_bytes: u64,
    pub(crate) page_checksum: u64,
    pub(crate) reference: RunRef,
}

impl RunHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let reference = encode_reference(&self.reference);
        let version = match &self.reference {
            reference if reference.has_sections_or_spares() => SECTIONED_RUN_VERSION,
            reference if reference.map().is_some() => MAPPED_RUN_VERSION,
            _ => RUN_VERSION,
        };
        let mut out = head(b"TSTDORUN", version, u32_of(reference.len()));
        codec::put_u128(&mut out, self.store.0);
        codec::put_u64(&mut out, self.page_bytes);
        codec::put_u64(&mut out, self.page_checksum);
        debug_assert!(reference.len() <= MAX_REFERENCE_BYTES, "a reference that can be read back");
        out.extend_from_slice(&reference);
        let out = seal(out);
        debug_assert_eq!(out.len(), RUN_FIXED_BYTES + reference.len(), "pages follow the header");
        out
    }

    /// Length of the header that begins with these [`RUN_PREFIX_BYTES`].
    pub(crate) fn encoded_bytes(prefix: &[u8]) -> Result<usize, Unreadable> {
        let head = read_head(&mut Reader::new(prefix), b"TSTDORUN", SECTIONED_RUN_VERSION)?;
        let length = usize_of(u64::from(head));
        if length > MAX_REFERENCE_BYTES {
            return Err(Unreadable::Damaged("the run reference exceeds the maximum length"));
        }
        Ok(RUN_FIXED_BYTES + length)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Unreadable> {
        let mut reader = Reader::new(unseal(bytes)?);
        reader.take(RUN_PREFIX_BYTES)?;
        let store = StoreId(reader.u128()?);
        let (page_bytes, page_checksum) = (reader.u64()?, reader.u64()?);
        let reference = RunRef::decode(&mut reader)?;
        reader.finish()?;
        Ok(Self { store, page_bytes, page_checksum, reference })
    }
}

fn encode_reference(reference: &RunRef) -> Vec<u8> {
    let mut out = Vec::new();
    reference.encode_whole(&mut out);
    out
}

pub(crate) fn encode_tail_header(repository: RepositoryId, backup: u64) -> Vec<u8> {
    let mut out = head(b"TSTDOTAI", VERSION, 0);
    codec::put_u128(&mut out, repository.0);
    codec::put_u64(&mut out, backup);
    debug_assert_eq!(out.len(), TAIL_HEADER_BYTES, "frames follow the header");
    out
}

pub(crate) fn decode_tail_header(bytes: &[u8]) -> Result<(RepositoryId, u64), Unreadable> {
    let mut reader = Reader::new(bytes);
    require_zero(read_head(&mut reader, b"TSTDOTAI", VERSION)?)?;
    let header = (RepositoryId(reader.u128()?), reader.u64()?);
    reader.finish()?;
    Ok(header)
}

/// Header of a frame, before its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) payload_bytes: usize,
    pub(crate) operations: u32,
    checksum: u64,
}

fn frame_checksum(payload: &[u8], operations: u32) -> u64 {
    checksum64(payload, u64::from(operations) << 32 | u64_of(payload.len()))
}

pub(crate) fn encode_frame(payload: &[u8], operations: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(FRAME_HEADER_BYTES + payload.len());
    codec::put_u32(&mut out, u32_of(payload.len()));
    codec::put_u32(&mut out, operations);
    codec::put_u64(&mut out, frame_checksum(payload, operations));
    debug_assert_eq!(out.len(), FRAME_HEADER_BYTES, "the payload follows the header");
    out.extend_from_slice(payload);
    out
}

impl FrameHeader {
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Unreadable> {
        let mut reader = Reader::new(bytes);
        let payload_bytes = usize_of(u64::from(reader.u32()?));
        Ok(Self { payload_bytes, operations: reader.u32()?, checksum: reader.u64()? })
    }

    pub(crate) fn fits(&self, payload: &[u8]) -> bool {
        payload.len() == self.payload_bytes && self.checksum == frame_checksum(payload, self.operations)
    }
}

/// A run that a backup needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BackedRun {
    pub(crate) reference: RunRef,
    pub(crate) page_bytes: u64,
    pub(crate) page_checksum: u64,
}

/// Summary of the operations that are in no run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TailSummary {
    /// Length of the file; 0 if there is none.
    pub(crate) bytes: u64,
    pub(crate) checksum: u64,
    pub(crate) operations: u64,
}

/// A backup's own file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BackupRecord {
    pub(crate) repository: RepositoryId,
    pub(crate) id: u64,
    pub(crate) store: StoreId,
    pub(crate) time_ms: u64,
    pub(crate) seqno: u64,
    pub(crate) new_runs: u64,
    pub(crate) new_bytes: u64,
    pub(crate) tail: TailSummary,
    pub(crate) state: ManifestState,
    pub(crate) runs: Vec<BackedRun>,
}

impl BackupRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let any = |has: fn(&RunRef) -> bool| self.runs.iter().any(|run| has(&run.reference));
        let version = match () {
            () if any(RunRef::has_sections_or_spares) => SECTIONED_VERSION,
            () if any(|reference| reference.map().is_some()) => MAPPED_VERSION,
            () => VERSION,
        };
        let mut out = head(b"TSTDOBAK", version, 0);
        codec::put_u128(&mut out, self.repository.0);
        codec::put_u64(&mut out, self.id);
        codec::put_u128(&mut out, self.store.0);
        let tail = &self.tail;
        for field in [
            self.time_ms,
            self.seqno,
            self.new_runs,
            self.new_bytes,
            tail.bytes,
            tail.checksum,
            tail.operations,
        ] {
            codec::put_u64(&mut out, field);
        }
        codec::put_bytes(&mut out, &self.state.to_bytes());
        codec::put_u32(&mut out, u32_of(self.runs.len()));
        for run in &self.runs {
            codec::put_bytes(&mut out, &encode_reference(&run.reference));
            codec::put_u64(&mut out, run.page_bytes);
            codec::put_u64(&mut out, run.page_checksum);
        }
        seal(out)
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Unreadable> {
        require_zero(read_head(&mut Reader::new(bytes), b"TSTDOBAK", SECTIONED_VERSION)?)?;
        let mut reader = Reader::new(unseal(bytes)?);
        reader.take(16)?;
        let (repository, id) = (RepositoryId(reader.u128()?), reader.u64()?);
        let store = StoreId(reader.u128()?);
        let (time_ms, seqno) = (reader.u64()?, reader.u64()?);
        let (new_runs, new_bytes) = (reader.u64()?, reader.u64()?);
        let tail = TailSummary { bytes: reader.u64()?, checksum: reader.u64()?, operations: reader.u64()? };
        let state = ManifestState::from_bytes(reader.bytes(usize::MAX)?)?;
        let count = reader.u32()?;
        let mut runs = Vec::new();
        for _ in 0..count {
            let mut bytes = Reader::new(reader.bytes(MAX_REFERENCE_BYTES)?);
            let reference = RunRef::decode(&mut bytes)?;
            bytes.finish()?;
            runs.push(BackedRun { reference, page_bytes: reader.u64()?, page_checksum: reader.u64()? });
        }
        reader.finish()?;
        let record = Self { repository, id, store, time_ms, seqno, new_runs, new_bytes, tail, state, runs };
        record.check().map(|()| record)
    }

    /// Checks that the runs are exactly those the state refers to.
    pub(crate) fn check(&self) -> Result<(), Unreadable> {
        let mut spans: Vec<_> =
            self.runs.iter().flat_map(|run| run.reference.spans.iter().copied()).collect();
        spans.sort_unstable();
        let stated: Vec<_> = self.state.live_spans().map(|(span, _)| span).collect();
        if spans != stated {
            return Err(Unreadable::Damaged("its runs do not match the references in its state"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
