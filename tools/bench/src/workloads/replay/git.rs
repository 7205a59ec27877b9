//! Histories of source trees: `B <time> <operations>` begins a batch, `P <bytes> <key>` puts, `D <key>`
//! deletes. A key is the rest of its line, with arbitrary bytes.
//!
//! **Invariants**
//! - A batch is returned whole or not at all: a truncated batch is an error.

use std::io::BufRead;

use testudo::{Error, Result};

use super::trace::{Bytes, Operation};

/// An open history.
pub(crate) struct GitTrace {
    bytes: Bytes,
    name: String,
    line: Vec<u8>,
    line_number: u64,
}

impl GitTrace {
    /// Reads `bytes`; error messages use `name`.
    pub(crate) fn new(bytes: Bytes, name: String) -> Self {
        Self { bytes, name, line: Vec::new(), line_number: 0 }
    }

    /// Appends the next batch to `batch`; returns `false` at the end.
    pub(crate) fn next_batch(&mut self, batch: &mut Vec<Operation>) -> Result<bool> {
        if !self.read_line()? {
            return Ok(false);
        }
        let Some(count) = parse_head(&self.line) else {
            return Err(self.damaged("a batch must begin with B, a time and a count"));
        };
        for _ in 0..count {
            if !self.read_line()? {
                return Err(self.damaged("the last batch is truncated"));
            }
            match parse_operation(&self.line) {
                Some(operation) => batch.push(operation),
                None => return Err(self.damaged("neither a put nor a delete")),
            }
        }
        Ok(true)
    }

    fn read_line(&mut self) -> Result<bool> {
        self.line.clear();
        let count = self.bytes.read_until(b'\n', &mut self.line);
        count.map_err(|error| Error::io(self.name.as_str(), error))?;
        self.line_number += 1;
        let found = !self.line.is_empty();
        if self.line.last() == Some(&b'\n') {
            self.line.pop();
        }
        Ok(found)
    }

    fn damaged(&self, reason: &str) -> Error {
        Error::invalid(format!("{}, line {}: {reason}", self.name, self.line_number))
    }
}

/// Parses the number of operations of a batch.
fn parse_head(line: &[u8]) -> Option<u64> {
    let mut words = std::str::from_utf8(line).ok()?.strip_prefix("B ")?.split(' ');
    let _time: i64 = words.next()?.parse().ok()?;
    let count = words.next()?.parse().ok()?;
    words.next().is_none().then_some(count)
}

fn parse_operation(line: &[u8]) -> Option<Operation> {
    if let Some(key) = line.strip_prefix(b"D ") {
        return Some(Operation::Delete { key: key.to_vec() });
    }
    let rest = line.strip_prefix(b"P ")?;
    let space = rest.iter().position(|byte| *byte == b' ')?;
    let bytes = std::str::from_utf8(&rest[..space]).ok()?.parse().ok()?;
    Some(Operation::Put { key: rest[space + 1..].to_vec(), bytes })
}

#[cfg(test)]
mod tests;
