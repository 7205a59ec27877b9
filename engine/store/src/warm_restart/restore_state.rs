//! How far a store is with reading back what was hot.
//!
//! **Invariants**
//! - A state keeps its number: the file `status` says it.

/// How far the store is with reading back what was hot before it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum RestoreState {
    /// There is nothing to be read: no file, a store open for reading only, or the option is off.
    #[default]
    Nothing,
    /// The first read of a user has not come yet.
    Waiting,
    /// Pages and records are being read.
    Reading,
    /// All of it was read.
    Done,
    /// The memory was full before all of it was read.
    Full,
    /// What came back was not used: the rest was left.
    Unused,
    /// The file is not whole, or of another store: the rest was left.
    Damaged,
    /// A read failed: the rest was left.
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

    /// As the file `status` says it.
    pub fn code(self) -> u64 {
        self as u64
    }

    /// What [`RestoreState::code`] says; `Nothing` for what is not known.
    pub fn from_code(code: u64) -> Self {
        Self::ALL.into_iter().find(|state| state.code() == code).unwrap_or_default()
    }

    /// Whether there may be more to be read.
    pub fn is_under_way(self) -> bool {
        matches!(self, Self::Waiting | Self::Reading)
    }
}
