//! The page cache against a plain sharded LRU: hits, misses, zipfian hit ratio, the hot set after a scan.
//!
//! | case | operation |
//! |---|---|
//! | hit | a uniform lookup among cached pages |
//! | zipf | a zipfian lookup over 16 × the capacity; missing pages are inserted |
//! | scan | as zipf, after every page was read once, in order; the ratio is that of the first lookups |
//! | trace | the lookups of `--trace FILE`, in order, once; missing pages are inserted |
//! | miss | a page that is never cached: read from memory, verified, admitted (the store's cache only) |
//!
//! **Invariants**
//! - Both caches get the same page numbers in the same order on each thread.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use testudo::Result;
use testudo_base::{
    KeyspaceId, PAGE_BYTES, PAGE_SIZE, RunId,
    num::{u64_of, usize_of},
};
use testudo_env::{Env, SplitMix};
use testudo_storage::{DataFile, PageAddress, PageCache, PageKind, Priority};

use super::{
    Bench, MicroResult,
    lru::ShardedLru,
    memory_file::{MemoryFile, STORE},
};
use crate::workloads::{
    replay::trace::Trace,
    ycsb::zipf::{Picker, below},
};

const CASES: [&str; 5] = ["hit", "zipf", "scan", "trace", "miss"];
const SUBJECTS: [&str; 2] = ["testudo", "lru"];

/// One case of one subject.
#[derive(Clone, Copy)]
struct Plan<'a> {
    case: &'static str,
    subject: &'static str,
    threads: u16,
    /// Capacity.
    pages: u64,
    /// Pages of the trace, numbered by first occurrence.
    trace: &'a [u64],
}

/// A cache under measurement.
trait Subject: Sync {
    /// Whether the page is cached; reads one of its bytes.
    fn hit(&self, page: u64) -> bool;
    /// Inserts a page.
    fn put(&self, page: u64, bytes: &[u8]);
}

impl Subject for PageCache {
    #[inline]
    fn hit(&self, page: u64) -> bool {
        self.get(page, RunId(1)).is_some_and(|bytes| bytes[9] == 9)
    }
    fn put(&self, page: u64, bytes: &[u8]) {
        drop(self.insert(page, RunId(1), bytes, Priority::Data));
    }
}

impl Subject for ShardedLru {
    #[inline]
    fn hit(&self, page: u64) -> bool {
        self.get(page).is_some_and(|bytes| bytes[9] == 9)
    }
    fn put(&self, page: u64, bytes: &[u8]) {
        ShardedLru::put(self, page, bytes);
    }
}

/// Runs all selected cases.
pub(super) fn run(bench: &mut Bench<'_>) -> Result<()> {
    bench.check_subjects("page-cache", &CASES, &SUBJECTS)?;
    let trace = bench.args.trace.as_deref().map_or(Ok(Vec::new()), pages_of)?;
    for case in CASES {
        for subject in SUBJECTS {
            if !bench.wants(case, subject)
                || (case == "miss" && subject == "lru")
                || (case == "trace" && trace.is_empty())
            {
                continue;
            }
            for &pages in &bench.args.pages {
                for &threads in if case == "trace" { &[1][..] } else { &bench.args.threads[..] } {
                    let plan = Plan { case, subject, threads, pages, trace: &trace };
                    let result = measure(bench, plan)?;
                    bench.report(result)?;
                }
            }
        }
    }
    Ok(())
}

/// Maps the blocks of a trace to pages of a small file.
fn pages_of(path: &std::path::Path) -> Result<Vec<u64>> {
    let mut trace = Trace::open(path, None)?;
    let (mut pages, mut numbers, mut batch) = (Vec::new(), HashMap::new(), Vec::new());
    while trace.next_batch(&mut batch)? {
        for operation in batch.drain(..) {
            let next = u64_of(numbers.len());
            pages.push(*numbers.entry(operation.into_key()).or_insert(next));
        }
    }
    Ok(pages)
}

fn measure(bench: &Bench<'_>, plan: Plan<'_>) -> Result<MicroResult> {
    if plan.case == "miss" {
        return misses(bench, plan);
    }
    let capacity = plan.pages;
    let cache: Box<dyn Subject> = match plan.subject {
        "lru" => Box::new(ShardedLru::new(usize_of(capacity))),
        _ => Box::new(PageCache::new(capacity * PAGE_BYTES)),
    };
    let page = [9; PAGE_SIZE];
    let look_up = |number: u64| {
        let is_there = cache.hit(number);
        if !is_there {
            cache.put(number, &page);
        }
        is_there
    };
    let all = capacity * 16;
    let picker = Picker::zipfian(all);
    let mut random = SplitMix::new(99);
    match plan.case {
        "hit" => {
            // Pages are unevenly distributed over the LRU's shards; half the capacity fits into all of them.
            (0..capacity / 2).for_each(|number| cache.put(number, &page));
            return Ok(timed(bench, plan, bench.args.ops, |random| cache.hit(below(random, capacity / 2))));
        }
        "trace" => {
            let next = AtomicUsize::new(0);
            let one = |_: &mut SplitMix| look_up(plan.trace[next.fetch_add(1, Relaxed)]);
            return Ok(timed(bench, plan, u64_of(plan.trace.len()), one));
        }
        _ => {}
    }
    for _ in 0..capacity * 40 {
        look_up(picker.pick(&mut random, all));
    }
    let mut operations = bench.args.ops;
    if plan.case == "scan" {
        for number in 0..all {
            look_up(number);
        }
        // The point is how much of the hot set survived.
        operations = operations.min(capacity);
    }
    Ok(timed(bench, plan, operations, |random| look_up(picker.pick(random, all))))
}

fn misses(bench: &Bench<'_>, plan: Plan<'_>) -> Result<MicroResult> {
    let pages = plan.pages * 2;
    let file = Arc::new(MemoryFile::new(pages));
    let data = DataFile::new(file, STORE, plan.pages / 8 * PAGE_BYTES, std::iter::empty(), None)?;
    let next = AtomicU64::new(0);
    Ok(timed(bench, plan, bench.args.ops, |_| {
        let page = next.fetch_add(1, Relaxed) % pages;
        let (generation, keyspace, kind) = (RunId(1), KeyspaceId(1), PageKind::Data);
        let address = PageAddress { page, generation, keyspace, incarnation: 1, kind };
        if data.cached_page(&address).is_some() {
            return true;
        }
        data.load_page(&address, |bytes, _| bytes.len() < PAGE_SIZE).expect("the pages are valid")
    }))
}

/// Divides the operations among the threads and measures the total time.
fn timed(
    bench: &Bench<'_>,
    plan: Plan<'_>,
    operations: u64,
    operation: impl Fn(&mut SplitMix) -> bool + Sync,
) -> MicroResult {
    let share = operations / u64::from(plan.threads);
    let hits = AtomicU64::new(0);
    let started = bench.context.env.monotonic();
    std::thread::scope(|scope| {
        for thread in 0..u64::from(plan.threads) {
            let (operation, hits) = (&operation, &hits);
            scope.spawn(move || {
                let mut random = SplitMix::new(thread);
                let found: u64 = (0..share).map(|_| u64::from(operation(&mut random))).sum();
                hits.fetch_add(found, Relaxed);
            });
        }
    });
    let seconds = bench.context.env.monotonic().saturating_sub(started).as_secs_f64();
    let done = (share * u64::from(plan.threads)).max(1);
    let ratio = hits.load(Relaxed) as f64 / done as f64;
    MicroResult {
        micro: "page-cache",
        case: plan.case,
        subject: plan.subject,
        threads: plan.threads,
        pages: plan.pages,
        operations: done,
        ns_per_op: seconds * 1e9 / done as f64,
        hit_ratio: (plan.case != "hit" && plan.case != "miss").then_some(ratio),
        ratio: None,
    }
}

#[cfg(test)]
mod tests;
