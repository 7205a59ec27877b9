//! Slot groups: adjacent pages of a run, the last of which are spare, for replaced pages (decision 0071).

/// Pages of a slot group.
pub(crate) const GROUP_PAGES: u32 = 16;
/// Spare pages of a slot group: a seventh of its other pages.
pub(crate) const GROUP_SPARES: u32 = 2;
