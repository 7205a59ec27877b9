//! Context of every verb: environment, standard output, and interruption.
//!
//! **Invariants**
//! - All output of verbs goes through [`Console`], so that a closed pipe never panics.
//! - Ctrl-C is caught only by verbs that request it; it ends all others at once, which the store survives.

use std::{
    fmt::Arguments,
    io::{self, BufWriter, Stdout, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde::Serialize;
use testudo_env::{Env, RealEnv};

use crate::{
    failure::Failure,
    output::table::{Align, lay_out},
};

const OUTPUT_BUFFER_BYTES: usize = 64 << 10;

/// Context of every verb.
pub(crate) struct Context {
    /// Environment, shared with the opened stores.
    pub(crate) env: Arc<RealEnv>,
    /// Standard output.
    pub(crate) console: Console,
    /// Whether to print JSON: one document, or one line per record.
    pub(crate) json: bool,
    interruption: Option<Interruption>,
}

impl Context {
    /// Creates a context with the real environment and buffered output; Ctrl-C is not caught.
    pub(crate) fn new(json: bool) -> Self {
        Self { env: RealEnv::new(), console: Console::new(), json, interruption: None }
    }

    /// Catches Ctrl-C and SIGTERM: the first signal raises the returned flag, the second ends the program.
    pub(crate) fn catch_interruption(&mut self) -> Result<Interruption, Failure> {
        if let Some(interruption) = &self.interruption {
            return Ok(interruption.clone());
        }
        let interruption = Interruption(Arc::new(AtomicBool::new(false)));
        let raised = interruption.clone();
        ctrlc::set_handler(move || {
            if raised.0.swap(true, Ordering::SeqCst) {
                std::process::exit(2);
            }
        })
        .map_err(|error| Failure::new(format!("cannot catch Ctrl-C: {error}")))?;
        self.interruption = Some(interruption.clone());
        Ok(interruption)
    }

    /// Starts a stopwatch.
    pub(crate) fn stopwatch(&self) -> Stopwatch {
        Stopwatch { started: self.env.monotonic(), env: Arc::clone(&self.env) }
    }
}

/// Flag raised by Ctrl-C.
#[derive(Clone, Debug)]
pub(crate) struct Interruption(Arc<AtomicBool>);

impl Interruption {
    /// Whether an interruption was requested.
    pub(crate) fn is_raised(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Returns the flag itself, for libraries that take one.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

/// Stopwatch for elapsed time.
#[derive(Clone, Debug)]
pub(crate) struct Stopwatch {
    env: Arc<RealEnv>,
    started: Duration,
}

impl Stopwatch {
    /// Time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.env.monotonic().saturating_sub(self.started)
    }
}

/// Standard output, buffered.
pub(crate) struct Console {
    out: BufWriter<Stdout>,
}

impl Console {
    fn new() -> Self {
        Self { out: BufWriter::with_capacity(OUTPUT_BUFFER_BYTES, io::stdout()) }
    }

    /// Writes bytes unchanged.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.out.write_all(bytes).map_err(|error| Failure::output(&error))
    }

    /// Writes a line of text.
    pub(crate) fn line(&mut self, text: Arguments<'_>) -> Result<(), Failure> {
        self.out
            .write_fmt(text)
            .and_then(|()| self.out.write_all(b"\n"))
            .map_err(|error| Failure::output(&error))
    }

    /// Writes a table with one header row.
    pub(crate) fn table(&mut self, columns: &[(&str, Align)], rows: &[Vec<String>]) -> Result<(), Failure> {
        lay_out(columns, rows).iter().try_for_each(|line| self.line(format_args!("{line}")))
    }

    /// Writes one JSON document on one line.
    pub(crate) fn json(&mut self, document: &impl Serialize) -> Result<(), Failure> {
        match serde_json::to_writer(&mut self.out, document) {
            Ok(()) => self.write(b"\n"),
            Err(error) if error.is_io() => Err(Failure::output(&error.into())),
            Err(error) => Err(Failure::new(format!("cannot write JSON: {error}"))),
        }
    }

    /// Flushes the buffered output.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(|error| Failure::output(&error))
    }
}

impl Write for Console {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
