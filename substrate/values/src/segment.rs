//! A value segment: its run, and the dead values in it.
//!
//! **Invariants**
//! - The run holds every live value, and possibly dead ones: `dead_bytes` of `stored_bytes`.

use testudo_base::{
    Cursor, Entry, Error, ExtentSpan, Kind, MAX_VALUE_BYTES, PAGE_BYTES, Result, RunId, SegmentDrops,
    ValueReference, codec::Damage, num::usize_of, planted, sync::Arc,
};
use testudo_run::{
    Access, KnownKey, Lookup, ReadAhead, Run, RunCursor, RunOrigin, RunWriter, get_known_together,
};
use testudo_storage::{DATA_FILE, Neighbours};

use crate::DeadValues;

/// Bytes per read when a segment is rewritten.
const REWRITE_READ_BYTES: usize = 256 << 10;
/// Minimum average length of values that are read individually, to skip the dead values between them.
const LONG_VALUE_BYTES: u64 = 16 << 10;

/// Lifecycle of a segment's values, and the kind of their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentClass {
    /// Permanent values, keyed by the keys of their entries.
    Sorted,
    /// Values that return to their keys at the bottom of the tree.
    Transient,
    /// Permanent values written by commits in commit order, keyed by number.
    Logged,
    /// Values that return to their keys, written by commits, keyed by number.
    LoggedTransient,
}

impl SegmentClass {
    /// Whether its values are keyed by number.
    pub(crate) fn is_logged(self) -> bool {
        matches!(self, Self::Logged | Self::LoggedTransient)
    }
}

/// Key of a value that commits have written.
pub(crate) fn number_key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Whether an entry is a value keyed by its own number, as in segments that commits have written. A best
/// guess: the end of the value may be missing.
pub fn is_under_its_number(entry: &Entry<'_>) -> bool {
    let is_own = |number| entry.key == number_key(number);
    entry.kind == Kind::Referred
        && ValueReference::split(entry.value)
            .map_or(entry.key.len() == size_of::<u32>(), |(reference, _)| is_own(reference.number))
}

/// State of a value segment.
#[derive(Clone, Debug)]
pub struct Segment {
    pub(crate) id: RunId,
    pub(crate) class: SegmentClass,
    pub(crate) run: Arc<Run>,
    pub(crate) dead: DeadValues,
    pub(crate) stored_bytes: u64,
    pub(crate) dead_bytes: u64,
}

/// A segment rewritten without its dead values.
#[derive(Debug)]
pub struct Rewritten {
    /// Id of the segment.
    pub id: RunId,
    /// The run that was rewritten.
    pub source: RunId,
    /// The new run.
    pub run: Arc<Run>,
    stored_bytes: u64,
    /// Bytes of dead values that were dropped.
    left_out_bytes: u64,
}

impl Segment {
    /// Id of the segment, used in references.
    pub fn id(&self) -> RunId {
        self.id
    }

    /// Whether its values return to their keys at the bottom of the tree.
    pub fn is_transient(&self) -> bool {
        matches!(self.class, SegmentClass::Transient | SegmentClass::LoggedTransient)
    }

    /// Whether its values were written by commits, in commit order.
    pub fn is_logged(&self) -> bool {
        self.class.is_logged()
    }

    /// Key under which the value of `reference` is stored. `numbered` is a buffer for it.
    pub(crate) fn place_of<'k>(
        &self,
        key: &'k [u8],
        reference: &ValueReference,
        numbered: &'k mut [u8; 4],
    ) -> &'k [u8] {
        if !self.is_logged() {
            return key;
        }
        *numbered = number_key(reference.number);
        numbered
    }

    /// Returns the segment with all values dead; [`Segment::revive`] marks the live ones.
    pub fn with_all_dead(&self) -> Self {
        let dead = DeadValues::all_of(self.dead.count());
        Self { dead, dead_bytes: self.stored_bytes, ..self.clone() }
    }

    /// Marks the value of `reference` live.
    pub fn revive(&mut self, reference: &ValueReference) {
        debug_assert_eq!(reference.segment, self.id, "the reference must be to this segment");
        debug_assert!(self.dead.dead() <= self.dead.count(), "a value dies once");
        if self.dead.remove(reference.number) {
            debug_assert!(self.dead_bytes >= u64::from(reference.length), "its bytes were counted as dead");
            self.dead_bytes -= u64::from(reference.length);
        }
    }

    /// The run that holds its values.
    pub fn run(&self) -> &Arc<Run> {
        &self.run
    }

    /// Set of its dead values.
    pub fn dead(&self) -> &DeadValues {
        &self.dead
    }

    /// Bytes of the values in its run, including dead ones.
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    /// Bytes of dead values in its run.
    pub fn dead_bytes(&self) -> u64 {
        self.dead_bytes
    }

    /// Whether all of its values are dead.
    pub fn is_dead(&self) -> bool {
        self.dead.dead() == self.dead.count()
    }

    /// Spans of its pages.
    pub fn spans(&self) -> &[ExtentSpan] {
        &self.run.reference().spans
    }

    /// Marks the values dead whose references were dropped.
    ///
    /// Errors: `Corruption` if a value is not live, or its references do not match.
    pub(crate) fn bury(&mut self, drops: &SegmentDrops) -> Result<()> {
        let mut buried = 0;
        for number in drops.numbers() {
            buried += 1;
            if !self.dead.insert(number) {
                return Err(self.damaged("an entry refers to a value that is dead or does not exist"));
            }
        }
        if drops.values() != buried {
            return Err(self.damaged("several entries refer to the same value"));
        }
        let bytes =
            u64::try_from(drops.bytes()).ok().filter(|bytes| self.dead_bytes + bytes <= self.stored_bytes);
        let Some(bytes) = bytes else {
            return Err(self.damaged("entries refer to longer values than the segment has"));
        };
        self.dead_bytes += if planted!("dead-bytes-twice") { 2 * bytes } else { bytes };
        Ok(())
    }

    /// Returns the value of `key` to which `reference` refers, and how many other records of its page were
    /// requested; `None` if a page is not cached and was recorded as missing.
    ///
    /// Errors: `Corruption` if the value is missing.
    pub(crate) fn read(
        &self,
        key: &[u8],
        reference: &ValueReference,
        access: Access<'_>,
    ) -> Result<Option<(Vec<u8>, Neighbours)>> {
        let mut numbered = [0; 4];
        match self.run.get_known(self.place_of(key, reference, &mut numbered), access)? {
            Lookup::Waiting => Ok(None),
            found => {
                let neighbours = match found {
                    Lookup::Found(.., neighbours) => neighbours,
                    _ => Neighbours::default(),
                };
                Ok(Some((self.value_found(found, reference)?, neighbours)))
            }
        }
    }

    /// Extracts the value of `reference` from the result of its run's lookup.
    pub(crate) fn value_found(&self, found: Lookup, reference: &ValueReference) -> Result<Vec<u8>> {
        let Lookup::Found(kind, mut bytes, _) = found else {
            return Err(self.damaged("a referenced value is missing"));
        };
        let value_bytes = self.referred(kind, &bytes, reference)?.len();
        bytes.drain(..bytes.len() - value_bytes);
        Ok(bytes)
    }

    /// Returns the value that an entry of the segment holds for `reference`.
    pub(crate) fn referred<'b>(
        &self,
        kind: Kind,
        bytes: &'b [u8],
        reference: &ValueReference,
    ) -> Result<&'b [u8]> {
        if kind != Kind::Referred {
            return Err(self.damaged("a value segment has an entry that is not a value"));
        }
        let (stated, value) =
            ValueReference::split_referred(bytes).map_err(|Damage(why)| self.damaged(why))?;
        if stated != *reference {
            return Err(self.damaged("a value does not match its reference"));
        }
        Ok(value)
    }

    /// Creates a `Corruption` error of this segment.
    pub(crate) fn damaged(&self, why: &str) -> Error {
        let offset = self.spans().first().map_or(0, |span| span.first_page * PAGE_BYTES);
        Error::corruption(DATA_FILE, offset, format!("value segment {}: {why}", self.id))
    }

    /// Approximate bytes of pages of the rewritten segment.
    pub fn rewritten_bytes(&self) -> u64 {
        let live = self.stored_bytes.saturating_sub(self.dead_bytes);
        let stored = u128::from(self.run.reference().stored_bytes());
        let share = stored * u128::from(live) / u128::from(self.stored_bytes.max(1));
        testudo_base::num::low64(share) + 2 * PAGE_BYTES
    }

    /// Copies its live values into a run of `origin`. REQUIRES: some value is live.
    pub fn rewrite(&self, origin: RunOrigin) -> Result<Rewritten> {
        debug_assert!(!self.is_dead(), "a segment without live values is removed, not rewritten");
        let mut writer = RunWriter::new(Arc::clone(self.run.data()), origin, self.rewritten_bytes())?;
        let are_long = self.stored_bytes >= self.run.reference().entries * LONG_VALUE_BYTES;
        let stored_bytes = if self.is_logged() && are_long {
            self.copy_living(&mut writer)?
        } else {
            self.copy_passing_dead(&mut writer)?
        };
        if stored_bytes + self.dead_bytes != self.stored_bytes || writer.entries() == 0 {
            return Err(self.damaged("its values do not match the tree's references"));
        }
        let run = writer.finish_value_segment()?;
        let source = self.run.reference().id;
        Ok(Rewritten { id: self.id, source, run, stored_bytes, left_out_bytes: self.dead_bytes })
    }

    /// Reads all values and copies the live ones; returns their bytes.
    fn copy_passing_dead(&self, writer: &mut RunWriter) -> Result<u64> {
        let mut cursor = RunCursor::new(Arc::clone(&self.run), ReadAhead::bytes(REWRITE_READ_BYTES));
        let mut stored_bytes = 0;
        cursor.seek_first()?;
        while let Some(entry) = cursor.entry() {
            stored_bytes += self.copy_if_living(writer, &entry)?;
            cursor.next()?;
        }
        Ok(stored_bytes)
    }

    /// Like [`Segment::copy_passing_dead`] for values keyed by number: dead values are not read.
    fn copy_living(&self, writer: &mut RunWriter) -> Result<u64> {
        let mut stored_bytes = 0;
        let (mut keys, mut bytes) = (Vec::new(), 0);
        for number in 0..self.dead.count() {
            if self.dead.contains(number) {
                continue;
            }
            let key = number_key(number);
            bytes += self.run.block_bytes_for(&key)?;
            keys.push(key);
            if bytes >= REWRITE_READ_BYTES {
                stored_bytes += self.copy_of_keys(writer, &keys)?;
                keys.clear();
                bytes = 0;
            }
        }
        Ok(stored_bytes + self.copy_of_keys(writer, &keys)?)
    }

    /// Copies the values of these keys, which are read in one batch.
    fn copy_of_keys(&self, writer: &mut RunWriter, keys: &[[u8; 4]]) -> Result<u64> {
        let known: Vec<KnownKey<'_>> = keys.iter().map(|key| KnownKey { run: &self.run, key }).collect();
        let mut stored_bytes = 0;
        for (key, found) in keys.iter().zip(get_known_together(self.run.data(), &known)?.found) {
            let Lookup::Found(kind, value, _) = found else {
                return Err(self.damaged("a referenced value is missing"));
            };
            stored_bytes += self.copy_if_living(writer, &Entry { key, kind, value: &value })?;
        }
        Ok(stored_bytes)
    }

    /// Copies a value unless it is dead; returns its length, or 0.
    fn copy_if_living(&self, writer: &mut RunWriter, entry: &Entry<'_>) -> Result<u64> {
        let reference = ValueReference::split(entry.value).map_err(|Damage(why)| self.damaged(why))?.0;
        self.referred(entry.kind, entry.value, &reference)?;
        if self.dead.contains(reference.number) && !planted!("dead-value-kept") {
            return Ok(0);
        }
        writer.push(entry)?;
        Ok(reference.length.into())
    }

    /// Returns the segment in its new run. Values may have become dead since the rewrite.
    pub(crate) fn moved(&self, rewritten: &Rewritten) -> Self {
        debug_assert_eq!(self.id, rewritten.id, "the segment that was rewritten");
        debug_assert!(
            self.dead_bytes >= rewritten.left_out_bytes || planted!("stale-rewriting-installed"),
            "values stay dead"
        );
        Self {
            id: self.id,
            class: self.class,
            run: Arc::clone(&rewritten.run),
            dead: self.dead.clone(),
            stored_bytes: rewritten.stored_bytes,
            dead_bytes: self.dead_bytes - rewritten.left_out_bytes,
        }
    }

    /// Checks that its counters are consistent.
    pub(crate) fn check(&self) -> std::result::Result<(), Damage> {
        let entries = self.run.reference().entries;
        let live = u64::from(self.dead.count() - self.dead.dead());
        let fits = (live..=u64::from(self.dead.count())).contains(&entries)
            && live > 0
            && self.dead_bytes <= self.stored_bytes
            && self.stored_bytes <= entries.saturating_mul(MAX_VALUE_BYTES)
            && usize_of(self.stored_bytes) <= usize_of(self.run.reference().user_bytes);
        fits.then_some(()).ok_or(Damage("a value segment is inconsistent"))
    }
}
