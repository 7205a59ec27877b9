//! The single error type of the store: a few kinds that determine the caller's options, and details in the
//! message.
//!
//! **Invariants**
//! - A message never contains keys or values of the user, only lengths, file names and positions.
//! - `Corruption` names the file and the offset of the inconsistent bytes, and their keyspace if there is
//!   one. Where intact parts contradict each other, such as a reference and the existing segments, it names
//!   those.

use std::{fmt, io, sync::Arc};

use crate::errno::{self, Treatment, treatment_of};

/// Result of any fallible call of the store.
pub type Result<T> = std::result::Result<T, Error>;

/// Category of an error, by the caller's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument is outside its limits; nothing was done.
    Invalid,
    /// Another writer was first, or a value is not the expected one; [`Error::is_retryable`] tells whether a
    /// retry of the same call may succeed.
    Conflict,
    /// Stored bytes are inconsistent; the message names file and offset.
    Corruption,
    /// The device or the quota is full; nothing of the failed write was applied.
    OutOfSpace,
    /// Another process or handle has the store open.
    Locked,
    /// An earlier background failure made further writes unsafe; reads still work.
    Poisoned,
    /// The store was closed.
    Closed,
    /// This build or mode does not support the operation (newer format, read-only store).
    Unsupported,
    /// The operating system refused an I/O call.
    Io,
    /// The caller cancelled the operation; none of its work was kept.
    Cancelled,
}

/// An error of the store.
#[derive(Clone)]
pub struct Error(Box<Detail>);

#[derive(Clone)]
struct Detail {
    kind: ErrorKind,
    message: String,
    location: Option<(String, u64)>,
    keyspace: Option<String>,
    key: Option<Box<[u8]>>,
    source: Option<Arc<io::Error>>,
    is_retryable: bool,
}

impl Error {
    /// An error of `kind` with a message in plain words.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let is_retryable = kind == ErrorKind::Conflict;
        let (message, location, keyspace, key, source) = (message.into(), None, None, None, None);
        Self(Box::new(Detail { kind, message, location, keyspace, key, source, is_retryable }))
    }

    /// A `Conflict` with the caller's expectation: a retry would fail again.
    pub fn mismatch(message: impl Into<String>) -> Self {
        let mut error = Self::new(ErrorKind::Conflict, message);
        error.0.is_retryable = false;
        error
    }

    /// An `Invalid` error for an argument outside its limits.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// A `Corruption` error for bytes at `offset` of `file`.
    pub fn corruption(file: impl Into<String>, offset: u64, message: impl Into<String>) -> Self {
        let mut error = Self::new(ErrorKind::Corruption, message);
        error.0.location = Some((file.into(), offset));
        error
    }

    /// An error for a failed operating-system call on `file`. A full device and a file size limit become
    /// `OutOfSpace`; an error of the store that the call carried is returned itself. [`errno`] defines the
    /// meaning of error numbers.
    pub fn io(file: impl Into<String>, source: io::Error) -> Self {
        if let Some(carried) = source.get_ref().and_then(|inner| inner.downcast_ref::<Self>()) {
            return carried.clone();
        }
        let file = file.into();
        let is_space =
            treatment_of(&source) == Treatment::Full || source.kind() == io::ErrorKind::FileTooLarge;
        let kind = if is_space { ErrorKind::OutOfSpace } else { ErrorKind::Io };
        let mut error = Self::new(kind, format!("{file}: {source}"));
        error.0.is_retryable = errno::is_transient(&source);
        error.0.source = Some(Arc::new(source));
        error
    }

    /// Category of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Prepends `context` to the message.
    #[must_use]
    pub fn context(mut self, context: &str) -> Self {
        self.0.message = format!("{context}: {}", self.0.message);
        self
    }

    /// Sets the keyspace of a `Corruption`. Other errors stay unchanged, and so does one that already names a
    /// keyspace.
    #[must_use]
    pub fn in_keyspace(mut self, name: &str) -> Self {
        if self.0.kind == ErrorKind::Corruption && self.0.keyspace.is_none() {
            self.0.keyspace = Some(name.to_owned());
        }
        self
    }

    /// Attaches the key, which no message shows. An error that has a key keeps it.
    #[must_use]
    pub fn about_key(mut self, key: &[u8]) -> Self {
        self.0.key.get_or_insert_with(|| key.into());
        self
    }

    /// The message, without the location.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Name of the keyspace of the damaged bytes, for `Corruption`, if known.
    pub fn keyspace(&self) -> Option<&str> {
        self.0.keyspace.as_deref()
    }

    /// The key of the error, if a merge operator or an update function refused. It is user data, so no
    /// message contains it.
    pub fn key(&self) -> Option<&[u8]> {
        self.0.key.as_deref()
    }

    /// File and byte offset of the damage, for `Corruption`.
    pub fn location(&self) -> Option<(&str, u64)> {
        self.0.location.as_ref().map(|(file, offset)| (file.as_str(), *offset))
    }

    /// Whether a retry of the same call may succeed without any other change: another writer was first, or
    /// the system temporarily lacked a resource and nothing was done.
    pub fn is_retryable(&self) -> bool {
        self.0.is_retryable
    }

    /// Whether nothing was done for lack of descriptors, memory or the like: a retry may succeed shortly.
    pub fn is_transient(&self) -> bool {
        self.0.is_retryable && matches!(self.0.kind, ErrorKind::Io | ErrorKind::OutOfSpace)
    }

    /// Whether space is lacking, or temporarily another resource.
    pub fn is_shortage(&self) -> bool {
        self.0.kind == ErrorKind::OutOfSpace || self.is_transient()
    }

    /// Makes the error of partly completed work non-retryable. `context` describes the completed part.
    #[must_use]
    pub fn lasting(self, context: &str) -> Self {
        if !self.is_transient() {
            return self;
        }
        let mut error = self.context(context);
        error.0.is_retryable = false;
        error
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((file, offset)) = &self.0.location {
            write!(f, "{file} at offset {offset}: ")?;
        }
        f.write_str(&self.0.message)?;
        self.0.keyspace.iter().try_for_each(|name| write!(f, " (keyspace {name:?})"))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| source.as_ref() as _)
    }
}
