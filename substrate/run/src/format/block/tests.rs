use testudo_base::{Entry, OwnedEntry};

use super::*;
use crate::format::builder::{BlockBuilder, PAGE_PAYLOAD_BYTES};

const VALUE: Entry<'_> = Entry { key: b"ka", kind: Kind::Value, value: b"v" };
const TOMBSTONE: Entry<'_> = Entry { key: b"kb", kind: Kind::Tombstone, value: b"" };
const OPERANDS: Entry<'_> = Entry { key: b"kc", kind: Kind::Operands, value: b"\x01o" };
const UNMERGED: Entry<'_> = Entry { key: b"kd", kind: Kind::Unmerged, value: b"\x00\x01o" };

/// Entries of the first three kinds, in the encoding of all builds.
const COMMON: &[u8] = b"\x03\x00\x01\x00k\
    \x00\x00\x00a\x00\x00\x00\x00\x00b\x04\x00\x00\x00\x00c\x07\x00\
    \x04\x01av\x05\x00b\x06\x02c\x01o";
/// With one entry of kind 3, in the encoding of this build.
const WITH_KIND_BYTE: &[u8] = b"\x04\x80\x01\x00k\
    \x00\x00\x00a\x00\x00\x00\x00\x00b\x04\x00\x00\x00\x00c\x07\x00\x00\x00\x00d\x0c\x00\
    \x04\x01av\x05\x00b\x06\x02c\x01o\x07\x03\x03d\x00\x01o";
/// The same entries, in the encoding of earlier builds.
const WITHOUT_KIND_BYTE: &[u8] = b"\x04\x00\x01\x00k\
    \x00\x00\x00a\x00\x00\x00\x00\x00b\x04\x00\x00\x00\x00c\x07\x00\x00\x00\x00d\x0c\x00\
    \x04\x01av\x05\x00b\x06\x02c\x01o\x07\x03d\x00\x01o";
/// Offset of the kind byte in [`WITH_KIND_BYTE`].
const KIND_BYTE_AT: usize = WITH_KIND_BYTE.len() - 5;

fn encoded(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut builder = BlockBuilder::default();
    assert!(entries.iter().all(|entry| builder.push(entry)));
    let mut out = vec![0; builder.payload_bytes()];
    let length = builder.encode_into(&mut out);
    out.truncate(length);
    out
}

/// Decodes the entries, with a parsed block and with a kept layout.
fn decoded(payload: &[u8]) -> Result<Vec<OwnedEntry>, Damage> {
    let entries = |block: Block<'_>| {
        let entry = |cell: Cell<'_>| OwnedEntry {
            key: [block.prefix(), cell.suffix].concat(),
            kind: cell.kind,
            value: cell.value.to_vec(),
        };
        (0..block.count()).map(|slot| block.cell(slot).map(entry)).collect::<Result<Vec<_>, _>>()
    };
    let parsed = entries(Block::parse(payload)?);
    assert_eq!(entries(Layout::of(payload)?.view(payload)).ok(), parsed.as_ref().ok().cloned());
    parsed
}

fn owned(entries: &[Entry<'_>]) -> Vec<OwnedEntry> {
    entries.iter().map(Entry::to_owned).collect()
}

#[test]
fn the_encoding_of_common_kinds_is_unchanged() {
    let entries = [VALUE, TOMBSTONE, OPERANDS];
    assert_eq!(encoded(&entries), COMMON);
    assert_eq!(decoded(COMMON).unwrap(), owned(&entries));
}

#[test]
fn other_kinds_have_a_kind_byte_and_set_the_flag() {
    let entries = [VALUE, TOMBSTONE, OPERANDS, UNMERGED];
    assert_eq!(encoded(&entries), WITH_KIND_BYTE);
    assert_eq!(decoded(WITH_KIND_BYTE).unwrap(), owned(&entries));
    // The next block of a builder does not depend on the previous one.
    let mut builder = BlockBuilder::default();
    let mut out = vec![0; PAGE_PAYLOAD_BYTES];
    for (entry, flag) in [(UNMERGED, 0x80), (VALUE, 0)] {
        assert!(builder.push(&entry));
        builder.encode_into(&mut out);
        assert_eq!(out[1], flag);
    }
}

#[test]
fn blocks_without_kind_bytes_are_still_read() {
    assert_eq!(decoded(WITHOUT_KIND_BYTE).unwrap(), owned(&[VALUE, TOMBSTONE, OPERANDS, UNMERGED]));
}

#[test]
fn an_unknown_kind_byte_is_damage() {
    assert_eq!(WITH_KIND_BYTE[KIND_BYTE_AT], Kind::Unmerged as u8);
    for byte in [0, 1, 2, 7, 0x83, 0xff] {
        let mut payload = WITH_KIND_BYTE.to_vec();
        payload[KIND_BYTE_AT] = byte;
        assert_eq!(decoded(&payload), Err(Damage("unknown kind of an entry")), "{byte}");
    }
}

#[test]
fn full_blocks_of_all_kinds_fit_their_page() {
    for unmerged_of_ten in [0, 1, 5, 10] {
        for value_bytes in [0, 1, 7, 60, 130, 700] {
            let mut builder = BlockBuilder::default();
            let mut pushed = Vec::new();
            for number in 0..2_000_u32 {
                let kind = if number % 10 < unmerged_of_ten { Kind::Unmerged } else { Kind::Value };
                let key = format!("key{number:05}").into_bytes();
                let entry = OwnedEntry { key, kind, value: vec![7; value_bytes] };
                if !builder.push(&entry.as_entry()) {
                    break;
                }
                pushed.push(entry);
            }
            assert!(builder.payload_bytes() <= PAGE_PAYLOAD_BYTES);
            let mut out = vec![0; builder.payload_bytes()];
            let length = builder.encode_into(&mut out);
            assert!(length <= out.len() && length + 30 + value_bytes > PAGE_PAYLOAD_BYTES);
            assert_eq!(decoded(&out[..length]).unwrap(), pushed);
        }
    }
    let long = Entry { value: &[7; 9_000], ..UNMERGED };
    let mut builder = BlockBuilder::default();
    assert!(!builder.push(&long), "it must be alone");
    builder.push_long(&long);
    let mut out = vec![0; builder.payload_bytes()];
    assert_eq!(builder.encode_into(&mut out), out.len(), "the size of a long block is exact");
    assert_eq!(decoded(&out).unwrap(), owned(&[long]));
}
