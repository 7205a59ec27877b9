//! Reads lines of a file or of standard input as bytes, with line numbers and in bounded memory.
//!
//! **Invariants**
//! - A line excludes its ending and is otherwise unchanged. [`Newline`] selects the accepted endings; without
//!   it, CRLF is an error and never becomes part of a record by accident.
//! - A line longer than [`WHOLE_LINE_BYTES`] is read in chunks; memory does not grow with its length.

use std::{
    fs,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use clap::ValueEnum;
use testudo_base::num::u64_of;

use crate::{
    context::{Context, Interruption},
    failure::Failure,
    input::interruptible_input::InterruptibleInput,
};

/// Maximum bytes of a line that is read whole.
pub(crate) const WHOLE_LINE_BYTES: usize = 1 << 20;
const BUFFER_BYTES: usize = 256 << 10;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Line ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Newline {
    /// A line feed alone; all other bytes, including a byte order mark, belong to the records
    Lf,
    /// A line feed, or carriage return and line feed, as in files from Windows; a leading byte order mark is
    /// skipped
    Crlf,
}

/// Line without its ending.
pub(crate) enum Line<'r> {
    Whole(&'r [u8]),
    Long(LongLine<'r>),
}

/// Line reader.
pub(crate) struct LineReader {
    name: String,
    source: Box<dyn BufRead>,
    newline: Option<Newline>,
    line: Vec<u8>,
    number: u64,
    position: u64,
    total_bytes: Option<u64>,
}

impl LineReader {
    /// Opens the file `path`, or standard input if it is `-`. A source that may block ends early when
    /// `interruption` is raised. Without `newline`, only line feeds end a line; signs of other line endings
    /// or encodings are errors.
    pub(crate) fn open(
        context: &Context,
        path: &Path,
        interruption: &Interruption,
        newline: Option<Newline>,
    ) -> Result<Self, Failure> {
        let standard_input = path == Path::new("-");
        let name = if standard_input { "standard input".to_owned() } else { path.display().to_string() };
        let failure = |error: io::Error| Failure::about(&name, error);
        let blocking = |source| {
            let source = InterruptibleInput::start(context, source, interruption.clone());
            source.map(|source| BufReader::with_capacity(BUFFER_BYTES, source)).map_err(failure)
        };
        if standard_input {
            let source = blocking(Box::new(io::stdin()) as Box<dyn Read + Send>)?;
            return Ok(Self::new(&name, Box::new(source), None, newline));
        }
        let file = open_input(path).map_err(failure)?;
        let metadata = file.metadata().map_err(failure)?;
        if metadata.is_dir() {
            return Err(Failure::about(&name, "is a directory, not a file of records"));
        }
        if !metadata.is_file() {
            return Ok(Self::new(&name, Box::new(blocking(Box::new(file))?), None, newline));
        }
        let source = BufReader::with_capacity(BUFFER_BYTES, file);
        Ok(Self::new(&name, Box::new(source), Some(metadata.len()), newline))
    }

    #[cfg(test)]
    pub(crate) fn of_source(source: Box<dyn BufRead>, newline: Option<Newline>) -> Self {
        Self::new("test", source, None, newline)
    }

    fn new(name: &str, source: Box<dyn BufRead>, total_bytes: Option<u64>, newline: Option<Newline>) -> Self {
        let (name, line) = (name.to_owned(), Vec::new());
        Self { name, source, newline, line, number: 0, position: 0, total_bytes }
    }

    /// Name of the source in messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// 1-based number of the line read last.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Bytes read so far.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Total bytes, if known.
    pub(crate) fn total_bytes(&self) -> Option<u64> {
        self.total_bytes
    }

    /// Returns the next line without its ending, or `None` at the end of the source. REQUIRES: a preceding
    /// long line was read to its end.
    pub(crate) fn next_line(&mut self) -> Result<Option<Line<'_>>, String> {
        self.line.clear();
        self.number += 1;
        let mut limited = (&mut self.source).take(u64_of(WHOLE_LINE_BYTES));
        let taken = limited.read_until(b'\n', &mut self.line).map_err(|error| error.to_string())?;
        self.position += u64_of(taken);
        if taken == 0 {
            return Ok(None);
        }
        let ends_here = self.line.last() == Some(&b'\n');
        let is_long = !ends_here && taken == WHOLE_LINE_BYTES;
        let mut start = 0;
        if self.number == 1 {
            start = check_beginning(&self.line, self.newline)?;
            if !ends_here && !is_long && self.newline.is_none() && self.line.contains(&b'\r') {
                return Err(lone_carriage_returns());
            }
        }
        if is_long {
            return Ok(Some(Line::Long(LongLine { reader: self, at: start, ended: false })));
        }
        let end = self.line.len() - usize::from(ends_here);
        let end = end - usize::from(takes_carriage_return(&self.line[start..end], self.newline)?);
        Ok(Some(Line::Whole(&self.line[start..end])))
    }

    /// As [`LineReader::next_line`], but fails at a long line.
    pub(crate) fn next_whole_line(&mut self) -> Result<Option<&[u8]>, String> {
        match self.next_line()? {
            None => Ok(None),
            Some(Line::Whole(line)) => Ok(Some(line)),
            Some(Line::Long(_)) => Err(format!("is longer than {WHOLE_LINE_BYTES} bytes")),
        }
    }
}

/// Line that is not held in memory.
pub(crate) struct LongLine<'r> {
    reader: &'r mut LineReader,
    /// Bytes consumed of the start of the line, which the reader holds.
    at: usize,
    ended: bool,
}

impl LongLine<'_> {
    /// Reads the next chunk into `chunk`; returns `false` at the end of the line.
    pub(crate) fn next_chunk(&mut self, chunk: &mut Vec<u8>) -> Result<bool, String> {
        chunk.clear();
        let reader = &mut *self.reader;
        if self.at < reader.line.len() {
            // The last byte may be the first byte of the line ending.
            let keeps = usize::from(reader.line.last() == Some(&b'\r'));
            chunk.extend_from_slice(&reader.line[self.at..reader.line.len() - keeps]);
            reader.line.drain(..reader.line.len() - keeps);
            self.at = reader.line.len();
            if !chunk.is_empty() {
                return Ok(true);
            }
        }
        if self.ended {
            return Ok(false);
        }
        // The byte kept from the previous chunk.
        chunk.append(&mut reader.line);
        self.at = 0;
        let buffered = reader.source.fill_buf().map_err(|error| error.to_string())?;
        let line_feed = buffered.iter().position(|&byte| byte == b'\n');
        self.ended = line_feed.is_some() || buffered.is_empty();
        chunk.extend_from_slice(&buffered[..line_feed.unwrap_or(buffered.len())]);
        let taken = line_feed.map_or(buffered.len(), |at| at + 1);
        reader.source.consume(taken);
        reader.position += u64_of(taken);
        if self.ended {
            let without = usize::from(takes_carriage_return(chunk, reader.newline)?);
            chunk.truncate(chunk.len() - without);
        } else if chunk.last() == Some(&b'\r') {
            chunk.pop();
            reader.line.push(b'\r');
            self.at = 1;
        }
        Ok(!chunk.is_empty() || !self.ended)
    }
}

/// Whether a carriage return at the end of the line belongs to the line ending.
fn takes_carriage_return(line: &[u8], newline: Option<Newline>) -> Result<bool, String> {
    match (line.ends_with(b"\r"), newline) {
        (true, Some(Newline::Crlf)) => Ok(true),
        (true, None) => {
            Err("ends in carriage return and line feed (CRLF), as in files from Windows: --newline \
                             crlf strips both, --newline lf keeps the carriage return in the record"
                .to_owned())
        }
        _ => Ok(false),
    }
}

fn lone_carriage_returns() -> String {
    "has carriage returns but no line feed: only line feeds end a line here (--newline lf reads it all as \
     one record)"
        .to_owned()
}

/// Offset at which the first line begins. Rejects UTF-16 and unexpected byte order marks.
fn check_beginning(line: &[u8], newline: Option<Newline>) -> Result<usize, String> {
    if newline == Some(Newline::Lf) {
        return Ok(0);
    }
    if is_utf16(line) {
        return Err("is UTF-16: `iconv -f UTF-16 -t UTF-8` converts it to readable text (--newline lf \
                    reads the bytes unchanged)"
            .to_owned());
    }
    match (line.starts_with(BYTE_ORDER_MARK), newline) {
        (false, _) => Ok(0),
        (true, Some(_)) => Ok(BYTE_ORDER_MARK.len()),
        (true, None) => {
            Err("begins with a byte order mark (EF BB BF), which belongs to no record: --newline \
                             crlf skips it, --newline lf keeps it in the first record"
                .to_owned())
        }
    }
}

/// Detects UTF-16 by its byte order mark, or because every other byte at the start is zero.
fn is_utf16(line: &[u8]) -> bool {
    const LOOKED_AT: usize = 256;
    if line.starts_with(&[0xff, 0xfe]) || line.starts_with(&[0xfe, 0xff]) {
        return true;
    }
    let head = &line[..line.len().min(LOOKED_AT) / 2 * 2];
    let zeros = |odd: usize| head.iter().skip(odd).step_by(2).all(|&byte| byte == 0);
    let letters = |odd: usize| head.iter().skip(odd).step_by(2).all(|&byte| byte != 0);
    head.len() >= 4 && ((zeros(0) && letters(1)) || (zeros(1) && letters(0)))
}

#[expect(clippy::disallowed_methods, reason = "the user's file, not the store's")]
fn open_input(path: &Path) -> io::Result<fs::File> {
    fs::File::open(path)
}

#[cfg(test)]
mod tests;
