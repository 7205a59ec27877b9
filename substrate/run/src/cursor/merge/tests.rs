use std::collections::BTreeMap;

use testudo_base::{OwnedEntry, operands_format::encode_operand};
use testudo_env::SplitMix;

use super::*;

/// A cursor over sorted entries.
struct Entries {
    entries: Vec<OwnedEntry>,
    at: usize,
}

impl Cursor for Entries {
    fn seek_first(&mut self) -> Result<()> {
        self.at = 0;
        Ok(())
    }

    fn seek_last(&mut self) -> Result<()> {
        self.at = self.entries.len().wrapping_sub(1);
        Ok(())
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.at = self.entries.partition_point(|entry| entry.key.as_slice() < key);
        Ok(())
    }

    fn seek_before(&mut self, key: &[u8]) -> Result<()> {
        self.seek(key)?;
        self.at = self.at.wrapping_sub(1);
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.at += 1;
        Ok(())
    }

    fn prev(&mut self) -> Result<()> {
        self.at = self.at.wrapping_sub(1);
        Ok(())
    }

    fn entry(&self) -> Option<Entry<'_>> {
        self.entries.get(self.at).map(OwnedEntry::as_entry)
    }
}

/// A sink that records all calls.
#[derive(Default)]
struct Told {
    dropped: Vec<OwnedEntry>,
    made: Vec<OwnedEntry>,
}

impl DropSink for Told {
    fn dropped(&mut self, entry: &Entry<'_>) {
        self.dropped.push(entry.to_owned());
    }

    fn made(&mut self, entry: &Entry<'_>) {
        self.made.push(entry.to_owned());
    }
}

fn entry(key: &str, kind: Kind, value: &[u8]) -> OwnedEntry {
    OwnedEntry { key: key.as_bytes().to_vec(), kind, value: value.to_vec() }
}

/// Walks from end to end; returns the entries returned, and the calls to the sink.
fn walk(sources: &[Vec<OwnedEntry>], direction: Direction) -> (Vec<OwnedEntry>, Told) {
    let cursors = sources.iter().map(|entries| Entries { entries: entries.clone(), at: 0 }).collect();
    let mut merge = MergeCursor::with_sink(cursors, 0, Told::default());
    let mut returned = Vec::new();
    match direction {
        Direction::Forward => merge.seek_first().unwrap(),
        Direction::Backward => merge.seek_last().unwrap(),
    }
    while let Some(entry) = merge.entry() {
        returned.push(entry.to_owned());
        match direction {
            Direction::Forward => merge.next().unwrap(),
            Direction::Backward => merge.prev().unwrap(),
        }
    }
    (returned, merge.into_sink())
}

#[test]
fn the_sink_gets_hidden_entries_and_the_bases_of_operands() {
    let operand = |text: &[u8]| encode_operand(text);
    let sources = [
        vec![entry("a", Kind::Value, b"new"), entry("c", Kind::Operands, &operand(b"3"))],
        vec![
            entry("a", Kind::Tombstone, b""),
            entry("b", Kind::Tombstone, b""),
            entry("c", Kind::Value, b"2"),
        ],
        vec![entry("a", Kind::Value, b"old"), entry("b", Kind::Value, b"b"), entry("c", Kind::Value, b"1")],
        vec![entry("d", Kind::Operands, &operand(b"alone"))],
    ];
    let (returned, told) = walk(&sources, Direction::Forward);
    let mut stack = Vec::new();
    let kind = begin_stack(Kind::Value, b"2", &mut stack);
    stack.extend(operand(b"3"));
    let stacked = entry("c", kind, &stack);
    assert_eq!(
        returned,
        [sources[0][0].clone(), sources[1][1].clone(), stacked.clone(), sources[3][0].clone()]
    );
    assert_eq!(told.made, [stacked]);
    let hidden =
        [&sources[1][0], &sources[2][0], &sources[2][1], &sources[0][1], &sources[1][2], &sources[2][2]];
    assert_eq!(told.dropped, hidden.map(OwnedEntry::clone));
}

#[test]
fn every_merged_entry_is_returned_or_reported() {
    let mut random = SplitMix::new(3);
    for round in 0..200 {
        let sources: Vec<Vec<OwnedEntry>> = (0..1 + random.below(6))
            .map(|_| {
                let mut entries = BTreeMap::new();
                for _ in 0..random.below(40) {
                    let key = format!("key{}", random.below(30));
                    let text = vec![b'x'; usize::try_from(random.below(9)).unwrap()];
                    let (kind, value) = match random.below(4) {
                        0 => (Kind::Tombstone, Vec::new()),
                        1 => (Kind::Operands, encode_operand(&text)),
                        _ => (Kind::Value, text),
                    };
                    entries.insert(key.clone(), entry(&key, kind, &value));
                }
                entries.into_values().collect()
            })
            .collect();
        for direction in [Direction::Forward, Direction::Backward] {
            let (returned, told) = walk(&sources, direction);
            let sorted = |left: &[OwnedEntry], right: &[OwnedEntry]| {
                let mut both: Vec<_> = left
                    .iter()
                    .chain(right)
                    .map(|e| (e.key.clone(), e.kind as u8, e.value.clone()))
                    .collect();
                both.sort();
                both
            };
            assert_eq!(
                sorted(&sources.concat(), &told.made),
                sorted(&returned, &told.dropped),
                "round {round}, {direction:?}"
            );
        }
    }
}

#[test]
fn the_oldest_source_is_hidden_alone_or_absent() {
    let value = |key: &str| entry(key, Kind::Value, b"v");
    let cursor = |entries: Vec<OwnedEntry>| Entries { entries, at: usize::MAX };
    let newest = cursor(vec![value("a"), value("b")]);
    let middle = cursor(vec![value("b"), value("d"), value("e")]);
    let oldest = cursor(vec![value("b"), value("c"), value("e")]);
    let mut merge = MergeCursor::new(vec![newest, middle, oldest]);
    merge.seek_first().unwrap();
    let mut seen = Vec::new();
    while merge.entry().is_some() {
        seen.push((merge.hides_oldest(), merge.stands_on_oldest()));
        merge.next().unwrap();
    }
    assert_eq!(seen, [(false, false), (true, false), (false, true), (false, false), (true, false)]);
    assert!(!merge.hides_oldest());
}
