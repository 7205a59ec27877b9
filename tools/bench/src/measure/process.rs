//! What the operating system says of this process: CPU time, resident memory, device I/O.
//!
//! Readings that a system does not offer are `None`; nothing here fails a run.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use rustix::time::{ClockId, clock_gettime};

/// Device I/O of the whole process since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessIo {
    /// Bytes fetched from devices.
    pub(crate) read_bytes: u64,
    /// Bytes sent to devices.
    pub(crate) write_bytes: u64,
}

/// Seconds of CPU time, all threads, user and kernel.
pub(crate) fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The reading of `/proc/self/io`.
pub(crate) fn io() -> Option<ProcessIo> {
    let text = fs::read_to_string("/proc/self/io").ok()?;
    Some(ProcessIo { read_bytes: field(&text, "read_bytes:")?, write_bytes: field(&text, "write_bytes:")? })
}

/// Largest resident size since the start or the last [`reset_peak_rss`], in bytes.
pub(crate) fn peak_rss_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    field(&text, "VmHWM:").map(|kib| kib << 10)
}

/// Lets the peak start again from the present size; `false` where that is not permitted.
pub(crate) fn reset_peak_rss() -> bool {
    fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// Room that all files below `dir` occupy; what vanishes meanwhile counts nothing.
pub(crate) fn disk_bytes(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let size_of = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        Err(_) => 0,
    };
    entries.flatten().map(size_of).sum()
}

/// The number after `name` at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests;
