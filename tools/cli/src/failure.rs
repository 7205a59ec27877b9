//! Outcomes of verbs, their exit codes and their messages.
//!
//! **Invariants**
//! - A failure is one line on standard error that starts with `testudo: `; control characters become blanks.
//! - A closed pipe is not a failure: the reader has all the output it wanted.

use std::{fmt::Display, io, path::Path, process::ExitCode};

use serde_json::{Value, json};
use testudo::{Error, ErrorKind};
use testudo_base::planted;

/// Result of a verb that ran to completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Exit code 0.
    Fine,
    /// Exit code 1: damage was found, or something named does not exist.
    Negative,
}

/// Named thing that does not exist.
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
    /// JSON document that every verb prints with `--json`.
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

/// Reason why a verb did not run to completion.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Exit code 2, with the line to print.
    Message(String),
    /// Exit code 1: a named thing does not exist; with the line to print.
    Missing(Missing, String),
    /// Exit code 1: the store is damaged; with the line to print and a suggested remedy.
    Damaged(String, String),
    /// The reader of the output closed the pipe.
    ClosedPipe,
}

/// Outcome of a verb.
pub(crate) type Outcome = Result<Verdict, Failure>;

impl Failure {
    /// Creates a failure from a message.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self::Message(message.into())
    }

    /// Failed call to the store in directory `dir`.
    pub(crate) fn store(dir: &Path, error: &Error) -> Self {
        Self::with_help(dir.display(), error, || next_step(dir))
    }

    /// Failed call about `thing`; `help` suggests a remedy for damage.
    pub(crate) fn with_help(thing: impl Display, error: &Error, help: impl FnOnce() -> String) -> Self {
        match (error.kind(), Self::about(thing, error)) {
            (ErrorKind::Corruption, Self::Message(message)) => Self::Damaged(message, help()),
            (_, failure) => failure,
        }
    }

    /// Something named in `thing` does not exist, as `reason` explains.
    pub(crate) fn missing(missing: Missing, thing: impl Display, reason: impl Display) -> Self {
        Self::Missing(missing, format!("{thing}: {reason}"))
    }

    /// Appends `more` to the message.
    pub(crate) fn with_reason(self, more: &str) -> Self {
        match self {
            Self::Message(message) => Self::Message(format!("{message}{more}")),
            Self::Damaged(message, help) => Self::Damaged(format!("{message}{more}"), help),
            other => other,
        }
    }

    /// JSON document for `--json`, if any.
    pub(crate) fn document(&self) -> Option<Value> {
        match self {
            Self::Missing(missing, _) => Some(missing.document()),
            Self::Damaged(message, _) => Some(json!({ "damaged": true, "error": message })),
            Self::Message(_) | Self::ClosedPipe => None,
        }
    }

    /// Maps [`Failure::Missing`] to exit code 2, for verbs that check: nothing was checked.
    pub(crate) fn of_check(self) -> Self {
        match self {
            Self::Missing(_, message) => Self::Message(message),
            other => other,
        }
    }

    /// Appends `hint` to the message of [`Failure::Missing`].
    pub(crate) fn with_hint(self, hint: &str) -> Self {
        match self {
            Self::Missing(missing, message) => Self::Missing(missing, format!("{message}; {hint}")),
            other => other,
        }
    }

    /// Failure about `thing`, which precedes the reason unless the reason already starts with it.
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

/// Suggested next step for a damaged store.
pub(crate) fn next_step(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "next: `testudo repair {dir} --dry-run` reports whether it can be repaired in place; otherwise \
         restore a backup, or run `testudo salvage {dir} NEW`"
    )
}

/// For verbs that created the store themselves; all others name its directory with [`Failure::store`].
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::about("store", error)
    }
}

/// Prints the failure, if any, and returns the exit code.
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
    // Standard error may be closed; then there is nowhere to report it.
    let _ = writeln!(io::stderr(), "testudo: {line}");
}
