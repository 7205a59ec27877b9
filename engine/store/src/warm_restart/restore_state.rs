//! Progress of restoring the hot set.
//!
//! **Invariants**
//! - A state keeps its number: the file `status` stores it.

/// Progress of restoring the pages and records that were hot before the store was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum RestoreState {
    /// There is nothing to restore: no file, a store open for reading only, or the option is off.
    #[default]
    Nothing,
    /// Restoring starts at the first read of a user.
    Waiting,
    /// Pages and records are being read.
    Reading,
    /// Everything was restored.
    Done,
    /// Memory was full before everything was restored.
    Full,
    /// The restored pages and records were not used; the rest was skipped.
    Unused,
    /// The file is incomplete, or of another store; the rest was skipped.
    Damaged,
    /// A read failed; the rest was skipped.
    Failed,
}

impl RestoreState {
    const ALL: [Self; 8] = [
        Self::Nothing,
        Self::Waiting,
        Self::Reading,
        Self::Done,
        Self::Full,
        Self::Unused,
        Self::Damaged,
        Self::Failed,
    ];

    /// The number in the file `status`.
    pub fn code(self) -> u64 {
        self as u64
    }

    /// The name that `testudo stat` shows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Waiting => "waiting",
            Self::Reading => "reading",
            Self::Done => "done",
            Self::Full => "full",
            Self::Unused => "unused",
            Self::Damaged => "damaged",
            Self::Failed => "failed",
        }
    }

    /// The state with this [`RestoreState::code`]; `Nothing` for an unknown code.
    pub fn from_code(code: u64) -> Self {
        Self::ALL.into_iter().find(|state| state.code() == code).unwrap_or_default()
    }

    /// Whether there may be more to restore.
    pub fn is_under_way(self) -> bool {
        matches!(self, Self::Waiting | Self::Reading)
    }
}
