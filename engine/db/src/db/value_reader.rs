//! Reading a value piece by piece.
//!
//! **Invariants**
//! - Reads the value as of the creation of the reader, for as long as the reader exists.
//! - Holds at most one piece in memory.

use std::{
    io::{self, Read, Seek, SeekFrom},
    sync::Arc,
};

use testudo_base::{
    Result, ValueReference,
    num::{u64_of, usize_of},
};
use testudo_store::{
    read::{long_value, look_up::Found, slice::Slice},
    values::pieces_format::{PIECE_BYTES, piece_at},
};

use crate::db::pinned::Pinned;

/// A seekable reader of one value. A long value is read on demand. The reader keeps the store open and
/// the value readable until it is dropped.
///
/// Errors of the store are wrapped in [`io::Error`].
pub struct ValueReader {
    source: Source,
    length: u64,
    position: u64,
}

enum Source {
    Whole(Slice),
    Pieces {
        pinned: Arc<Pinned>,
        reference: ValueReference,
        /// The last piece read, with its number.
        piece: Option<(u32, Vec<u8>)>,
    },
}

impl ValueReader {
    pub(crate) fn of_whole(value: Slice) -> Self {
        Self { length: u64_of(value.len()), source: Source::Whole(value), position: 0 }
    }

    pub(crate) fn of_long(pinned: &Arc<Pinned>, reference: ValueReference) -> Self {
        let source = Source::Pieces { pinned: Arc::clone(pinned), reference, piece: None };
        Self { source, length: u64::from(reference.length), position: 0 }
    }

    /// A reader of the value of `key`, or `None` if there is none.
    pub(crate) fn of_key(pinned: &Arc<Pinned>, key: &[u8]) -> Result<Option<Self>> {
        Ok(match pinned.read(|| pinned.find(key))? {
            Found::Whole(value) => value.map(Self::of_whole),
            Found::Long(reference) => Some(Self::of_long(pinned, reference)),
        })
    }

    /// Returns the length of the value in bytes.
    pub fn value_len(&self) -> u64 {
        self.length
    }

    /// Reads the next piece and moves past it; returns `false` at the end.
    pub(crate) fn skip_piece(&mut self) -> Result<bool> {
        let count = u64_of(self.at_hand()?.len());
        self.position += count;
        debug_assert!(count == 0 || self.position <= self.length, "bytes of the value");
        Ok(count > 0)
    }

    /// Returns the bytes from the position to the end of the current piece, and reads that piece if
    /// necessary.
    fn at_hand(&mut self) -> Result<&[u8]> {
        if self.position >= self.length {
            return Ok(&[]);
        }
        match &mut self.source {
            Source::Whole(value) => Ok(&value[usize_of(self.position)..]),
            Source::Pieces { pinned, reference, piece } => {
                let wanted = piece_at(self.position);
                let start = usize_of(self.position % u64_of(PIECE_BYTES));
                if piece.as_ref().is_none_or(|(number, _)| *number != wanted) {
                    *piece = None;
                    *piece = Some((wanted, read_piece(pinned, reference, wanted)?));
                }
                Ok(piece.as_ref().map_or(&[][..], |(_, bytes)| bytes.get(start..).unwrap_or_default()))
            }
        }
    }
}

/// Reads a piece of the long value that a reference points to.
fn read_piece(pinned: &Pinned, reference: &ValueReference, piece: u32) -> Result<Vec<u8>> {
    let view = pinned.long_values.as_deref();
    pinned.read(|| long_value::read_piece(view, pinned.seqno, reference, piece))
}

impl std::fmt::Debug for ValueReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ValueReader(at {} of {} bytes)", self.position, self.length)
    }
}

impl Read for ValueReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let at_hand = self.at_hand().map_err(io::Error::other)?;
        let count = at_hand.len().min(into.len());
        into[..count].copy_from_slice(&at_hand[..count]);
        self.position += u64_of(count);
        debug_assert!(count == 0 || self.position <= self.length, "bytes of the value");
        Ok(count)
    }
}

impl Seek for ValueReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(by) => self.length.checked_add_signed(by),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
        };
        let before = || io::Error::new(io::ErrorKind::InvalidInput, "seek before the start of the value");
        self.position = position.ok_or_else(before)?;
        Ok(self.position)
    }
}
