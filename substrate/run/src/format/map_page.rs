//! Map pages: the replaced pages of a version of a run, in the data file (decision 0068).
//!
//! A map is one block of kind 6 in one or more pages, which need not be adjacent. Its header has keyspace,
//! incarnation and generation of the version. Payload (little-endian; `str` = u32 length and bytes):
//!
//! | bytes | field |
//! |---|---|
//! | 1 | format, 2; of earlier builds 1: at most one overflow page for each page, and that of a replaced one
//! |
//! | 8 | id of the run |
//! | 8 | newest seqno of the version |
//! | 1 | flags: 1 if a low key follows, 2 a high key, 4 a latest expiry; none is written yet |
//! | … | if so: low key `str`, exclusive high key `str`, latest expiry u64 |
//! | … | the list, see `replaced_pages.rs` |
//!
//! **Invariants**
//! - A map is used only for the version that names it: another run's, and an older one, are refused.
//! - Bounds change the contents of a run, so a build that does not support them refuses the map.

use testudo_base::{
    MAX_KEY_BYTES, RunId, Seqno,
    codec::{self, Damage, Reader},
    planted,
};

use super::replaced_pages::{ListEncoding, ReplacedPages};

const FORMAT: u8 = 2;
/// Format of maps before decision 0069.
const FIRST_FORMAT: u8 = 1;
const HAS_LOW: u8 = 1;
const HAS_HIGH: u8 = 2;
const HAS_EXPIRY: u8 = 4;

/// Decoded contents of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapPage {
    /// The run.
    pub run: RunId,
    /// Newest seqno of the version.
    pub newest_seqno: Seqno,
    /// Lower bound of the keys that count.
    pub low: Option<Box<[u8]>>,
    /// Exclusive upper bound of the keys that count.
    pub high: Option<Box<[u8]>>,
    /// Time after which none of its records counts.
    pub latest_expiry: Option<u64>,
    /// The list.
    pub replaced: ReplacedPages,
}

/// Encodes the map of a version. Bounds and expiry are absent.
pub(crate) fn encode(run: RunId, newest_seqno: Seqno, replaced: &ReplacedPages, out: &mut Vec<u8>) {
    codec::put_u8(out, FORMAT);
    codec::put_u64(out, run.0);
    codec::put_u64(out, newest_seqno.0);
    codec::put_u8(out, 0);
    replaced.encode(ListEncoding::Map, run, out);
}

impl MapPage {
    /// Decodes the payload of a map.
    pub fn read(payload: &[u8]) -> Result<Self, Damage> {
        let mut reader = Reader::new(payload);
        let encoding = match reader.u8()? {
            FORMAT => ListEncoding::Map,
            FIRST_FORMAT => ListEncoding::FirstMaps,
            _ => return Err(Damage("unknown format of a map page")),
        };
        let (run, newest_seqno, flags) = (RunId(reader.u64()?), Seqno(reader.u64()?), reader.u8()?);
        if flags & !(HAS_LOW | HAS_HIGH | HAS_EXPIRY) != 0 {
            return Err(Damage("unknown fields of a map page"));
        }
        let key = |reader: &mut Reader<'_>, flag: u8| -> Result<Option<Box<[u8]>>, Damage> {
            if flags & flag == 0 { Ok(None) } else { Ok(Some(reader.bytes(MAX_KEY_BYTES)?.into())) }
        };
        let (low, high) = (key(&mut reader, HAS_LOW)?, key(&mut reader, HAS_HIGH)?);
        let latest_expiry = if flags & HAS_EXPIRY == 0 { None } else { Some(reader.u64()?) };
        let replaced = ReplacedPages::decode(encoding, run, &mut reader)?;
        reader.finish()?;
        Ok(Self { run, newest_seqno, low, high, latest_expiry, replaced })
    }

    /// Returns the list, if the map is that of this version.
    pub(crate) fn into_list_of(self, run: RunId, newest_seqno: Seqno) -> Result<ReplacedPages, Damage> {
        if self.run != run {
            return Err(Damage("a map page belongs to another run"));
        }
        if self.newest_seqno != newest_seqno && !planted!("map-page-older-than-run") {
            return Err(Damage("a map page belongs to another version of its run"));
        }
        if self.low.is_some() || self.high.is_some() {
            return Err(Damage("a map page has bounds, which this build does not support"));
        }
        Ok(self.replaced)
    }
}

#[cfg(test)]
mod tests;
