//! What a leveled LSM-tree writes while it grows, by simulation: files of which only size and key range are
//! known.
//!
//! The rules are those of a widely used engine with its defaults: a memtable becomes a file of level 0; four
//! of them are merged with level 1, which may hold as much; each further level may hold ten times as much as
//! the one above. A level that holds more gives away one file after the other, each time the one that
//! overlaps least of the next level for its size. A file that overlaps nothing moves without being written.
//!
//! **Invariants**
//! - The files of a level are sorted and disjoint. New keys come in evenly over all keys.

use testudo_base::num::u64_of;

/// Memtables in level 0 that are merged at once.
const LEVEL_ZERO_FILES: u64 = 4;
/// How much more each level may hold than the one above.
const FANOUT: u64 = 10;

/// Entries that lie evenly between two places of the key space, which is from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
struct File {
    low: f64,
    high: f64,
    bytes: u64,
}

/// A leveled LSM-tree.
#[derive(Debug)]
pub(crate) struct Leveled {
    /// Bytes of a memtable and of a file.
    file_bytes: u64,
    /// Memtables that level 0 holds.
    waiting: u64,
    /// From level 1 on.
    levels: Vec<Vec<File>>,
    pub(crate) user_bytes: u64,
    pub(crate) bytes_written: u64,
}

impl Leveled {
    pub(crate) fn new(file_bytes: u64) -> Self {
        Self { file_bytes, waiting: 0, levels: vec![Vec::new()], user_bytes: 0, bytes_written: 0 }
    }

    /// Writes one full memtable.
    pub(crate) fn flush(&mut self) {
        self.user_bytes += self.file_bytes;
        self.bytes_written += self.file_bytes;
        self.waiting += 1;
        if self.waiting < LEVEL_ZERO_FILES {
            return;
        }
        let bytes = self.file_bytes * std::mem::take(&mut self.waiting);
        self.merge_into(0, File { low: 0.0, high: 1.0, bytes });
        let mut most = self.file_bytes * LEVEL_ZERO_FILES;
        for level in 0.. {
            let Some(files) = self.levels.get(level) else { break };
            let mut held: u64 = files.iter().map(|file| file.bytes).sum();
            while held > most {
                if level + 1 == self.levels.len() {
                    self.levels.push(Vec::new());
                }
                let index = self.pick(level);
                let file = self.levels[level].remove(index);
                held -= file.bytes;
                self.merge_into(level + 1, file);
            }
            most *= FANOUT;
        }
    }

    /// Queries that find nothing on the way ask so many sorted sequences.
    pub(crate) fn sequences(&self) -> u64 {
        self.waiting + u64_of(self.levels.iter().filter(|files| !files.is_empty()).count())
    }

    /// The file of a level that overlaps least of the next one for its size.
    fn pick(&self, level: usize) -> usize {
        let next = &self.levels[level + 1];
        let cost = |file: &File| {
            let overlapping = &next[overlapping(next, file)];
            overlapping.iter().map(|file| file.bytes).sum::<u64>() as f64 / file.bytes as f64
        };
        let costs: Vec<f64> = self.levels[level].iter().map(cost).collect();
        (0..costs.len()).min_by(|a, b| costs[*a].total_cmp(&costs[*b])).unwrap_or(0)
    }

    fn merge_into(&mut self, level: usize, file: File) {
        let files = &mut self.levels[level];
        let range = overlapping(files, &file);
        if range.is_empty() && level > 0 {
            files.insert(range.start, file);
            return;
        }
        let merged = merge(&file, &files[range.clone()], self.file_bytes);
        self.bytes_written += merged.iter().map(|file| file.bytes).sum::<u64>();
        files.splice(range, merged);
    }
}

/// Which of the sorted `files` overlap `file`.
fn overlapping(files: &[File], file: &File) -> std::ops::Range<usize> {
    let first = files.partition_point(|other| other.high <= file.low);
    let count = files[first..].iter().take_while(|other| other.low < file.high).count();
    first..first + count
}

/// One file and those that it overlaps, as files of equal size, of `file_bytes` at most.
fn merge(file: &File, below: &[File], file_bytes: u64) -> Vec<File> {
    let total = file.bytes + below.iter().map(|file| file.bytes).sum::<u64>();
    let count = total.div_ceil(file_bytes).max(1);
    let mut edges: Vec<f64> = below.iter().chain([file]).flat_map(|file| [file.low, file.high]).collect();
    edges.sort_by(f64::total_cmp);
    let share = |of: &File, low: f64, high: f64| {
        let inside = (high.min(of.high) - low.max(of.low)).max(0.0);
        of.bytes as f64 * inside / (of.high - of.low)
    };
    let (mut out, mut low, mut done) = (Vec::new(), edges[0], 0.0);
    let mut first = 0;
    for edge in edges.windows(2) {
        // Those below that end before this stretch are done with.
        while below.get(first).is_some_and(|file| file.high <= edge[0]) {
            first += 1;
        }
        let here = below.get(first).map_or(0.0, |file| share(file, edge[0], edge[1]));
        let bytes = share(file, edge[0], edge[1]) + here;
        while u64_of(out.len()) + 1 < count {
            let due = total as f64 * (out.len() as f64 + 1.0) / count as f64;
            if done + bytes < due || bytes == 0.0 {
                break;
            }
            let high = edge[0] + (edge[1] - edge[0]) * ((due - done) / bytes).clamp(0.0, 1.0);
            out.push(File { low, high, bytes: part_of(total, count, u64_of(out.len())) });
            low = high;
        }
        done += bytes;
    }
    let bytes = out.iter().map(|file| file.bytes).sum::<u64>();
    out.push(File { low, high: edges[edges.len() - 1], bytes: total - bytes });
    out
}

/// Part `index` of `count` equal ones.
fn part_of(total: u64, count: u64, index: u64) -> u64 {
    total * (index + 1) / count - total * index / count
}

#[cfg(test)]
mod tests;
