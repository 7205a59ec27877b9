//! Bytes of unknown length: in memory while they are few, then in an unlinked temporary file.
//!
//! **Invariants**
//! - Memory does not grow beyond [`IN_MEMORY_BYTES`], and the file vanishes with the program.

use std::{
    env, fs,
    io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write},
    path::PathBuf,
};

use testudo_base::num::u64_of;

use crate::context::Context;

const IN_MEMORY_BYTES: usize = 1 << 20;
const BUFFER_BYTES: usize = 256 << 10;

/// Spooled bytes.
#[derive(Debug)]
pub(crate) struct Spool {
    memory: Vec<u8>,
    file: Option<BufWriter<fs::File>>,
    length: u64,
    number: u64,
}

impl Spool {
    /// Creates an empty spool.
    pub(crate) fn new(context: &Context) -> Self {
        use testudo_env::Env as _;
        Self { memory: Vec::new(), file: None, length: 0, number: context.env.random_u64() }
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> u64 {
        self.length
    }

    /// Appends bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.length += u64_of(bytes.len());
        if self.file.is_none() && self.memory.len() + bytes.len() > IN_MEMORY_BYTES {
            let file = temporary_file(self.number);
            let mut file = file.map(|file| BufWriter::with_capacity(BUFFER_BYTES, file)).map_err(failed)?;
            file.write_all(&self.memory).map_err(failed)?;
            self.memory = Vec::new();
            self.file = Some(file);
        }
        match &mut self.file {
            Some(file) => file.write_all(bytes).map_err(failed),
            None => {
                self.memory.extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// Returns a reader of all bytes.
    pub(crate) fn reader(&mut self) -> Result<Box<dyn Read + '_>, String> {
        let Some(file) = &mut self.file else { return Ok(Box::new(self.memory.as_slice())) };
        file.flush().and_then(|()| file.get_mut().seek(SeekFrom::Start(0))).map_err(failed)?;
        Ok(Box::new(BufReader::with_capacity(BUFFER_BYTES, file.get_mut())))
    }
}

fn failed(error: io::Error) -> String {
    format!("temporary file for a long value: {error}")
}

/// Creates an unlinked file in `TMPDIR`, `/var/tmp` or `/tmp`.
fn temporary_file(number: u64) -> io::Result<fs::File> {
    let places = env::var_os("TMPDIR").map(PathBuf::from).into_iter();
    let mut failure = None;
    for place in places.chain(["/var/tmp", "/tmp"].map(PathBuf::from)) {
        let path = place.join(format!(".testudo-{number:016x}"));
        match fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
            Ok(file) => return fs::remove_file(&path).map(|()| file),
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.unwrap_or_else(|| io::Error::other("no directory for it")))
}
