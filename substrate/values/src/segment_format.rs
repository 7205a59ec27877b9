//! Encoding of a value segment's object in the manifest.
//!
//! Little-endian: segment id u64 · class u8 (0 sorted, 1 transient, 2 logged, 3 both) · bytes of values in
//! the run u64 · bytes of dead values u64 · values ever written u32 · words of the set of dead values u32,
//! 0 if it is empty · the words u64 each, the first value's bit the lowest · reference to the run.
//!
//! **Invariants**
//! - Decoding never panics: an inconsistent object is [`Damage`].

use testudo_base::{
    RunId,
    codec::{self, Damage, Reader},
    sync::Arc,
};
use testudo_run::{Run, RunRef};

use crate::{DeadValues, Segment, SegmentClass};

/// Decoded object of a segment.
#[derive(Clone, Debug)]
pub struct SegmentRecord {
    /// Id of the segment.
    pub id: RunId,
    class: SegmentClass,
    /// Reference to the run that holds the values.
    pub run: RunRef,
    pub(crate) dead: DeadValues,
    pub(crate) stored_bytes: u64,
    pub(crate) dead_bytes: u64,
}

impl Segment {
    /// Encodes the object.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        codec::put_u64(&mut out, self.id.0);
        out.push(match self.class {
            SegmentClass::Sorted => 0,
            SegmentClass::Transient => 1,
            SegmentClass::Logged => 2,
            SegmentClass::LoggedTransient => 3,
        });
        codec::put_u64(&mut out, self.stored_bytes);
        codec::put_u64(&mut out, self.dead_bytes);
        self.dead.encode(&mut out);
        self.run.reference().encode(&mut out);
        out
    }

    /// Creates the segment of a record whose run has been opened.
    pub fn opened(record: SegmentRecord, run: Arc<Run>) -> Result<Self, Damage> {
        let SegmentRecord { id, class, dead, stored_bytes, dead_bytes, .. } = record;
        let segment = Self { id, class, run, dead, stored_bytes, dead_bytes };
        segment.check().map(|()| segment)
    }
}

impl SegmentRecord {
    /// Whether its values are keyed by number.
    pub fn is_logged(&self) -> bool {
        self.class.is_logged()
    }

    /// Decodes an object.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let mut reader = Reader::new(bytes);
        let id = RunId(reader.u64()?);
        let class = match reader.u8()? {
            0 => SegmentClass::Sorted,
            1 => SegmentClass::Transient,
            2 => SegmentClass::Logged,
            3 => SegmentClass::LoggedTransient,
            _ => return Err(Damage("unknown class of value segment")),
        };
        let (stored_bytes, dead_bytes) = (reader.u64()?, reader.u64()?);
        let dead = DeadValues::decode(&mut reader)?;
        let run = RunRef::decode(&mut reader)?;
        reader.finish()?;
        Ok(Self { id, class, run, dead, stored_bytes, dead_bytes })
    }
}
