//! Measurements of the soak between rounds, and the verdict over all of them.
//!
//! **Invariants**
//! - Measurements are compared with earlier measurements of the same run, not with those of a machine.

use std::fs;

use crate::LayerReport;

/// Minimum rounds for any verdict.
const ROUNDS_MIN: usize = 9;
/// Minimum rounds for a verdict on space: before, the tree has not been rewritten once.
const ROUNDS_MIN_FOR_SPACE: usize = 30;
/// Maximum excess of the last third over the middle one, in percent.
const GROWTH_PERCENT: u64 = 10;
/// Tolerated growth of memory and disk: an arena, a log segment.
const GROWTH_BYTES: u64 = 8 << 20;
/// Tolerated growth of descriptors: log segments that are created and removed.
const GROWTH_DESCRIPTORS: u64 = 4;

/// Measurements of the process and the store after a round.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Resident memory.
    pub(super) resident_bytes: u64,
    /// Open descriptors.
    pub(super) descriptors: u64,
    /// Space of the store on the device.
    pub(super) disk_bytes: u64,
    /// Live keys and values.
    pub(super) live_bytes: u64,
}

/// Samples of all rounds.
pub(super) struct Gauges(pub(super) Vec<Sample>);

impl Gauges {
    /// Returns the maxima for the report, or the measurement that was not flat.
    pub(super) fn judge(&self) -> Result<LayerReport, String> {
        let samples = &self.0;
        let mut report = LayerReport::default();
        let space = |sample: &Sample| sample.disk_bytes * 1000 / sample.live_bytes.max(1);
        let largest = |part: &[Sample], of: &dyn Fn(&Sample) -> u64| part.iter().map(of).max().unwrap_or(0);
        if samples.len() < ROUNDS_MIN {
            return Ok(report);
        }
        let third = samples.len() / 3;
        let (middle, last) = (&samples[third..samples.len() - third], &samples[samples.len() - third..]);
        let mut flat = |name: &str, of: &dyn Fn(&Sample) -> u64, slack: u64| {
            let (before, after) = (largest(middle, of), largest(last, of));
            report.add(format!("{name}, middle third at most"), before);
            report.add(format!("{name}, last third at most"), after);
            if after > before + before * GROWTH_PERCENT / 100 + slack {
                return Err(format!("{name} grew from {before} to {after}"));
            }
            Ok(())
        };
        flat("resident bytes", &|sample| sample.resident_bytes, GROWTH_BYTES)?;
        flat("descriptors", &|sample| sample.descriptors, GROWTH_DESCRIPTORS)?;
        if samples.len() < ROUNDS_MIN_FOR_SPACE {
            return Ok(report);
        }
        flat("bytes on the device", &|sample| sample.disk_bytes, GROWTH_BYTES)?;
        flat("device bytes per 1000 live bytes", &space, 100)?;
        Ok(report)
    }
}

/// Resident memory of this process; 0 where the system does not report it.
pub(super) fn resident_bytes() -> u64 {
    let Ok(text) = fs::read_to_string("/proc/self/status") else { return 0 };
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: Option<u64> = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kib.map_or(0, |kib| kib << 10)
}

/// Open descriptors of this process; 0 where the system does not report them.
pub(super) fn descriptors() -> u64 {
    fs::read_dir("/proc/self/fd").map_or(0, |entries| testudo_base::num::u64_of(entries.count()))
}

#[cfg(test)]
mod tests;
