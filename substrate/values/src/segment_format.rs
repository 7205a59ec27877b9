//! The object of a value segment in the manifest.
//!
//! Little-endian: segment id u64 · 1 if it is transient, else 0 u8 · bytes of values in the run u64 ·
//! bytes of dead ones u64 · values ever written u32 · words of the set of dead ones u32, 0 if there are
//! none · the words u64 each, the first value's bit the lowest · reference to the run.
//!
//! **Invariants**
//! - Reading never panics: an object that contradicts itself is [`Damage`].

use testudo_base::{
    RunId,
    codec::{self, Damage, Reader},
    sync::Arc,
};
use testudo_run::{Run, RunRef};

use crate::{DeadValues, Segment};

/// What an object says.
#[derive(Clone, Debug)]
pub struct SegmentRecord {
    /// The segment.
    pub id: RunId,
    is_transient: bool,
    /// The run that it is in.
    pub run: RunRef,
    pub(crate) dead: DeadValues,
    pub(crate) stored_bytes: u64,
    pub(crate) dead_bytes: u64,
}

impl Segment {
    /// The bytes of its object.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        codec::put_u64(&mut out, self.id.0);
        out.push(u8::from(self.is_transient));
        codec::put_u64(&mut out, self.stored_bytes);
        codec::put_u64(&mut out, self.dead_bytes);
        self.dead.encode(&mut out);
        self.run.reference().encode(&mut out);
        out
    }

    /// The segment of a record whose run was opened.
    pub fn opened(record: SegmentRecord, run: Arc<Run>) -> Result<Self, Damage> {
        let SegmentRecord { id, is_transient, dead, stored_bytes, dead_bytes, .. } = record;
        let segment = Self { id, is_transient, run, dead, stored_bytes, dead_bytes };
        segment.check().map(|()| segment)
    }
}

impl SegmentRecord {
    /// Reads the bytes of an object.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let mut reader = Reader::new(bytes);
        let id = RunId(reader.u64()?);
        let is_transient = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(Damage("a value segment is of an unknown class")),
        };
        let (stored_bytes, dead_bytes) = (reader.u64()?, reader.u64()?);
        let dead = DeadValues::decode(&mut reader)?;
        let run = RunRef::decode(&mut reader)?;
        reader.finish()?;
        Ok(Self { id, is_transient, run, dead, stored_bytes, dead_bytes })
    }
}
