//! Interruptible standard input: it ends early after an interruption.
//!
//! A dedicated thread does the blocking reads. Otherwise, on a terminal or a slow pipe, Ctrl-C would take
//! effect only at the next line.
//!
//! **Invariants**
//! - Bytes arrive in order; an interruption looks like the end of the input.

use std::{
    io::{self, Read},
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    time::Duration,
};

use testudo_env::Env;

use crate::context::{Context, Interruption};

const CHUNK_BYTES: usize = 128 << 10;
const CHUNKS_AHEAD: usize = 4;
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Source that ends when interrupted.
#[derive(Debug)]
pub(crate) struct InterruptibleInput {
    chunks: Receiver<io::Result<Vec<u8>>>,
    current: Vec<u8>,
    taken: usize,
    interruption: Interruption,
}

impl InterruptibleInput {
    /// Reads `source` until its end or an interruption.
    pub(crate) fn start(
        context: &Context,
        source: impl Read + Send + 'static,
        interruption: Interruption,
    ) -> io::Result<Self> {
        let (sender, chunks) = sync_channel(CHUNKS_AHEAD);
        // The thread ends with the source, or with the program if a read blocks indefinitely.
        context.env.spawn("input", Box::new(move || pump(source, &sender)))?;
        Ok(Self { chunks, current: Vec::new(), taken: 0, interruption })
    }
}

fn pump(mut source: impl Read, sender: &SyncSender<io::Result<Vec<u8>>>) {
    loop {
        let mut chunk = vec![0; CHUNK_BYTES];
        let sent = match source.read(&mut chunk) {
            Ok(0) => return,
            Ok(count) => {
                chunk.truncate(count);
                sender.send(Ok(chunk))
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                let _ = sender.send(Err(error));
                return;
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

impl Read for InterruptibleInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.current.len() {
            if self.interruption.is_raised() {
                return Ok(0);
            }
            match self.chunks.recv_timeout(LOOK_EVERY) {
                Ok(chunk) => (self.current, self.taken) = (chunk?, 0),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(0),
            }
        }
        let count = buffer.len().min(self.current.len() - self.taken);
        buffer[..count].copy_from_slice(&self.current[self.taken..self.taken + count]);
        self.taken += count;
        Ok(count)
    }
}
