//! Operating-system statistics of this process: CPU time, resident memory, device I/O.
//!
//! Statistics that a system does not offer are `None`; errors here never fail a run.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use rustix::time::{ClockId, clock_gettime};

/// Device I/O of the whole process since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessIo {
    /// Bytes read from devices.
    pub(crate) read_bytes: u64,
    /// Bytes written to devices.
    pub(crate) write_bytes: u64,
}

/// Returns the CPU time in seconds, over all threads, user and kernel.
pub(crate) fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Reads `/proc/self/io`.
pub(crate) fn io() -> Option<ProcessIo> {
    let text = fs::read_to_string("/proc/self/io").ok()?;
    Some(ProcessIo { read_bytes: field(&text, "read_bytes:")?, write_bytes: field(&text, "write_bytes:")? })
}

/// Returns the peak resident size in bytes since the start or the last [`reset_peak_rss`].
pub(crate) fn peak_rss_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    field(&text, "VmHWM:").map(|kib| kib << 10)
}

/// Resets the peak to the current size; returns `false` where that is not permitted.
pub(crate) fn reset_peak_rss() -> bool {
    fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// Returns the disk space of all files below `dir`; files that vanish meanwhile count as zero.
pub(crate) fn disk_bytes(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let size_of = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        Err(_) => 0,
    };
    entries.flatten().map(size_of).sum()
}

/// Returns the number after the line prefix `name`.
fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests;
