//! How a verb ends, and what the shell and the person see of it.
//!
//! **Invariants**
//! - A failure is one line on standard error that starts with `testudo: `, whatever its message holds.
//! - A closed pipe is no failure: who stopped reading has what he wanted.

use std::{fmt::Display, io, path::Path, process::ExitCode};

use serde_json::{Value, json};
use testudo::{Error, ErrorKind};
use testudo_base::planted;

/// What a verb that ran to its end found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Exit code 0.
    Fine,
    /// Exit code 1: damage was found, or something of what was named is not there.
    Negative,
}

/// What was named and is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// No store in the directory.
    Store,
    /// No such keyspace in the store.
    Keyspace,
    /// No such key in the keyspace.
    Key,
    /// The data file has no such page.
    Page,
    /// No repository of backups in the directory.
    Repository,
    /// No such backup in the repository.
    Backup,
}

impl Missing {
    /// The answer of every verb with `--json`.
    pub(crate) fn document(self) -> Value {
        let what = match self {
            Self::Store => "store",
            Self::Keyspace => "keyspace",
            Self::Key => "key",
            Self::Page => "page",
            Self::Repository => "repository",
            Self::Backup => "backup",
        };
        json!({ "found": false, "missing": what })
    }
}

/// Why a verb did not run to its end.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Exit code 2, and the line to print.
    Message(String),
    /// Exit code 1: what was named is not there; and the line to print.
    Missing(Missing, String),
    /// Exit code 1: the store is damaged; the line to print, and what would help.
    Damaged(String, String),
    /// Nobody reads the output any more.
    ClosedPipe,
}

/// How a verb ends.
pub(crate) type Outcome = Result<Verdict, Failure>;

impl Failure {
    /// A failure in plain words.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self::Message(message.into())
    }

    /// A failed call of the store in directory `dir`.
    pub(crate) fn store(dir: &Path, error: &Error) -> Self {
        Self::with_help(dir.display(), error, || next_step(dir))
    }

    /// A failed call about `thing`; `help` says what would help against damage.
    pub(crate) fn with_help(thing: impl Display, error: &Error, help: impl FnOnce() -> String) -> Self {
        match (error.kind(), Self::about(thing, error)) {
            (ErrorKind::Corruption, Self::Message(message)) => Self::Damaged(message, help()),
            (_, failure) => failure,
        }
    }

    /// Something of `thing` that was named is not there, as `reason` says.
    pub(crate) fn missing(missing: Missing, thing: impl Display, reason: impl Display) -> Self {
        Self::Missing(missing, format!("{thing}: {reason}"))
    }

    /// The same with more behind its reason.
    pub(crate) fn with_reason(self, more: &str) -> Self {
        match self {
            Self::Message(message) => Self::Message(format!("{message}{more}")),
            Self::Damaged(message, help) => Self::Damaged(format!("{message}{more}"), help),
            other => other,
        }
    }

    /// The answer with `--json`, if there is one.
    pub(crate) fn document(&self) -> Option<Value> {
        match self {
            Self::Missing(missing, _) => Some(missing.document()),
            Self::Damaged(message, _) => Some(json!({ "damaged": true, "error": message })),
            Self::Message(_) | Self::ClosedPipe => None,
        }
    }

    /// The same of a verb that checks: it could not look at what is not there.
    pub(crate) fn of_check(self) -> Self {
        match self {
            Self::Missing(_, message) => Self::Message(message),
            other => other,
        }
    }

    /// The same with what would help, if something is missing.
    pub(crate) fn with_hint(self, hint: &str) -> Self {
        match self {
            Self::Missing(missing, message) => Self::Missing(missing, format!("{message}; {hint}")),
            other => other,
        }
    }

    /// A failure of `thing`, which the line names first unless the message already does.
    pub(crate) fn about(thing: impl Display, reason: impl Display) -> Self {
        let (thing, reason) = (thing.to_string(), reason.to_string());
        if reason.starts_with(&thing) {
            return Self::Message(reason);
        }
        Self::Message(format!("{thing}: {reason}"))
    }

    /// A failed write to standard output.
    pub(crate) fn output(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ClosedPipe,
            _ => Self::Message(format!("standard output: {error}")),
        }
    }
}

/// What to do about a damaged store.
pub(crate) fn next_step(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "next: `testudo repair {dir} --dry-run` says whether it can be put right in place; otherwise restore \
         a backup, or `testudo salvage {dir} NEW`"
    )
}

/// For verbs that made the store themselves; all others name its directory with [`Failure::store`].
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::about("store", error)
    }
}

/// Prints the failure, if there is one, and gives the exit code.
pub(crate) fn exit_code(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(Verdict::Fine) | Err(Failure::ClosedPipe) => ExitCode::SUCCESS,
        Ok(Verdict::Negative) => ExitCode::from(1),
        Err(Failure::Missing(_, message)) => {
            say(&message);
            ExitCode::from(if planted!("missing-thing-is-exit-code-two") { 2 } else { 1 })
        }
        Err(Failure::Damaged(message, help)) => {
            say(&format!("{message}; {help}"));
            ExitCode::from(1)
        }
        Err(Failure::Message(message)) => {
            say(&message);
            ExitCode::from(2)
        }
    }
}

/// Prints one line on standard error.
pub(crate) fn say(message: &str) {
    use io::Write as _;
    let line: String = message.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    // Standard error may be closed; there is nowhere left to say so.
    let _ = writeln!(io::stderr(), "testudo: {line}");
}
