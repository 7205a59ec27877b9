//! Options of the long operations of a repository, each with an observer.

use std::ops::ControlFlow;

use testudo_db::Db;
use testudo_store::long_work::{Observed, WorkDone};

/// Options of [`Repository::create`](crate::Repository::create). A reference to the store converts to them.
#[derive(Debug)]
pub struct CreateOptions<'a> {
    pub(crate) db: &'a Db,
    pub(crate) observer: Observed<'a>,
}

impl<'a> CreateOptions<'a> {
    /// A backup of `db`, without an observer.
    pub fn new(db: &'a Db) -> Self {
        Self { db, observer: Observed::default() }
    }

    /// Calls `observer` periodically with the progress; its `Break` ends the backup with `Cancelled`.
    #[must_use]
    pub fn observer(mut self, observer: impl FnMut(WorkDone) -> ControlFlow<()> + 'a) -> Self {
        self.observer = Observed::by(observer);
        self
    }
}

impl<'a> From<&'a Db> for CreateOptions<'a> {
    fn from(db: &'a Db) -> Self {
        Self::new(db)
    }
}

/// Options of [`Repository::verify`](crate::Repository::verify). The id of a backup, or `None` for all
/// backups, converts to them.
#[derive(Debug, Default)]
pub struct VerifyOptions<'a> {
    pub(crate) id: Option<u64>,
    pub(crate) observer: Observed<'a>,
}

impl<'a> VerifyOptions<'a> {
    /// A check of backup `id`, or of all backups (`None`), without an observer.
    pub fn new(id: Option<u64>) -> Self {
        Self { id, observer: Observed::default() }
    }

    /// Calls `observer` periodically with the progress; its `Break` ends the check with `Cancelled`.
    #[must_use]
    pub fn observer(mut self, observer: impl FnMut(WorkDone) -> ControlFlow<()> + 'a) -> Self {
        self.observer = Observed::by(observer);
        self
    }
}

impl From<Option<u64>> for VerifyOptions<'_> {
    fn from(id: Option<u64>) -> Self {
        Self::new(id)
    }
}

/// Options of [`Repository::restore`](crate::Repository::restore). The id of a backup, or `None` for the
/// newest, converts to them.
#[derive(Debug, Default)]
pub struct RestoreOptions<'a> {
    pub(crate) id: Option<u64>,
    pub(crate) observer: Observed<'a>,
}

impl<'a> RestoreOptions<'a> {
    /// A store from backup `id`, or from the newest (`None`), without an observer.
    pub fn new(id: Option<u64>) -> Self {
        Self { id, observer: Observed::default() }
    }

    /// Calls `observer` periodically with the progress; its `Break` ends the work with `Cancelled`.
    #[must_use]
    pub fn observer(mut self, observer: impl FnMut(WorkDone) -> ControlFlow<()> + 'a) -> Self {
        self.observer = Observed::by(observer);
        self
    }
}

impl From<Option<u64>> for RestoreOptions<'_> {
    fn from(id: Option<u64>) -> Self {
        Self::new(id)
    }
}
