//! Handling of a key's versions when another one arrives.
//!
//! A new version replaces the newest one, in the same memory if it fits; if a snapshot needs the newest one,
//! the new version is linked on top of it. Operands are stacked on the value they change, so that a version
//! with operands contains those of all older ones.
//!
//! **Invariants**
//! - Versions of a key with operands arrive in seqno order; others may arrive late.
//! - The versions of an entry are in strict order, newest first.

use testudo_base::{
    DropSink, Entry, Kind, Seqno, merge_operator::FullMerge, num::usize_of, operands_format::begin_stack,
};

use super::{InsertOutcome, Leaf, Slot, VersionSink, signed};
use crate::arena::{Arena, Record, Version, View};

/// A value up to this size is merged with every arriving operand; a longer one only after about as many bytes
/// of operands.
const MERGED_BYTES: usize = 1 << 10;
/// Minimum room left for further operands where they did not fit.
const OPERANDS_ROOM: usize = 64;

impl<'id> Leaf<'id> {
    /// Adds a version to an existing key. Either the previous newest version is dropped, or the late one.
    #[inline]
    pub(super) fn update(
        &mut self,
        arena: &Arena<'id>,
        slot: Slot,
        version: &Version<'_>,
        keep_from: Option<Seqno>,
    ) -> InsertOutcome {
        let content = self.groups[slot.group].as_mut().expect("the group was found");
        let entry = content.record_mut(slot.at);
        let newest = arena.view(entry);
        let (newest_seqno, footprint) = (newest.seqno(), newest.footprint_bytes());
        let mut sink = VersionSink { drops: &mut self.drops, rarer: &mut self.rarer_drops };
        if version.seqno < newest_seqno {
            assert!(!is_stack(newest), "versions of a key with operands arrive in seqno order");
            sink.dropped(&version.entry());
            return add_late(arena, entry, version, is_needed(version.seqno, keep_from));
        }
        sink.dropped(&newest.entry());
        let growth = signed(version.value.len()) - signed(newest.value().len());
        let mut outcome = InsertOutcome::default();
        let mut grown = 0;
        if version.seqno > newest_seqno && is_needed(newest_seqno, keep_from) {
            grown = put_on_top(arena, entry, version, 0);
        } else {
            outcome.replaced_in_place = arena.overwrite(entry, version);
            if !outcome.replaced_in_place {
                grown = take_place(arena, entry, version, 0);
                self.garbage_bytes += footprint;
            }
        }
        self.user_bytes += growth;
        outcome.memory_bytes_added = usize_of(grown);
        outcome
    }

    /// Adds a version with operands on top of the key's newest version. REQUIRES: that version is older.
    #[cold]
    pub(super) fn add_operands(
        &mut self,
        arena: &Arena<'id>,
        slot: Slot,
        version: &Version<'_>,
        keep_from: Option<Seqno>,
        full_merge: &FullMerge,
    ) -> InsertOutcome {
        let content = self.groups[slot.group].as_mut().expect("the group was found");
        let entry = content.record_mut(slot.at);
        let newest = arena.view(entry);
        assert!(version.seqno > newest.seqno(), "operands of a key arrive in seqno order");
        let is_needed = is_needed(newest.seqno(), keep_from);
        let (bytes_before, footprint) = (newest.value().len(), newest.footprint_bytes());
        let mut sink = VersionSink { drops: &mut self.drops, rarer: &mut self.rarer_drops };
        sink.dropped(&newest.entry());
        sink.dropped(&version.entry());
        if is_stack(newest) && !is_needed && arena.extend(entry, version.seqno, version.value) {
            self.user_bytes += signed(version.value.len());
            let stacked_bytes = bytes_before + version.value.len();
            sink.made(&arena.view(entry).entry());
            return InsertOutcome { replaced_in_place: true, stacked_bytes, ..InsertOutcome::default() };
        }
        let (kind, value) = stacked_upon(arena.view(entry), version, full_merge);
        let whole = Version { kind, value: &value, ..*version };
        sink.made(&whole.entry());
        let replaced_in_place = !is_needed && arena.overwrite(entry, &whole);
        let grown = if replaced_in_place {
            0
        } else if is_needed {
            put_on_top(arena, entry, &whole, room_for_more(&whole, bytes_before))
        } else {
            self.garbage_bytes += footprint;
            take_place(arena, entry, &whole, room_for_more(&whole, bytes_before))
        };
        self.user_bytes += signed(value.len()) - signed(bytes_before);
        InsertOutcome {
            memory_bytes_added: usize_of(grown),
            replaced_in_place,
            stacked_bytes: value.len(),
            ..InsertOutcome::default()
        }
    }
}

fn is_stack(version: View<'_>) -> bool {
    matches!(version.kind(), Kind::Operands | Kind::Unmerged)
}

/// Whether the newest snapshot, or an older one, may read a version that has been superseded.
#[inline]
fn is_needed(seqno: Seqno, keep_from: Option<Seqno>) -> bool {
    keep_from.is_some_and(|newest_snapshot| seqno <= newest_snapshot)
}

/// Adds a version that is older than the newest one.
fn add_late<'id>(
    arena: &Arena<'id>,
    entry: &mut Record<'id>,
    version: &Version<'_>,
    is_needed: bool,
) -> InsertOutcome {
    if !is_needed {
        return InsertOutcome { obsolete: true, ..InsertOutcome::default() };
    }
    let (older, grown) = arena.write(version, None);
    arena.link_older(entry, older);
    InsertOutcome { memory_bytes_added: usize_of(grown), ..InsertOutcome::default() }
}

/// Links a version on top of those of an entry; returns the bytes by which memory grew. `room` is the reserve
/// for more bytes of its value.
#[inline]
fn put_on_top<'id>(arena: &Arena<'id>, entry: &mut Record<'id>, version: &Version<'_>, room: usize) -> u64 {
    let (newer, grown) = arena.write_with_room(version, None, room);
    debug_assert_eq!(arena.view(entry).key(), version.key, "versions of one key");
    let older = std::mem::replace(entry, newer);
    arena.set_prev(entry, Some(older));
    grown
}

/// Like [`put_on_top`], but replaces the newest version.
#[inline]
fn take_place<'id>(arena: &Arena<'id>, entry: &mut Record<'id>, version: &Version<'_>, room: usize) -> u64 {
    let older = arena.set_prev(entry, None);
    let (newer, grown) = arena.write_with_room(version, older, room);
    *entry = newer;
    grown
}

/// Stacks operands on the newest version, merging them if that is cheap.
fn stacked_upon(newest: View<'_>, version: &Version<'_>, full_merge: &FullMerge) -> (Kind, Vec<u8>) {
    let bytes_before = newest.value().len();
    let mut value = Vec::with_capacity(bytes_before + version.value.len() + 8);
    let kind = begin_stack(newest.kind(), newest.value(), &mut value);
    value.extend_from_slice(version.value);
    let is_worth_merging = is_stack(newest) || bytes_before <= MERGED_BYTES;
    let stacked = Entry { key: version.key, kind, value: &value };
    is_worth_merging.then(|| full_merge.try_full_merge(&stacked, false)).flatten().unwrap_or((kind, value))
}

/// A value that grew will grow again, merged or not. As much room as the value's size limits the total cost
/// of copies to about its bytes.
fn room_for_more(version: &Version<'_>, bytes_before: usize) -> usize {
    let bytes = version.value.len();
    let is_open = matches!(version.kind, Kind::Operands | Kind::Unmerged);
    if is_open || bytes > bytes_before { bytes.max(OPERANDS_ROOM) } else { 0 }
}
