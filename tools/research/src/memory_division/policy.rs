//! Policies: the division of memory between pages and records, and the admission of records.

/// The border between the two caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Border {
    /// Records have this percentage of the memory, pages the rest; neither lends memory to the other.
    Separate(u64),
    /// Records have at most this percentage; pages use the rest and any unused part of it.
    Fixed(u64),
    /// The border moves as in ARC (Megiddo and Modha, FAST 2003). A page read from the device moves it by
    /// `step` bytes: towards more pages if the page was evicted recently, towards more records if the record
    /// was evicted recently. Recently means within the last `memory / depth` bytes of evicted pages or
    /// records, respectively. The border starts as in `Fixed(45)`.
    Ghosts { depth: u64, step: u64 },
}

/// Admission to the record cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// Each record that is read from a page.
    All,
    /// A record read from a page, if fewer than this many other records of the resident page were requested.
    Sparse(u32),
    /// The requested records of an evicted page. A page with at least this many requested records gets
    /// another turn instead.
    Distilled(u32),
}

/// A policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) border: Border,
    pub(super) admission: Admission,
    /// Whether new records are on probation (S3-FIFO). Otherwise the record cache is a clock.
    pub(super) has_probation: bool,
}

/// Default step, in bytes.
const STEP: u64 = 8192;

/// All compared policies.
pub(super) const POLICIES: [(&str, Policy); 31] = {
    use Admission::{All, Distilled, Sparse};
    [
        ("separate-45", policy(Border::Separate(45), All)),
        ("fixed-0", policy(Border::Fixed(0), All)),
        ("fixed-25", policy(Border::Fixed(25), All)),
        ("fixed-45", policy(Border::Fixed(45), All)),
        ("fixed-60", policy(Border::Fixed(60), All)),
        ("fixed-75", policy(Border::Fixed(75), All)),
        ("fixed-90", policy(Border::Fixed(90), All)),
        ("fixed-45-sparse-1", policy(Border::Fixed(45), Sparse(1))),
        ("fixed-45-sparse-2", policy(Border::Fixed(45), Sparse(2))),
        ("fixed-45-sparse-4", policy(Border::Fixed(45), Sparse(4))),
        ("fixed-45-sparse-8", policy(Border::Fixed(45), Sparse(8))),
        ("fixed-45-sparse-16", policy(Border::Fixed(45), Sparse(16))),
        ("fixed-45-distilled-8", policy(Border::Fixed(45), Distilled(8))),
        ("fixed-90-sparse-4", policy(Border::Fixed(90), Sparse(4))),
        ("fixed-90-distilled-8", policy(Border::Fixed(90), Distilled(8))),
        ("ghosts", policy(ghosts(8, STEP), Sparse(4))),
        ("ghosts-clock", Policy { has_probation: false, ..policy(ghosts(8, STEP), Sparse(4)) }),
        ("fixed-90-clock", Policy { has_probation: false, ..policy(Border::Fixed(90), All) }),
        ("ghosts-all", policy(ghosts(8, STEP), All)),
        ("ghosts-sparse-1", policy(ghosts(8, STEP), Sparse(1))),
        ("ghosts-sparse-2", policy(ghosts(8, STEP), Sparse(2))),
        ("ghosts-sparse-8", policy(ghosts(8, STEP), Sparse(8))),
        ("ghosts-distilled-8", policy(ghosts(8, STEP), Distilled(8))),
        ("ghosts-distilled-16", policy(ghosts(8, STEP), Distilled(16))),
        ("ghosts-16th", policy(ghosts(16, STEP), Sparse(4))),
        ("ghosts-32nd", policy(ghosts(32, STEP), Sparse(4))),
        ("ghosts-step-256", policy(ghosts(8, 256), Sparse(4))),
        ("ghosts-step-1024", policy(ghosts(8, 1024), Sparse(4))),
        ("ghosts-step-4096", policy(ghosts(8, 4096), Sparse(4))),
        ("ghosts-step-16384", policy(ghosts(8, 16384), Sparse(4))),
        ("ghosts-step-65536", policy(ghosts(8, 65536), Sparse(4))),
    ]
};

const fn policy(border: Border, admission: Admission) -> Policy {
    Policy { border, admission, has_probation: true }
}

const fn ghosts(depth: u64, step: u64) -> Border {
    Border::Ghosts { depth, step }
}
