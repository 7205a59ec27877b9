//! Lines of a file or of standard input as bytes, with their numbers and a bound on their length.
//!
//! **Invariants**
//! - A line is everything up to the line feed, which is taken off; nothing else is changed.
//! - No line makes it allocate more than [`LINE_BYTES_MAX`] and a little.

use std::{
    fs,
    io::{self, BufRead, BufReader, Read},
    path::Path,
};

use crate::{
    context::{Context, Interruption},
    failure::Failure,
    input::interruptible_input::InterruptibleInput,
};

/// Longest line that is read: room for the hex of the longest value that fits into memory comfortably.
pub(crate) const LINE_BYTES_MAX: u64 = 1 << 30;
const BUFFER_BYTES: usize = 256 << 10;

/// Reads lines.
pub(crate) struct LineReader {
    name: String,
    source: Box<dyn BufRead>,
    line: Vec<u8>,
    number: u64,
    position: u64,
    total_bytes: Option<u64>,
}

impl LineReader {
    /// Lines of the file `path`, or of standard input if that is `-`. A source that may block ends early when
    /// `interruption` is raised.
    pub(crate) fn open(context: &Context, path: &Path, interruption: &Interruption) -> Result<Self, Failure> {
        let standard_input = path == Path::new("-");
        let name = if standard_input { "standard input".to_owned() } else { path.display().to_string() };
        let failure = |error: io::Error| Failure::about(&name, error);
        let blocking = |source| {
            let source = InterruptibleInput::start(context, source, interruption.clone());
            source.map(|source| BufReader::with_capacity(BUFFER_BYTES, source)).map_err(failure)
        };
        if standard_input {
            let source = blocking(Box::new(io::stdin()) as Box<dyn Read + Send>)?;
            return Ok(Self::new(&name, Box::new(source), None));
        }
        let file = open_input(path).map_err(failure)?;
        let metadata = file.metadata().map_err(failure)?;
        if metadata.is_dir() {
            return Err(Failure::about(&name, "is a directory, not a file of records"));
        }
        if !metadata.is_file() {
            return Ok(Self::new(&name, Box::new(blocking(Box::new(file))?), None));
        }
        let source = BufReader::with_capacity(BUFFER_BYTES, file);
        Ok(Self::new(&name, Box::new(source), Some(metadata.len())))
    }

    fn new(name: &str, source: Box<dyn BufRead>, total_bytes: Option<u64>) -> Self {
        Self { name: name.to_owned(), source, line: Vec::new(), number: 0, position: 0, total_bytes }
    }

    /// The file, as messages name it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Number of the line read last, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Bytes read so far.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Bytes in all, if known.
    pub(crate) fn total_bytes(&self) -> Option<u64> {
        self.total_bytes
    }

    /// The next line without its line feed, `None` at the end.
    pub(crate) fn next_line(&mut self) -> Result<Option<&[u8]>, String> {
        self.line.clear();
        self.number += 1;
        let mut limited = (&mut self.source).take(LINE_BYTES_MAX);
        let taken = limited.read_until(b'\n', &mut self.line).map_err(|error| error.to_string())?;
        self.position += testudo_base::num::u64_of(taken);
        match self.line.pop() {
            None => Ok(None),
            Some(b'\n') => Ok(Some(&self.line)),
            Some(_) if testudo_base::num::u64_of(taken) == LINE_BYTES_MAX => {
                Err(format!("is longer than {LINE_BYTES_MAX} bytes"))
            }
            Some(last) => {
                self.line.push(last);
                Ok(Some(&self.line))
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a file of the person, not of the store")]
fn open_input(path: &Path) -> io::Result<fs::File> {
    fs::File::open(path)
}

#[cfg(test)]
mod tests;
