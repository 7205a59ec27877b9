//! The operations of a backup that are in no run, as a file of frames; each frame becomes a commit of the
//! restored store.
//!
//! **Invariants**
//! - Operations are passed on only from frames whose checksum matches.
//! - Reading returns an error unless file and summary agree on length, checksum and count.

use testudo_base::{Error, Result, checksum::StreamChecksum, codec::Damage, num::u64_of};
use testudo_env::File;
use testudo_store::{
    commits::batch_format::{self, Operation, encode_operation, operation_bytes},
    long_work::Meter,
};

use super::{
    backup_format::{
        FRAME_HEADER_BYTES, FrameHeader, MAX_FRAME_BYTES, TAIL_HEADER_BYTES, TailSummary, decode_tail_header,
        encode_frame, encode_tail_header,
    },
    repository::{Arrival, OpenRepository, read_part, require_length, tail_name, unreadable},
};

const TAIL_SEED: u64 = 0x5441_494c;
/// A frame ends with the operation that reaches this size.
const FRAME_BYTES: usize = 256 << 10;

/// A tail file being written; without operations no file is created.
#[derive(Debug)]
pub(crate) struct TailFile<'r> {
    repository: &'r OpenRepository,
    backup: u64,
    arrival: Option<Arrival<'r>>,
    summary: TailSummary,
    checksum: StreamChecksum,
    payload: Vec<u8>,
    operations: u32,
}

impl<'r> TailFile<'r> {
    pub(crate) fn new(repository: &'r OpenRepository, backup: u64) -> Self {
        Self {
            repository,
            backup,
            arrival: None,
            summary: TailSummary::default(),
            checksum: StreamChecksum::new(TAIL_SEED),
            payload: Vec::new(),
            operations: 0,
        }
    }

    pub(crate) fn push(&mut self, operation: &Operation<'_>, meter: &mut Meter<'_, '_>) -> Result<()> {
        let start = self.payload.len();
        let bytes = operation_bytes(operation);
        // A frame never exceeds its limit: a huge operation gets a frame of its own.
        if start > 0 && start + bytes > MAX_FRAME_BYTES {
            self.end_frame(meter)?;
            return self.push(operation, meter);
        }
        self.payload.resize(start + bytes, 0);
        encode_operation(&mut self.payload[start..], operation);
        self.operations += 1;
        if self.payload.len() < FRAME_BYTES {
            return Ok(());
        }
        self.end_frame(meter)
    }

    fn end_frame(&mut self, meter: &mut Meter<'_, '_>) -> Result<()> {
        if self.operations == 0 {
            return Ok(());
        }
        if self.arrival.is_none() {
            self.arrival = Some(self.repository.begin(&tail_name(self.backup))?);
            self.append(&encode_tail_header(self.repository.id, self.backup))?;
        }
        debug_assert!(
            !self.payload.is_empty() && self.payload.len() <= MAX_FRAME_BYTES,
            "a frame fits its limits"
        );
        self.append(&encode_frame(&self.payload, self.operations))?;
        self.summary.operations += u64::from(self.operations);
        self.operations = 0;
        self.payload.clear();
        meter.advance(0)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let arrival = self.arrival.as_ref().expect("the tail file was begun");
        arrival.write(self.summary.bytes, bytes)?;
        self.checksum.update(bytes);
        self.summary.bytes += u64_of(bytes.len());
        Ok(())
    }

    pub(crate) fn finish(mut self, meter: &mut Meter<'_, '_>) -> Result<TailSummary> {
        self.end_frame(meter)?;
        debug_assert_eq!(self.arrival.is_some(), self.summary.operations > 0, "no file without operations");
        if let Some(arrival) = self.arrival {
            arrival.finish()?;
            self.summary.checksum = self.checksum.value();
        }
        Ok(self.summary)
    }
}

/// Reads a tail and passes every operation to `act`.
pub(crate) fn read(
    repository: &OpenRepository,
    backup: u64,
    summary: TailSummary,
    meter: &mut Meter<'_, '_>,
    act: &mut dyn FnMut(Operation<'_>) -> Result<()>,
) -> Result<()> {
    if summary == TailSummary::default() {
        return Ok(());
    }
    let name = tail_name(backup);
    let file = repository.open_file(&name)?;
    require_length(&*file, &name, summary.bytes)?;
    let mut reader = TailReader {
        file: &*file,
        name: &name,
        at: 0,
        end: summary.bytes,
        checksum: StreamChecksum::new(TAIL_SEED),
    };
    let header = reader.take(TAIL_HEADER_BYTES)?;
    let header = decode_tail_header(&header).map_err(|why| unreadable(&name, why))?;
    if header != (repository.id, backup) {
        return Err(Error::corruption(&name, 0, "the file belongs to another backup"));
    }
    let mut operations = 0;
    while reader.at < reader.end {
        let start = reader.at;
        operations += reader.frame(act)?;
        meter.advance(reader.at - start)?;
    }
    if operations != summary.operations || reader.checksum.value() != summary.checksum {
        return Err(Error::corruption(&name, 0, "the file does not match the backup's summary"));
    }
    Ok(())
}

struct TailReader<'a> {
    file: &'a dyn File,
    name: &'a str,
    at: u64,
    end: u64,
    checksum: StreamChecksum,
}

impl TailReader<'_> {
    fn take(&mut self, bytes: usize) -> Result<Vec<u8>> {
        if u64_of(bytes) > self.end - self.at {
            return Err(self.damaged("the file ends inside a frame"));
        }
        let mut buffer = vec![0; bytes];
        read_part(self.file, self.name, self.at, &mut buffer)?;
        self.checksum.update(&buffer);
        self.at += u64_of(bytes);
        Ok(buffer)
    }

    fn frame(&mut self, act: &mut dyn FnMut(Operation<'_>) -> Result<()>) -> Result<u64> {
        let header = self.take(FRAME_HEADER_BYTES)?;
        let header = FrameHeader::decode(&header).map_err(|why| unreadable(self.name, why))?;
        let payload = self.take(header.payload_bytes)?;
        if !header.fits(&payload) {
            return Err(self.damaged("the checksum of a frame does not match"));
        }
        let mut count = 0;
        let decoded = batch_format::decode::<FrameError>(&payload, |_, operation| {
            count += 1;
            act(operation).map_err(FrameError::Act)
        });
        match decoded {
            Err(FrameError::Act(error)) => Err(error),
            Err(FrameError::Damaged(why)) => Err(self.damaged(why)),
            Ok(()) if count != header.operations => {
                Err(self.damaged("a frame's operation count does not match its header"))
            }
            Ok(()) => Ok(u64::from(count)),
        }
    }

    fn damaged(&self, why: &str) -> Error {
        Error::corruption(self.name, self.at, why)
    }
}

enum FrameError {
    Damaged(&'static str),
    Act(Error),
}

impl From<Damage> for FrameError {
    fn from(Damage(why): Damage) -> Self {
        Self::Damaged(why)
    }
}
