//! The in-memory end of the log: assigns seqnos and space, rotates the buffers.
//!
//! **Invariants**
//! - Seqnos are assigned in the order of the bytes: a record's position in (sealed buffers, active buffer)
//!   and its seqno grow together.
//! - At most the allowed number of buffers is created, including the one being written. If the limit drops
//!   later, excess buffers are released as they become empty. A record longer than a buffer gets a buffer of
//!   its own size in place of an ordinary one.
//!
//! A few buffers always exist. Others are created while the device is slow, and released after a period in
//! which they were not needed.

use std::collections::VecDeque;

use testudo_base::Seqno;

use crate::{
    append::buffer::{ActiveBuffer, Claim, ClaimSize, EmptyBuffer, SealedBuffer, Stamp},
    segment::wal_format::RECORD_HEADER_BYTES,
};

/// A buffer on its way to the segment file.
pub(crate) struct SealedRecords {
    pub(crate) buffer: SealedBuffer,
    pub(crate) first_seqno: Seqno,
    pub(crate) last_seqno: Seqno,
}

/// A buffer to be created.
pub(crate) struct Wanted {
    pub(crate) bytes: usize,
    /// No other buffer exists.
    pub(crate) is_needed: bool,
    /// Released once the new one is created.
    replaced: Option<EmptyBuffer>,
}

/// The fields that every commit touches come first, in one cache line with the lock around them.
#[repr(C)]
pub(crate) struct Tail {
    active: Option<(ActiveBuffer, Seqno)>,
    next_seqno: u64,
    /// Last seqno in a buffer that does not survive the process.
    unkept_seqno: u64,
    turns: u64,
    sealed: VecDeque<SealedRecords>,
    empty: Vec<EmptyBuffer>,
    /// Number of existing buffers, and its limit.
    count: usize,
    count_max: usize,
    /// Empty buffers to be released.
    given_up: Vec<EmptyBuffer>,
    /// Minimum number of empty buffers since the last [`Tail::trim`].
    least_empty: usize,
    /// Current and maximum length of ordinary buffers.
    current_bytes: usize,
    buffer_bytes: usize,
    /// Length of the last buffer created.
    made_bytes: usize,
}

/// Initial length of buffers: a store with few writes has a short file.
const FIRST_BYTES: usize = 64 << 10;
/// Minimum of the maximum buffer length where buffers keep values for value logs. Each full buffer ends a
/// page of the value logs and of the log.
const VALUE_BUFFER_BYTES: usize = 128 << 10;
/// Buffers that are kept even when they are not needed: writers fill one while others are written.
pub const USUAL_BUFFERS: usize = 4;

impl Tail {
    pub(crate) fn new(buffer_bytes: usize, count_max: usize, next_seqno: Seqno) -> Self {
        Self {
            active: None,
            sealed: VecDeque::new(),
            empty: Vec::new(),
            given_up: Vec::new(),
            unkept_seqno: 0,
            turns: 0,
            count: 0,
            count_max,
            least_empty: 0,
            current_bytes: buffer_bytes.min(FIRST_BYTES),
            buffer_bytes,
            made_bytes: 0,
            next_seqno: next_seqno.0,
        }
    }

    /// Claims space for a record of `payload_bytes` and assigns `seqno_count` seqnos; `None` if the active
    /// buffer has too little room.
    #[inline]
    pub(crate) fn claim(
        &mut self,
        size: ClaimSize,
        payload_bytes: usize,
        seqno_count: u32,
    ) -> Option<(Claim, Stamp)> {
        let (buffer, _) = self.active.as_mut().filter(|(buffer, _)| buffer.has_room(size))?;
        debug_assert!(
            size.record_bytes >= RECORD_HEADER_BYTES && seqno_count > 0,
            "a record with at least one seqno"
        );
        let stamp = Stamp { payload_bytes, first_seqno: Seqno(self.next_seqno), seqno_count };
        self.next_seqno += u64::from(seqno_count);
        debug_assert!(self.next_seqno > stamp.first_seqno.0, "seqnos ascend");
        if buffer.must_write() {
            self.unkept_seqno = self.next_seqno - 1;
        }
        Some((buffer.claim(size, stamp), stamp))
    }

    /// Seals the active buffer and activates an empty one with room for `size`; `false` if there is none.
    pub(crate) fn turn(&mut self, size: ClaimSize) -> bool {
        self.grow(size);
        self.seal();
        self.turns += 1;
        let empty = self.take_empty(size);
        self.active =
            empty.map(|buffer| (buffer.activate(self.turns, Seqno(self.next_seqno)), Seqno(self.next_seqno)));
        self.active.is_some()
    }

    /// Doubles the buffer length if a buffer is full, and raises it to fit `size`, up to the maximum.
    fn grow(&mut self, size: ClaimSize) {
        let has_values = size.value_bytes > 0;
        let bytes_max = self.buffer_bytes.max(if has_values { VALUE_BUFFER_BYTES } else { 0 });
        let mut bytes = self.current_bytes << u32::from(self.active.is_some());
        while bytes < size.kept_bytes() && bytes < bytes_max {
            bytes *= 2;
        }
        let before = self.current_bytes;
        self.current_bytes = bytes.min(bytes_max).max(self.current_bytes);
        debug_assert!(self.current_bytes >= before, "buffers never get shorter when one is full");
    }

    /// Whether [`Tail::claim`] would find no room for `size`.
    pub(crate) fn is_full(&self, size: ClaimSize) -> bool {
        let has_room = self.active.as_ref().is_some_and(|(buffer, _)| buffer.has_room(size));
        !has_room && self.lacks_buffers()
    }

    /// Whether no buffer is empty, and none can be added.
    pub(crate) fn lacks_buffers(&self) -> bool {
        self.empty.is_empty() && self.count >= self.count_max
    }

    /// Last seqno in a buffer that does not survive the process; 0 if there was none.
    pub(crate) fn unkept_seqno(&self) -> u64 {
        self.unkept_seqno
    }

    /// Describes the buffer to create if no empty one has the current length, and one may be added or a
    /// shorter one replaced. The caller ends it with [`Tail::add_begun`] or [`Tail::give_up_begun`].
    pub(crate) fn begin_buffer(&mut self) -> Option<Wanted> {
        let replaced = match self.empty.iter().position(|buffer| buffer.capacity() < self.current_bytes) {
            _ if self.empty.iter().any(|buffer| buffer.capacity() >= self.current_bytes) => return None,
            Some(short) => Some(self.empty.swap_remove(short)),
            None if self.count >= self.count_max => return None,
            None => {
                self.count += 1;
                None
            }
        };
        Some(Wanted { bytes: self.current_bytes, is_needed: self.count == 1 && replaced.is_none(), replaced })
    }

    /// Adds the buffer that was created.
    pub(crate) fn add_begun(&mut self, wanted: Wanted, buffer: EmptyBuffer) {
        debug_assert!(self.count > 0, "the new buffer was counted");
        self.made_bytes = buffer.capacity();
        self.given_up.extend(wanted.replaced);
        self.recycle(buffer);
    }

    /// Records that the buffer could not be created: buffers keep the length of the existing ones. Returns
    /// whether one of these can have room for `size`.
    pub(crate) fn give_up_begun(&mut self, wanted: Wanted, size: ClaimSize) -> bool {
        match wanted.replaced {
            Some(short) => self.empty.push(short),
            None => self.count -= 1,
        }
        self.current_bytes = self.made_bytes.clamp(FIRST_BYTES.min(self.buffer_bytes), self.current_bytes);
        self.count > 0 && size.kept_bytes() <= self.current_bytes
    }

    /// Seals the active buffer if there is one.
    pub(crate) fn seal(&mut self) {
        if let Some((buffer, first_seqno)) = self.active.take() {
            let last_seqno = self.last_seqno();
            debug_assert!(last_seqno.0 + 1 >= first_seqno.0, "seqnos ascend within a buffer");
            debug_assert!(
                self.sealed.back().is_none_or(|before| before.last_seqno.0 + 1 == first_seqno.0),
                "each buffer continues where the one before ended"
            );
            self.sealed.push_back(SealedRecords { buffer: buffer.seal(), first_seqno, last_seqno });
        }
    }

    /// Takes the oldest sealed buffer. REQUIRES: the caller holds the segment writer, which keeps the order.
    pub(crate) fn pop_sealed(&mut self) -> Option<SealedRecords> {
        self.sealed.pop_front()
    }

    /// Puts back a buffer from [`Tail::pop_sealed`] that could not be written. REQUIRES: as there.
    pub(crate) fn push_back(&mut self, records: SealedRecords) {
        debug_assert!(
            self.sealed.front().is_none_or(|next| records.last_seqno.0 + 1 == next.first_seqno.0),
            "each buffer continues where the one before ended"
        );
        self.sealed.push_front(records);
    }

    /// Number of buffers waiting to be written.
    pub(crate) fn sealed_count(&self) -> usize {
        self.sealed.len()
    }

    /// Returns a written buffer. A shorter one stays until another has replaced it.
    pub(crate) fn recycle(&mut self, buffer: EmptyBuffer) {
        let is_ordinary = !buffer.is_for_one() && buffer.capacity() <= self.current_bytes;
        debug_assert!(self.count > self.empty.len(), "a returned buffer was in use");
        if is_ordinary && self.count <= self.count_max {
            self.empty.push(buffer);
        } else {
            self.given_up.push(buffer);
            self.count -= 1;
        }
    }

    /// Takes the buffers released since the last call.
    pub(crate) fn take_given_up(&mut self) -> Vec<EmptyBuffer> {
        std::mem::take(&mut self.given_up)
    }

    /// Changes the maximum number of buffers, at least one.
    pub(crate) fn set_count_max(&mut self, count_max: usize) {
        self.count_max = count_max.max(1);
        while self.count > self.count_max
            && let Some(buffer) = self.empty.pop()
        {
            self.given_up.push(buffer);
            self.count -= 1;
        }
    }

    /// Releases the buffers that were not needed since the last call, except for [`USUAL_BUFFERS`].
    pub(crate) fn trim(&mut self) {
        let spare = self.least_empty.min(self.count.saturating_sub(USUAL_BUFFERS)).min(self.empty.len());
        self.given_up.extend(self.empty.drain(self.empty.len() - spare..));
        debug_assert!(self.count >= spare + USUAL_BUFFERS || spare == 0, "the usual buffers stay");
        self.count -= spare;
        self.least_empty = self.empty.len();
    }

    /// Bytes of the buffers beyond [`USUAL_BUFFERS`].
    pub(crate) fn extra_bytes(&self) -> usize {
        self.count.saturating_sub(USUAL_BUFFERS) * self.current_bytes
    }

    /// The last seqno assigned.
    pub(crate) fn last_seqno(&self) -> Seqno {
        Seqno(self.next_seqno - 1)
    }

    /// Takes an empty buffer. A commit that fits into none gets a heap buffer in place of another.
    fn take_empty(&mut self, size: ClaimSize) -> Option<EmptyBuffer> {
        let is_long = size.kept_bytes() > self.current_bytes;
        if is_long && self.count < self.count_max {
            self.count += 1;
            return Some(EmptyBuffer::for_one(size.record_bytes));
        }
        if is_long {
            self.given_up.push(self.empty.pop()?);
            return Some(EmptyBuffer::for_one(size.record_bytes));
        }
        let taken = self.empty.iter().rposition(|buffer| buffer.capacity() >= self.current_bytes);
        let taken = taken.map(|at| self.empty.swap_remove(at));
        self.least_empty = self.least_empty.min(self.empty.len());
        taken
    }
}

#[cfg(test)]
mod tests;
