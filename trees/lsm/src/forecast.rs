//! Forecast of inserts, so that rewritten pages get free space where keys will be added (TreeLine §4.6; T4).
//!
//! `new keys of page updates → epochs → shares by ranges of keys → fill of rewritten pages`
//!
//! A new key is counted where it reaches a page by a page update: only there does it use free space. Runs
//! with many incoming entries are rewritten whole, whether there is space or not, so their new keys reduce
//! the forecast instead.
//!
//! The horizon is the space that forecasts may take: all expected inserts together are at most
//! [`SPACE_PERCENT`] of the bottom, divided by their shares.
//!
//! An epoch is a 64th of the records. The space of the horizon is then used within about ten epochs, and two
//! epochs, before which there is no forecast, are a fifth of that. It has at least enough inserts for a few
//! parts of a histogram, and at most those of the paper.
//!
//! **Invariants**
//! - It is in memory only, and each insert is counted when its page is written: an abandoned job, or a
//!   restart, costs accuracy, never an answer.
//! - Memory is bounded, counted with that of the runs, and allocated by the first insert.
//! - The lock is taken once per batch of page updates, and once per chunk of a merge; nothing is read under
//!   it.

mod epochs;
mod histogram;
mod page_fill;
mod reservoir;

use testudo_base::{
    Result,
    num::usize_of,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use testudo_run::{EntryList, RunLayout};
use testudo_sequence::{Bounds, Fence, Layer};
use testudo_storage::DataFile;

pub use self::epochs::{EpochSize, Epochs, InsertShares};
use self::page_fill::Density;
pub(crate) use self::page_fill::PageFill;
use crate::levels::component::Component;

/// Limit on expected inserts, as a percentage of the bottom: most stores have as much space to spare.
pub(crate) const SPACE_PERCENT: u64 = 15;
/// Records of a tree for each insert of an epoch.
const RECORDS_FOR_EACH: u64 = 64;
/// Bounds of the inserts of an epoch.
const EPOCH_MIN: u64 = 400;
const EPOCH_MAX: u64 = 100_000;
/// Minimum inserts of an epoch for each part: counts of fewer say little.
const INSERTS_FOR_EACH_PART: u64 = 20;
/// Maximum parts of a histogram.
const PARTS_MAX: u64 = 256;

/// Returns the size of an epoch for a tree of `records`.
fn epoch_size(records: u64) -> EpochSize {
    let inserts = (records / RECORDS_FOR_EACH).clamp(EPOCH_MIN, EPOCH_MAX);
    EpochSize { inserts, parts: usize_of((inserts / INSERTS_FOR_EACH_PART).min(PARTS_MAX)) }
}

/// The forecast of a tree, shared by all of its states.
#[derive(Debug, Default)]
pub(crate) struct InsertForecast {
    epochs: Mutex<Option<Box<Epochs>>>,
    /// New keys in rewritten runs in this epoch.
    rewritten: AtomicU64,
    /// The same in the last epoch.
    rewritten_before: AtomicU64,
    /// Bytes of memory, as last counted.
    memory: AtomicU64,
    /// Counts the memory; `None` in tests.
    data: Option<Arc<DataFile>>,
}

impl InsertForecast {
    pub(crate) fn new(data: &Arc<DataFile>) -> Arc<Self> {
        let mut forecast = Self::default();
        forecast.data = Some(Arc::clone(data));
        Arc::new(forecast)
    }

    /// Counts new keys that reached pages of a tree of `records`.
    pub(crate) fn note_page_inserts<'k>(&self, lists: impl Iterator<Item = &'k EntryList>, records: u64) {
        let mut lists = lists.filter(|list| !list.is_empty()).peekable();
        if lists.peek().is_none() {
            return;
        }
        let size = epoch_size(records);
        let mut locked = self.epochs.lock();
        let epochs = locked.get_or_insert_with(|| Box::new(Epochs::new(size)));
        for entry in lists.flat_map(EntryList::iter) {
            if epochs.note_insert(entry.key, size) {
                self.rewritten_before.store(self.rewritten.swap(0, Relaxed), Relaxed);
            }
        }
        self.count_memory(epochs.memory_bytes());
    }

    /// Counts new keys in rewritten runs.
    pub(crate) fn note_rewritten(&self, keys: u64) {
        if keys > 0 {
            self.rewritten.fetch_add(keys, Relaxed);
        }
    }

    /// Returns the shares of ranges, and the fraction of all new keys that reach pages; `None` if nothing is
    /// known.
    fn outlook(&self) -> Option<(InsertShares, f64)> {
        let locked = self.epochs.lock();
        let epochs = locked.as_ref()?;
        let shares = epochs.shares()?.clone();
        let rewritten = self.rewritten.load(Relaxed).max(self.rewritten_before.load(Relaxed));
        let inserts = epochs.epoch_inserts();
        Some((shares, inserts as f64 / (inserts + rewritten) as f64))
    }

    /// Number of new keys in rewritten runs in this epoch.
    #[cfg(test)]
    pub(crate) fn rewritten_keys(&self) -> u64 {
        self.rewritten.load(Relaxed)
    }

    fn count_memory(&self, bytes: u64) {
        let before = self.memory.swap(bytes, Relaxed);
        let Some(data) = &self.data else { return };
        if bytes > before {
            data.add_run_memory(bytes - before);
        } else {
            data.subtract_run_memory(before - bytes);
        }
    }
}

impl Drop for InsertForecast {
    fn drop(&mut self) {
        self.count_memory(0);
    }
}

/// The forecast and the bottom at the start of a job.
#[derive(Debug)]
pub(crate) struct JobForecast {
    pub(crate) forecast: Arc<InsertForecast>,
    pub(crate) bottom: Component,
    pub(crate) records: u64,
}

/// A part of the bottom that is rewritten.
pub(crate) struct Rewritten<'a> {
    pub(crate) bounds: &'a Bounds,
    pub(crate) layers: &'a [Layer],
    /// The last layer is of the bottom.
    pub(crate) has_own: bool,
}

impl JobForecast {
    /// Returns the fill of pages of a chunk; `None` if nothing is expected there. Reads index pages.
    ///
    /// A part's expected inserts go to the pages with its present data, in equal proportions.
    pub(crate) fn page_fill(&self, chunk: &Rewritten<'_>, layout: RunLayout) -> Result<Option<PageFill>> {
        let Rewritten { bounds, layers, has_own } = *chunk;
        let (Some(own), Some((shares, reaching))) =
            (layers.last().filter(|_| has_own && layout.is_for_updates()), self.forecast.outlook())
        else {
            return Ok(None);
        };
        let histogram = &shares.histogram;
        let all_expected = self.bottom.bytes() as f64 * SPACE_PERCENT as f64 / 100.0 * reaching;
        let (low, high) = (bounds.low.as_ref().map(Fence::bytes), bounds.high.as_ref().map(Fence::bytes));
        let mut densities: Vec<Density> = Vec::new();
        for part in histogram.parts_within(low.as_deref(), high.as_deref()) {
            let (first, end) = histogram.ends(part);
            if densities.is_empty() {
                densities.push(Density { high: first.into(), expected: 0.0 });
            }
            let keys = Bounds { low: Some(Fence::from(first)), high: Some(Fence::from(end)) };
            let inside = keys.intersection(bounds);
            let own_bytes = bytes_within(std::slice::from_ref(own), &inside)?;
            let share = histogram.share(part);
            let expected = if own_bytes == 0 || share <= 0.0 {
                0.0
            } else {
                let here = own_bytes as f64 / self.bottom.bytes_within(&keys)?.max(own_bytes) as f64;
                all_expected * share * here / bytes_within(layers, &inside)?.max(own_bytes) as f64
            };
            densities.push(Density { high: end.into(), expected });
        }
        let expects_any = densities.iter().any(|density| density.expected > 0.0);
        Ok(expects_any.then(|| PageFill::new(densities, layout.fill_bytes)))
    }
}

fn bytes_within(layers: &[Layer], bounds: &Bounds) -> Result<u64> {
    let slices = layers.iter().flatten();
    slices.map(|slice| slice.bytes_within(bounds)).sum()
}
