//! The log as the engine uses it: reserve, fill, sync, flush, release.
//!
//! Length: the calls of the engine, each of which takes the writer or the tail.
//!
//! Durability of a commit: once filled, it survives the end of the process, because the tail is kept in files
//! that are mapped shared. Without such files, it survives once it is written to a segment ([`Wal::keep`]).
//! Once synced, it survives a power loss.
//!
//! **Invariants**
//! - Buffers leave the tail and are written in order: both happen under the writer lock.
//! - `durable_seqno` only grows, and only after the sync that makes it true.
//! - Records are written after the data they refer to, and synced after it ([`DurabilityListener`]).
//! - Every failure that is not transient poisons the log. After a transient one nothing was written, the
//!   buffers stay where they are, and the next call retries. Meanwhile the log is *stalled*.
//! - Lock order: `writer`, then the locks of the segment store, of the listener or `tail`. `tail` is never
//!   held over I/O.

use std::{fmt, path::Path, time::Duration};

use crossbeam_utils::CachePadded;
use testudo_base::{
    Error, PAGE_BYTES, Result, Seqno,
    num::{u64_of, usize_of},
    planted,
    striped::StripedCount,
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};
use testudo_env::Env;

use crate::{
    WalOptions, WalStart,
    append::{
        buffer::ClaimSize, group_commit::GroupCommit, reservation::Reservation, tail::Tail,
        tail_files::TailFiles,
    },
    poison::Poison,
    recovery::evidence::DurabilityListener,
    segment::{
        store::{SegmentInfo, SegmentStore},
        wal_format::{MAX_PAYLOAD_BYTES, SEGMENT_HEADER_BYTES, record_bytes, record_salt},
        writer::{LogIdentity, SegmentWriter},
    },
    stall::{Stall, Waits},
};

/// How long a writer without a buffer sleeps before it checks again; it is woken when one becomes free.
const SPACE_RECHECK: Duration = Duration::from_millis(1);

/// Counts since the log was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalStats {
    /// Bytes handed to the device: records, padding, headers, zeros.
    pub bytes_written: u64,
    /// Of these, zeros written ahead of small synced commits.
    pub zero_bytes: u64,
    /// Commits reserved.
    pub commits: u64,
    /// Rounds of group commit.
    pub sync_rounds: u64,
    /// File syncs, including those of new segments.
    pub syncs: u64,
    /// Segments begun.
    pub segments_begun: u64,
    /// Microseconds for which commits waited because no buffer was empty.
    pub wait_micros: u64,
    /// Microseconds of the longest of these waits.
    pub longest_wait_micros: u64,
}

/// Rounds a requested segment size up to whole pages; the minimum is a header and one page.
fn whole_segment(bytes: u64) -> u64 {
    bytes.max(SEGMENT_HEADER_BYTES + PAGE_BYTES).next_multiple_of(PAGE_BYTES)
}

/// The write-ahead log of an open store.
pub struct Wal {
    salt: u64,
    tail: CachePadded<Mutex<Tail>>,
    /// Commits reserved.
    commits: StripedCount,
    tail_files: TailFiles,
    /// Last seqno reserved in a buffer that does not survive the process; 0 if there was none.
    unkept_seqno: AtomicU64,
    /// Everything up to this seqno is in segments.
    written_seqno: AtomicU64,
    /// Signaled, with `tail`, when a buffer was sealed.
    was_sealed: Condvar,
    /// Signaled, with `tail`, when a buffer became empty or the log failed.
    has_space: Condvar,
    writer: Mutex<SegmentWriter>,
    segments: Arc<SegmentStore>,
    group: GroupCommit,
    durable_seqno: AtomicU64,
    sync_rounds: AtomicU64,
    syncs: AtomicU64,
    /// Number of the first segment created by this opening.
    first_number: u64,
    /// Whether there is a segment to write to.
    has_begun: AtomicBool,
    poison: Poison,
    stall: Stall,
    waits: Waits,
    listener: Arc<dyn DurabilityListener>,
}

impl Wal {
    /// Creates a log that continues after the old segments. It creates its first segment when there is
    /// something to write ([`Wal::begin`]), or at once if no old segment has a header. Some segment must
    /// state how far the log has come. REQUIRES: the old segments are durable ([`crate::rewrite_unproven`],
    /// or the log was closed), because data that was read back may be in caches only.
    pub fn create(
        env: Arc<dyn Env>,
        dir: &Path,
        options: WalOptions,
        start: WalStart,
        listener: Arc<dyn DurabilityListener>,
    ) -> Result<Arc<Self>> {
        let is_in_order = start.next_seqno.0 >= 1 && start.next_seqno.0 <= start.recovered_seqno.0 + 1;
        if options.buffer_count == 0 || options.buffer_bytes == 0 || !is_in_order {
            return Err(Error::invalid("a log needs a buffer and a next seqno within 1..=recovered + 1"));
        }
        let identity = LogIdentity {
            store_id: options.store_id,
            listener: Arc::clone(&listener),
            incarnation: start.incarnation,
            recovered_seqno: start.recovered_seqno,
        };
        let segment_bytes = whole_segment(options.segment_bytes);
        let is_continued = start.old_segments.iter().any(|segment| segment.first_seqno.0 > 0);
        let tail_files = TailFiles::new(Arc::clone(&env), dir, options.store_id, start.incarnation);
        let waits = Waits::new(Arc::clone(&env));
        let segments = Arc::new(SegmentStore::new(env, dir, segment_bytes, start.old_segments));
        let next_seqno = start.next_seqno;
        let writer = SegmentWriter::new(Arc::clone(&segments), identity, start.segment_number, next_seqno);
        let buffer_bytes = options.buffer_bytes.next_multiple_of(usize_of(PAGE_BYTES));
        let wal = Arc::new(Self {
            salt: record_salt(options.store_id, start.incarnation),
            tail: CachePadded::new(Mutex::new(Tail::new(buffer_bytes, options.buffer_count, next_seqno))),
            commits: StripedCount::default(),
            tail_files,
            unkept_seqno: 0.into(),
            written_seqno: (next_seqno.0 - 1).into(),
            was_sealed: Condvar::new(),
            has_space: Condvar::new(),
            writer: Mutex::new(writer),
            segments,
            group: GroupCommit::default(),
            durable_seqno: AtomicU64::new(next_seqno.0 - 1),
            sync_rounds: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
            first_number: start.segment_number,
            has_begun: false.into(),
            poison: Poison::default(),
            stall: Stall::default(),
            waits,
            listener,
        });
        if !is_continued || planted!("segment-before-its-use") {
            wal.begin()?;
        }
        Ok(wal)
    }

    /// Creates the first segment unless there is one; its header is durable on return. Called before each
    /// commit: a failure, above all a full device, then costs nothing but that commit.
    #[inline]
    pub fn begin(&self) -> Result<()> {
        if self.has_begun.load(Ordering::Acquire) { Ok(()) } else { self.begin_first_segment() }
    }

    #[cold]
    fn begin_first_segment(&self) -> Result<()> {
        let mut writer = self.lock_writer()?;
        if !writer.has_begun() {
            self.listener.begin().map_err(|error| self.fail(error))?;
            // A new file for which there was no space has been removed, and nothing was lost with it.
            let begun = writer.begin();
            begun.map_err(|error| if error.is_shortage() { error } else { self.fail(error) })?;
        }
        self.has_begun.store(true, Ordering::Release);
        Ok(())
    }

    /// Assigns the next `seqno_count` seqnos (at least one) and space for a payload to one commit.
    ///
    /// May be called from any thread; the engine calls it under its commit lock. Takes well under a
    /// microsecond unless all buffers are full; then it waits until one is written, or writes it itself.
    /// A thread fills a reservation before it makes another one or syncs. REQUIRES: [`Wal::begin`] returned.
    pub fn reserve(&self, payload_bytes: usize, seqno_count: u32) -> Result<Reservation> {
        self.reserve_with_values(payload_bytes, seqno_count, 0)
    }

    /// Like [`Wal::reserve`], for a commit that refers to values in value logs. The log keeps the
    /// `value_bytes` set by [`Reservation::fill_values`] until the record is in a segment; the values are
    /// written before that ([`DurabilityListener::before_writing`]).
    pub fn reserve_with_values(
        &self,
        payload_bytes: usize,
        seqno_count: u32,
        value_bytes: usize,
    ) -> Result<Reservation> {
        debug_assert!(self.has_begun.load(Ordering::Acquire), "a log begins before its first commit");
        if u64_of(payload_bytes) > MAX_PAYLOAD_BYTES || seqno_count == 0 {
            return Err(Error::invalid("a commit has at least one operation and less than 4 GiB"));
        }
        let size = ClaimSize { record_bytes: usize_of(record_bytes(u64_of(payload_bytes))), value_bytes };
        loop {
            self.poison.check()?;
            let mut tail = self.tail.lock();
            if let Some((claim, stamp)) = tail.claim(size, payload_bytes, seqno_count) {
                let unkept = tail.unkept_seqno();
                if unkept != 0 {
                    self.unkept_seqno.store(unkept, Ordering::Release);
                }
                drop(tail);
                self.commits.add(1);
                return Ok(Reservation::new(claim, stamp, self.durable_seqno(), self.salt));
            }
            let has_room = tail.turn(size);
            if tail.sealed_count() > 0 {
                self.was_sealed.notify_all();
            }
            if has_room {
                continue;
            }
            drop(tail);
            if !self.add_buffer(size)? {
                self.waits.measure(|| self.wait_or_write())?;
            }
        }
    }

    /// Returns once a filled commit survives the end of the process: immediately if the tail of the log is
    /// kept in files, otherwise once it is written. REQUIRES: the caller holds no unfilled reservation.
    #[inline]
    pub fn keep(&self, seqno: Seqno) -> Result<()> {
        // A kept commit behind an unkept one counts only together with it.
        let unkept = self.unkept_seqno.load(Ordering::Acquire);
        if unkept == 0
            || unkept <= self.written_seqno.load(Ordering::Acquire)
            || planted!("unkept-acknowledged")
        {
            return Ok(());
        }
        match self.write_to(Seqno(unkept.min(seqno.0))) {
            // The device is full, or the system lacks a resource: the log recovers by itself afterwards.
            Err(error) if error.is_transient() => Ok(()),
            outcome => outcome,
        }
    }

    /// Writes everything up to `upto`. Concurrent callers write for each other.
    #[cold]
    fn write_to(&self, upto: Seqno) -> Result<()> {
        let mut writer = self.lock_writer()?;
        while self.written_seqno.load(Ordering::Acquire) < upto.0 {
            let count = self.seal_active().0;
            self.write_oldest(&mut writer, count)?;
        }
        Ok(())
    }

    /// Creates another buffer if the limit allows one and none is empty; returns whether it did.
    ///
    /// Errors: it cannot be created, and no other buffer can have room for `size`.
    fn add_buffer(&self, size: ClaimSize) -> Result<bool> {
        let Some(wanted) = self.tail.lock().begin_buffer() else { return Ok(false) };
        match self.tail_files.make(wanted.bytes, wanted.is_needed) {
            Ok(buffer) => self.tail.lock().add_begun(wanted, buffer),
            Err(error) => {
                let has_others = self.tail.lock().give_up_begun(wanted, size);
                return if has_others { Ok(false) } else { Err(error) };
            }
        }
        self.remove_given_up();
        self.has_space.notify_all();
        Ok(true)
    }

    fn remove_given_up(&self) {
        let given_up = self.tail.lock().take_given_up();
        given_up.iter().for_each(|buffer| self.tail_files.give_up(buffer));
    }

    /// Changes [`WalOptions::segment_bytes`]. Records beyond this size, or beyond the size with which the
    /// current segment began, go to the next segment.
    pub fn set_segment_bytes(&self, segment_bytes: u64) {
        self.segments.set_segment_bytes(whole_segment(segment_bytes));
    }

    /// Sets [`WalOptions::buffer_count`]. Buffers above [`crate::USUAL_BUFFERS`] exist only on a slow device.
    pub fn set_buffer_count(&self, count: usize) {
        self.tail.lock().set_count_max(count);
        self.remove_given_up();
    }

    /// Releases buffers that were not needed since the last call.
    pub fn trim_buffers(&self) {
        self.tail.lock().trim();
        self.remove_given_up();
    }

    /// Bytes of the buffers that [`Wal::trim_buffers`] could release.
    pub fn extra_buffer_bytes(&self) -> u64 {
        u64_of(self.tail.lock().extra_bytes())
    }

    /// Whether [`Wal::reserve`] would have to wait for a buffer.
    pub fn would_block(&self, payload_bytes: usize) -> bool {
        self.tail.lock().is_full(ClaimSize::of_record(usize_of(record_bytes(u64_of(payload_bytes)))))
    }

    /// Returns once [`Wal::reserve`] would not have to wait; the engine calls it before it takes its lock.
    pub fn wait_for_space(&self, payload_bytes: usize) -> Result<()> {
        while self.would_block(payload_bytes) {
            self.waits.measure(|| self.wait_or_write())?;
        }
        self.poison.check()
    }

    /// Returns once everything up to `upto` is durable. Many callers share one sync, which the first of them
    /// does on its own thread. REQUIRES: the caller holds no unfilled reservation; `upto` was assigned.
    pub fn sync_to(&self, upto: Seqno) -> Result<()> {
        let is_durable = || self.durable_seqno() >= upto;
        if is_durable() {
            return Ok(());
        }
        self.group.wait_or_lead(upto, is_durable, || self.poison.check(), || self.lead_round())
    }

    /// Makes everything durable that was reserved before the call.
    pub fn sync_all(&self) -> Result<()> {
        self.sync_to(self.last_reserved_seqno())
    }

    /// Writes the full buffers; the flushing thread calls it when [`Wal::wait_for_sealed`] returns true.
    pub fn write_sealed(&self) -> Result<()> {
        let mut writer = self.lock_writer()?;
        // No more than are sealed now: a round of syncing may be waiting for the writer.
        let count = self.tail.lock().sealed_count();
        self.write_oldest(&mut writer, count)?;
        MutexGuard::unlock_fair(writer);
        // Writers find the next buffer ready, or create it when they need it.
        let _ = self.add_buffer(ClaimSize::of_record(0));
        Ok(())
    }

    /// Creates the next segment ahead of its use if it will be needed soon: a new file is synced, which takes
    /// as long as the device is busy. The flushing side calls it periodically, on a different thread than the
    /// one that writes.
    pub fn prepare_segment(&self) -> Result<()> {
        let number = self.lock_writer()?.segment_to_prepare();
        // Failing to create a segment ahead is no failure of the log: it is retried when the segment is
        // needed.
        let _ = number.map(|number| self.segments.prepare(number));
        Ok(())
    }

    /// Writes everything that was reserved, including the partly filled buffer, so that it survives the end
    /// of the process; the flushing side calls it periodically. With nothing to write, it writes a marker
    /// with the durable seqno.
    pub fn write_all(&self) -> Result<()> {
        let mut writer = self.lock_writer()?;
        self.write_waiting(&mut writer)?;
        let count = self.seal_active().0;
        if count == 0 {
            let noted = writer.append_marker(self.durable_seqno());
            return noted.map_err(|error| self.fail(error));
        }
        self.write_oldest(&mut writer, count)?;
        MutexGuard::unlock_fair(writer);
        Ok(())
    }

    /// Records in the log that it builds on the newest manifest edit from here on, so that a later commit
    /// proves that edit. Written, not synced: it is as durable as the next commit.
    pub fn record_edit(&self) -> Result<()> {
        match self.begin() {
            // The header of the next segment will state it.
            Err(error) if error.is_transient() => return Ok(()),
            outcome => outcome?,
        }
        let mut writer = self.lock_writer()?;
        writer.append_edit_soon(self.durable_seqno()).map_err(|error| self.fail(error))
    }

    /// Fails if the log is stalled and still cannot be written; called before a commit that waits for a sync.
    #[inline]
    pub fn check_not_stalled(&self) -> Result<()> {
        if self.stall.is_on() { self.sync_all() } else { Ok(()) }
    }

    /// Waits until a full buffer is ready to be written, the log has failed, or `timeout` has passed; returns
    /// whether there is a full buffer.
    pub fn wait_for_sealed(&self, timeout: Duration) -> bool {
        let mut tail = self.tail.lock();
        let is_waiting = |tail: &mut Tail| tail.sealed_count() == 0 && self.poison.check().is_ok();
        self.was_sealed.wait_while_for(&mut tail, is_waiting, timeout);
        tail.sealed_count() > 0
    }

    /// The durable seqno: everything up to it survives a power loss.
    #[inline]
    pub fn durable_seqno(&self) -> Seqno {
        Seqno(self.durable_seqno.load(Ordering::Acquire))
    }

    /// The last seqno assigned.
    pub fn last_reserved_seqno(&self) -> Seqno {
        self.tail.lock().last_seqno()
    }

    /// Number of the oldest segment still needed when nothing up to `seqno` is; replay starts there
    /// afterwards. The store persists it **before** it releases segments.
    pub fn first_needed_segment(&self, seqno: Seqno) -> u64 {
        self.segments.first_needed(seqno)
    }

    /// Releases the segments before number `segment`, which the store has persisted: they are no longer
    /// listed. Segments that stopped being current since it was computed are released with the next one.
    pub fn release_before(&self, segment: u64) {
        self.segments.release_before(segment);
    }

    /// Removes the files of released segments; `false` if there are none. After an error some may remain.
    pub fn remove_released(&self) -> Result<bool> {
        self.segments.remove_released()
    }

    /// Bytes in segments that were not released.
    pub fn live_bytes(&self) -> u64 {
        self.segments.live_bytes()
    }

    /// The segments that were not released, without the current one if there is one: they receive no more
    /// writes.
    pub fn sealed_segments(&self) -> Vec<SegmentInfo> {
        let mut segments = self.segments();
        segments.pop_if(|newest| newest.number >= self.first_number);
        segments
    }

    /// The segments that were not released, oldest first; the last one is the current one once the log has
    /// begun.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        self.segments.segments()
    }

    /// Counts since the log was opened.
    pub fn stats(&self) -> WalStats {
        let counts = self.writer.lock().counts;
        let (wait_micros, longest_wait_micros) = self.waits.micros();
        WalStats {
            bytes_written: counts.bytes_written,
            zero_bytes: counts.zero_bytes,
            commits: self.commits.sum(),
            sync_rounds: self.sync_rounds.load(Ordering::Relaxed),
            syncs: self.syncs.load(Ordering::Relaxed) + counts.header_syncs,
            segments_begun: counts.segments_begun,
            wait_micros,
            longest_wait_micros,
        }
    }

    /// Makes everything durable, writes a marker that states it, and refuses every later call that writes.
    /// REQUIRES: no further reservations are made.
    pub fn close(&self) -> Result<()> {
        self.sync_all()?;
        let mut writer = self.lock_writer()?;
        let durable = self.durable_seqno();
        if writer.has_begun() {
            let noted = writer.append_marker(durable).and_then(|()| writer.append_edit(durable));
            noted.map_err(|error| self.fail(error))?;
            writer.give_back_space();
            // The prepared segment and an empty current one; they stay if they cannot be removed.
            let _ = self.segments.remove_unused();
        }
        self.poison.close();
        drop(writer);
        if !planted!("tail-kept-at-close") {
            self.tail_files.remove_all();
        }
        self.wake_all();
        Ok(())
    }

    fn lead_round(&self) -> Result<()> {
        let mut writer = self.lock_writer()?;
        self.write_waiting(&mut writer)?;
        let (count, covered) = self.seal_active();
        debug_assert!(covered >= self.durable_seqno(), "the durable seqno never decreases");
        let began = self.group.covers(covered).then(|| self.segments.monotonic());
        self.listener.before_syncing().map_err(|error| self.fail(error))?;
        self.write_oldest(&mut writer, count)?;
        let unsynced = writer.take_unsynced().map_err(|error| self.fail(error))?;
        let newest_segment = writer.newest_number();
        // The writer is free while the log is synced: full buffers can be written meanwhile.
        drop(writer);
        for segment in unsynced {
            let synced = segment.file.sync();
            if !planted!("sync-error-ignored") {
                synced.map_err(|error| self.fail(Error::io(segment.name.as_str(), error)))?;
            }
            self.syncs.fetch_add(1, Ordering::Relaxed);
        }
        let recorded = self.listener.record_durable(newest_segment, covered);
        recorded.map_err(|error| self.fail(error))?;
        self.durable_seqno.fetch_max(covered.0, Ordering::AcqRel);
        self.sync_rounds.fetch_add(1, Ordering::Relaxed);
        if let Some(began) = began {
            self.group.took(self.segments.monotonic().saturating_sub(began));
        }
        Ok(())
    }

    /// Writes the buffers left by a stall before the active buffer is sealed: otherwise each retry would seal
    /// another one.
    fn write_waiting(&self, writer: &mut SegmentWriter) -> Result<()> {
        if !self.stall.is_on() {
            return Ok(());
        }
        let count = self.tail.lock().sealed_count();
        self.write_oldest(writer, count)?;
        self.stall.end();
        Ok(())
    }

    /// Seals the active buffer; returns the number of sealed buffers and the last seqno in them.
    fn seal_active(&self) -> (usize, Seqno) {
        let mut tail = self.tail.lock();
        tail.seal();
        (tail.sealed_count(), tail.last_seqno())
    }

    /// Writes up to `count` sealed buffers, oldest first. REQUIRES: `count` buffers were sealed before.
    fn write_oldest(&self, writer: &mut SegmentWriter, count: usize) -> Result<()> {
        if count > 0 {
            self.listener.before_writing().map_err(|error| self.fail(error))?;
        }
        for _ in 0..count {
            let Some(mut records) = self.tail.lock().pop_sealed() else { break };
            let seqnos = (records.first_seqno, records.last_seqno);
            let written = writer.append(records.buffer.bytes(), seqnos, self.durable_seqno());
            if let Err(error) = written {
                if error.is_transient() && !planted!("stalled-records-dropped") {
                    self.tail.lock().push_back(records);
                }
                return Err(self.fail(error));
            }
            self.stall.note_progress();
            self.written_seqno.fetch_max(seqnos.1.0, Ordering::AcqRel);
            let buffer = records.buffer.recycle();
            self.tail.lock().recycle(buffer);
            self.has_space.notify_all();
        }
        self.remove_given_up();
        Ok(())
    }

    /// Writes the oldest full buffer, or waits for the thread that is writing; called when no buffer is
    /// empty.
    fn wait_or_write(&self) -> Result<()> {
        if let Some(mut writer) = self.writer.try_lock() {
            self.poison.check()?;
            let mut tail = self.tail.lock();
            if tail.sealed_count() == 0 {
                tail.seal();
            }
            drop(tail);
            return self.write_oldest(&mut writer, 1);
        }
        let (is_stalled, mut tail) = (self.stall.is_on(), self.tail.lock());
        let patience = if is_stalled { Stall::PATIENCE } else { SPACE_RECHECK };
        let is_vain =
            (is_stalled || tail.lacks_buffers()) && self.has_space.wait_for(&mut tail, patience).timed_out();
        drop(tail);
        self.poison.check()?;
        // That thread may hold the writer for nearly the whole stall.
        if is_vain && is_stalled { self.stall.refuse() } else { Ok(()) }
    }

    fn lock_writer(&self) -> Result<MutexGuard<'_, SegmentWriter>> {
        let writer = self.writer.lock();
        // Checked under the lock, so that a failure of the previous holder is seen.
        self.poison.check()?;
        Ok(writer)
    }

    /// Poisons the log, or stalls it if the error is transient.
    fn fail(&self, error: Error) -> Error {
        if error.is_transient() && !planted!("transient-error-poisons") {
            self.stall.begin(&error);
            return error;
        }
        let error = self.poison.set(error);
        self.wake_all();
        error
    }

    fn wake_all(&self) {
        drop(self.tail.lock());
        self.was_sealed.notify_all();
        self.has_space.notify_all();
    }
}

impl fmt::Debug for Wal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wal(durable {}, {} segments)", self.durable_seqno(), self.segments().len())
    }
}

#[cfg(test)]
mod tests;
