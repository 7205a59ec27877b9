//! Selection of compaction buffer sections that a scan reads instead of sequences, part by part (LSbM §5,
//! algorithm 4).
//!
//! They must together have everything that the sequence has of the part. The page of the base where the scan
//! enters it must be in memory: otherwise the sequence is read, which takes fewer pages. Pages of newer
//! sections may be missing, because other scans will find them there. A scan that continues over several
//! parts is long, and reads the sequence anyway.
//!
//! **Invariants**
//! - A sequence is replaced for a whole part, from its first run on, or not at all.
//! - Once turned off, no sections are selected any more.

use std::sync::Arc;

use testudo_base::{
    Result,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
};
use testudo_run::Run;
use testudo_sequence::{Bounds, Entrance, ScanSection, note_damage};

use crate::levels::component::Component;

/// Maximum number of sections: merging more costs more than reading a few pages.
const SECTIONS_MAX: usize = 12;
/// Number of missing pages at the entry of a scan from which the sections are rejected.
const MISSING_MAX: usize = 2;
/// Number of consecutive parts from which a scan is long.
const PARTS_MAX: u32 = 2;

/// Selection of a scan, shared by its cursor and its parts. Only one thread at a time uses it.
#[derive(Debug, Default)]
pub(crate) struct BufferedSections {
    is_off: AtomicBool,
    /// Consecutive parts that the scan has continued into.
    parts: AtomicU32,
    /// Whether sections are read in the current part.
    are_in_use: AtomicBool,
    runs: Mutex<Vec<Arc<Run>>>,
}

impl BufferedSections {
    /// Starts another part; `goes_on`: the scan comes from the adjacent one.
    pub(crate) fn enter_part(&self, goes_on: bool) {
        self.parts.store(if goes_on { self.parts.load(Relaxed) + 1 } else { 0 }, Relaxed);
        if self.are_in_use() {
            self.are_in_use.store(false, Relaxed);
            self.runs.lock().clear();
        }
    }

    /// Returns the sections of the buffer of `component` for the keys of a part, newest first; `None` if the
    /// sequence itself must be read. REQUIRES: the sequence has runs there.
    pub(crate) fn choose(
        &self,
        component: &Component,
        part: &Bounds,
        entrance: Entrance<'_>,
    ) -> Option<Vec<(Arc<Run>, Bounds)>> {
        let buffer = component.buffer()?;
        if self.is_off.load(Relaxed) || self.parts.load(Relaxed) > PARTS_MAX {
            return None;
        }
        // Retained entries before the start of the sequence do not count any more.
        let covered = Bounds { low: component.get(0)?.fenced.low.as_low(), high: None };
        let covered = covered.intersection(part);
        if covered.is_empty() {
            return None;
        }
        let sections = buffer.all_within(&covered)?;
        debug_assert!(
            sections.iter().all(|section| section.bounds.intersection(&covered) == section.bounds),
            "sections are read inside the part"
        );
        if sections.len() > SECTIONS_MAX {
            return None;
        }
        let missing = sections.iter().filter(|section| !is_there(section, entrance));
        let missing: Vec<&ScanSection<'_>> = missing.take(MISSING_MAX + 1).collect();
        if missing.len() > MISSING_MAX || missing.iter().any(|section| section.is_base) {
            return None;
        }
        self.are_in_use.store(true, Relaxed);
        self.runs.lock().extend(sections.iter().map(|section| Arc::clone(section.run)));
        Some(sections.into_iter().map(|section| (Arc::clone(section.run), section.bounds)).collect())
    }

    /// Whether sections are read at the scan's position.
    #[inline]
    pub(crate) fn are_in_use(&self) -> bool {
        self.are_in_use.load(Relaxed)
    }

    /// Reads only sequences from now on.
    pub(crate) fn turn_off(&self) {
        self.is_off.store(true, Relaxed);
        self.enter_part(false);
    }

    /// Records which of the runs in use `read` cannot read.
    pub(crate) fn note_damaged(&self, read: impl Fn(&Arc<Run>) -> Result<()>) {
        let runs = self.runs.lock().clone();
        for run in runs {
            if let Err(error) = read(&run) {
                note_damage(&run, &error);
            }
        }
    }
}

/// Whether the page where a scan enters a section is in memory; sections without the entrance key always
/// pass.
fn is_there(section: &ScanSection<'_>, entrance: Entrance<'_>) -> bool {
    let ScanSection { run, bounds, .. } = section;
    let (key, is_inside) = match entrance {
        Entrance::At(key) => (key, bounds.contains(key)),
        Entrance::Before(key) => {
            let begins_before = bounds.low.as_ref().is_none_or(|low| low.is_less_than(key));
            (key, begins_before && bounds.high.as_ref().is_none_or(|high| !high.is_less_than(key)))
        }
        Entrance::Last => return false,
    };
    let keys = &run.reference().keys;
    !is_inside || keys.end_before(key) || run.has_page_for(key).unwrap_or(false)
}
