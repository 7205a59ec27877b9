//! The end of the log that is still in memory: assigns seqnos and room, keeps the buffers in turn.
//!
//! **Invariants**
//! - Seqnos are assigned in the order of the bytes: a record's place in (sealed buffers, active buffer) and
//!   its seqno grow together.
//! - At most as many buffers are created as are allowed, the one being written included; if fewer are allowed
//!   later, those beyond that go as they become empty. A record longer than a buffer gets a buffer of its own
//!   size in the place of an ordinary one.
//!
//! A few buffers are always there. The others are created while the device is slow, and go once they were not
//! needed for a while.

use std::collections::VecDeque;

use testudo_base::Seqno;

use crate::{
    append::buffer::{ActiveBuffer, Claim, EmptyBuffer, SealedBuffer},
    segment::wal_format::RECORD_HEADER_BYTES,
};

/// A buffer on its way to the file.
pub(crate) struct SealedRecords {
    pub(crate) buffer: SealedBuffer,
    pub(crate) first_seqno: Seqno,
    pub(crate) last_seqno: Seqno,
}

/// The fields that every commit touches stand first, in one cache line together with the lock around it.
#[repr(C)]
pub(crate) struct Tail {
    active: Option<(ActiveBuffer, Seqno)>,
    next_seqno: u64,
    sealed: VecDeque<SealedRecords>,
    empty: Vec<EmptyBuffer>,
    /// Buffers that there are, and that there may be.
    count: usize,
    count_max: usize,
    /// The fewest that were empty since the last [`Tail::trim`].
    least_empty: usize,
    buffer_bytes: usize,
}

/// Buffers that are kept when they are not needed: writers fill one while others are written.
pub const USUAL_BUFFERS: usize = 4;

impl Tail {
    pub(crate) fn new(buffer_bytes: usize, count_max: usize, next_seqno: Seqno) -> Self {
        Self {
            active: None,
            sealed: VecDeque::new(),
            empty: Vec::new(),
            count: 0,
            count_max,
            least_empty: 0,
            buffer_bytes,
            next_seqno: next_seqno.0,
        }
    }

    /// Room for a record of `bytes` and the first of `seqno_count` seqnos, or `None` if the active buffer has
    /// too little room.
    #[inline]
    pub(crate) fn claim(&mut self, bytes: usize, seqno_count: u32) -> Option<(Claim, Seqno)> {
        let (buffer, _) = self.active.as_mut().filter(|(buffer, _)| buffer.free_bytes() >= bytes)?;
        debug_assert!(bytes >= RECORD_HEADER_BYTES && seqno_count > 0, "a record with at least one seqno");
        let first_seqno = Seqno(self.next_seqno);
        self.next_seqno += u64::from(seqno_count);
        Some((buffer.claim(bytes), first_seqno))
    }

    /// Seals the active buffer and takes an empty one with room for a record of `bytes`; `false` if there is
    /// none.
    pub(crate) fn turn(&mut self, bytes: usize) -> bool {
        self.seal();
        let empty = self.take_empty(bytes);
        self.active = empty.map(|buffer| (buffer.activate(), Seqno(self.next_seqno)));
        self.active.is_some()
    }

    /// Whether [`Tail::claim`] would find no room for `bytes`.
    pub(crate) fn is_full(&self, bytes: usize) -> bool {
        let has_room = self.active.as_ref().is_some_and(|(buffer, _)| buffer.free_bytes() >= bytes);
        !has_room && self.empty.is_empty() && self.count >= self.count_max
    }

    /// Seals the active buffer, if there is one with records.
    pub(crate) fn seal(&mut self) {
        if let Some((buffer, first_seqno)) = self.active.take() {
            let last_seqno = self.last_seqno();
            debug_assert!(last_seqno.0 + 1 >= first_seqno.0, "seqnos ascend within a buffer");
            debug_assert!(
                self.sealed.back().is_none_or(|before| before.last_seqno.0 + 1 == first_seqno.0),
                "each buffer goes on where the one before has ended"
            );
            self.sealed.push_back(SealedRecords { buffer: buffer.seal(), first_seqno, last_seqno });
        }
    }

    /// Takes the oldest sealed buffer. REQUIRES: the caller holds the segment writer, which keeps the order.
    pub(crate) fn pop_sealed(&mut self) -> Option<SealedRecords> {
        self.sealed.pop_front()
    }

    /// Number of buffers that wait to be written.
    pub(crate) fn sealed_count(&self) -> usize {
        self.sealed.len()
    }

    /// Takes back a buffer that was written.
    pub(crate) fn recycle(&mut self, buffer: EmptyBuffer) {
        if buffer.capacity() == self.buffer_bytes && self.count <= self.count_max {
            self.empty.push(buffer);
        } else {
            self.count -= 1;
        }
    }

    /// Changes how many buffers there may be, at least one.
    pub(crate) fn set_count_max(&mut self, count_max: usize) {
        self.count_max = count_max.max(1);
        while self.count > self.count_max && self.empty.pop().is_some() {
            self.count -= 1;
        }
    }

    /// Gives up buffers that were not needed since the last call, but for a few.
    pub(crate) fn trim(&mut self) {
        let spare = self.least_empty.min(self.count.saturating_sub(USUAL_BUFFERS)).min(self.empty.len());
        self.empty.truncate(self.empty.len() - spare);
        self.count -= spare;
        self.least_empty = self.empty.len();
    }

    /// Bytes of the buffers beyond those that are always there.
    pub(crate) fn extra_bytes(&self) -> usize {
        self.count.saturating_sub(USUAL_BUFFERS) * self.buffer_bytes
    }

    /// The last seqno that was assigned.
    pub(crate) fn last_seqno(&self) -> Seqno {
        Seqno(self.next_seqno - 1)
    }

    fn take_empty(&mut self, bytes: usize) -> Option<EmptyBuffer> {
        let reused = self.empty.pop();
        self.least_empty = self.least_empty.min(self.empty.len());
        if reused.is_none() {
            if self.count >= self.count_max {
                return None;
            }
            self.count += 1;
        }
        match reused {
            Some(buffer) if bytes <= self.buffer_bytes => Some(buffer),
            _ => Some(EmptyBuffer::new(bytes.max(self.buffer_bytes))),
        }
    }
}

#[cfg(test)]
mod tests;
