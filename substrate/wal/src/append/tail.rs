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
    append::buffer::{ActiveBuffer, Claim, ClaimSize, EmptyBuffer, SealedBuffer, Stamp},
    segment::wal_format::RECORD_HEADER_BYTES,
};

/// A buffer on its way to the file.
pub(crate) struct SealedRecords {
    pub(crate) buffer: SealedBuffer,
    pub(crate) first_seqno: Seqno,
    pub(crate) last_seqno: Seqno,
}

/// A buffer that is to be made.
pub(crate) struct Wanted {
    pub(crate) bytes: usize,
    /// There is no other.
    pub(crate) is_needed: bool,
    /// Goes once it is made.
    replaced: Option<EmptyBuffer>,
}

/// The fields that every commit touches stand first, in one cache line together with the lock around it.
#[repr(C)]
pub(crate) struct Tail {
    active: Option<(ActiveBuffer, Seqno)>,
    next_seqno: u64,
    /// The last seqno in a buffer that does not survive the process.
    unkept_seqno: u64,
    turns: u64,
    sealed: VecDeque<SealedRecords>,
    empty: Vec<EmptyBuffer>,
    /// Buffers that there are, and that there may be.
    count: usize,
    count_max: usize,
    /// Empty buffers that are to be given up.
    given_up: Vec<EmptyBuffer>,
    /// The fewest that were empty since the last [`Tail::trim`].
    least_empty: usize,
    /// How long buffers are by now, and may become.
    current_bytes: usize,
    buffer_bytes: usize,
    /// The length of the last one that was made.
    made_bytes: usize,
}

/// How long buffers are at first: a store that is written little has a short file.
const FIRST_BYTES: usize = 64 << 10;
/// How long they may become at least where they keep values for value logs. Each full one ends a page of the
/// value logs and of the log.
const VALUE_BUFFER_BYTES: usize = 128 << 10;
/// Buffers that are kept when they are not needed: writers fill one while others are written.
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

    /// Room for a record of `payload_bytes` and the first of `seqno_count` seqnos, or `None` if the active
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
        if buffer.must_write() {
            self.unkept_seqno = self.next_seqno - 1;
        }
        Some((buffer.claim(size, stamp), stamp))
    }

    /// Seals the active buffer and takes an empty one with room for `size`; `false` if there is none.
    pub(crate) fn turn(&mut self, size: ClaimSize) -> bool {
        self.grow(size);
        self.seal();
        self.turns += 1;
        let empty = self.take_empty(size);
        self.active =
            empty.map(|buffer| (buffer.activate(self.turns, Seqno(self.next_seqno)), Seqno(self.next_seqno)));
        self.active.is_some()
    }

    /// Buffers are twice as long from now on if one is full, and as long as `size` needs, up to their bound.
    fn grow(&mut self, size: ClaimSize) {
        let has_values = size.value_bytes > 0;
        let bytes_max = self.buffer_bytes.max(if has_values { VALUE_BUFFER_BYTES } else { 0 });
        let mut bytes = self.current_bytes << u32::from(self.active.is_some());
        while bytes < size.kept_bytes() && bytes < bytes_max {
            bytes *= 2;
        }
        self.current_bytes = bytes.min(bytes_max).max(self.current_bytes);
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

    /// The last seqno in a buffer that does not survive the process, 0 if there was none.
    pub(crate) fn unkept_seqno(&self) -> u64 {
        self.unkept_seqno
    }

    /// The buffer that is to be made, if there is none of the present length that is empty, and one may be
    /// added or a shorter one replaced. It ends with [`Tail::add_begun`] or [`Tail::give_up_begun`].
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

    /// It was made.
    pub(crate) fn add_begun(&mut self, wanted: Wanted, buffer: EmptyBuffer) {
        self.made_bytes = buffer.capacity();
        self.given_up.extend(wanted.replaced);
        self.recycle(buffer);
    }

    /// It could not be made: buffers stay as long as those that there are. Whether one of these can have
    /// room for `size`.
    pub(crate) fn give_up_begun(&mut self, wanted: Wanted, size: ClaimSize) -> bool {
        match wanted.replaced {
            Some(short) => self.empty.push(short),
            None => self.count -= 1,
        }
        self.current_bytes = self.made_bytes.clamp(FIRST_BYTES.min(self.buffer_bytes), self.current_bytes);
        self.count > 0 && size.kept_bytes() <= self.current_bytes
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

    /// Puts back what [`Tail::pop_sealed`] took and nobody could write. REQUIRES: as there.
    pub(crate) fn push_back(&mut self, records: SealedRecords) {
        debug_assert!(
            self.sealed.front().is_none_or(|next| records.last_seqno.0 + 1 == next.first_seqno.0),
            "each buffer goes on where the one before has ended"
        );
        self.sealed.push_front(records);
    }

    /// Number of buffers that wait to be written.
    pub(crate) fn sealed_count(&self) -> usize {
        self.sealed.len()
    }

    /// Takes back a buffer that was written. A shorter one stays until another has taken its place.
    pub(crate) fn recycle(&mut self, buffer: EmptyBuffer) {
        let is_ordinary = !buffer.is_for_one() && buffer.capacity() <= self.current_bytes;
        if is_ordinary && self.count <= self.count_max {
            self.empty.push(buffer);
        } else {
            self.given_up.push(buffer);
            self.count -= 1;
        }
    }

    /// The buffers that were given up since the last call.
    pub(crate) fn take_given_up(&mut self) -> Vec<EmptyBuffer> {
        std::mem::take(&mut self.given_up)
    }

    /// Changes how many buffers there may be, at least one.
    pub(crate) fn set_count_max(&mut self, count_max: usize) {
        self.count_max = count_max.max(1);
        while self.count > self.count_max
            && let Some(buffer) = self.empty.pop()
        {
            self.given_up.push(buffer);
            self.count -= 1;
        }
    }

    /// Gives up buffers that were not needed since the last call, but for a few.
    pub(crate) fn trim(&mut self) {
        let spare = self.least_empty.min(self.count.saturating_sub(USUAL_BUFFERS)).min(self.empty.len());
        self.given_up.extend(self.empty.drain(self.empty.len() - spare..));
        self.count -= spare;
        self.least_empty = self.empty.len();
    }

    /// Bytes of the buffers beyond those that are always there.
    pub(crate) fn extra_bytes(&self) -> usize {
        self.count.saturating_sub(USUAL_BUFFERS) * self.current_bytes
    }

    /// The last seqno that was assigned.
    pub(crate) fn last_seqno(&self) -> Seqno {
        Seqno(self.next_seqno - 1)
    }

    /// An empty buffer. A commit that none has room for gets one in memory, in the place of another.
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
