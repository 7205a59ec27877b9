//! The object of a value segment in the manifest.
//!
//! Little-endian: segment id u64 · class u8 (0 sorted, 1 transient, 2 logged, 3 both) · bytes of values
//! in the run u64 · bytes of dead ones u64 · values ever written u32 · words of the set of dead ones
//! u32, 0 if there are none · the words u64 each, the first value's bit the lowest · reference to the
//! run.
//!
//! **Invariants**
//! - Reading never panics: an object that contradicts itself is [`Damage`].

use testudo_base::{
    RunId,
    codec::{self, Damage, Reader},
    sync::Arc,
};
use testudo_run::{Run, RunRef};

use crate::{DeadValues, Segment, SegmentClass};

/// What an object says.
#[derive(Clone, Debug)]
pub struct SegmentRecord {
    /// The segment.
    pub id: RunId,
    class: SegmentClass,
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

    /// The segment of a record whose run was opened.
    pub fn opened(record: SegmentRecord, run: Arc<Run>) -> Result<Self, Damage> {
        let SegmentRecord { id, class, dead, stored_bytes, dead_bytes, .. } = record;
        let segment = Self { id, class, run, dead, stored_bytes, dead_bytes };
        segment.check().map(|()| segment)
    }
}

impl SegmentRecord {
    /// Whether its values are found by their numbers.
    pub fn is_logged(&self) -> bool {
        self.class.is_logged()
    }

    /// Reads the bytes of an object.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let mut reader = Reader::new(bytes);
        let id = RunId(reader.u64()?);
        let class = match reader.u8()? {
            0 => SegmentClass::Sorted,
            1 => SegmentClass::Transient,
            2 => SegmentClass::Logged,
            3 => SegmentClass::LoggedTransient,
            _ => return Err(Damage("a value segment is of an unknown class")),
        };
        let (stored_bytes, dead_bytes) = (reader.u64()?, reader.u64()?);
        let dead = DeadValues::decode(&mut reader)?;
        let run = RunRef::decode(&mut reader)?;
        reader.finish()?;
        Ok(Self { id, class, run, dead, stored_bytes, dead_bytes })
    }
}
