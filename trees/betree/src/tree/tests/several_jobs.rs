//! Several jobs of one tree at once, in disjoint scopes, installed in any order.

use testudo_contract::{Progress, Scope};

use super::*;

const RECORDS: u64 = 4000;
const JOBS_MAX: usize = 4;

fn key(number: u64) -> Vec<u8> {
    format!("user{number:020}").into_bytes()
}

fn value(round: u64) -> Option<Vec<u8>> {
    Some(vec![b'a' + (round % 26) as u8; 100])
}

/// A job in progress.
struct InFlight {
    scope: Scope,
    what: &'static str,
    prepared: Prepared,
}

/// Counts of a test.
#[derive(Debug, Default)]
struct Counts {
    /// Installed while others were in progress.
    beside_others: u64,
    overtaken: u64,
    /// Maximum number in progress.
    most: usize,
    /// Maximum bytes that a job read, as it expected, and wrote.
    largest: u64,
    kinds: BTreeMap<&'static str, u64>,
}

/// Picks and prepares a job while others are in progress, and checks its limits; returns whether there was
/// one.
fn begin(
    bed: &mut Bed,
    jobs: &mut Vec<InFlight>,
    is_idle: bool,
    bytes_max: u64,
    counts: &mut Counts,
) -> bool {
    let busy: Vec<Scope> = jobs.iter().map(|job| job.scope.clone()).collect();
    let request = JobRequest { is_idle, busy: &busy, bytes_max };
    let Some(job) = bed.tree.pick_job(&request) else { return false };
    assert!(request.allows(&job.scope), "{job:?} beside {busy:?}");
    let changes_children = job.what.starts_with("flush") || job.what.starts_with("join");
    assert!(!changes_children || job.scope.layers.start() < job.scope.layers.end(), "{job:?}");
    let most = bed.tree.job_bytes_max(bytes_max);
    bed.work.progress = Arc::new(Progress::default());
    let before = bed.written_bytes();
    let prepared = bed.tree.prepare(&bed.work, &job).unwrap();
    let (_, read) = bed.work.progress.state();
    // Shares are estimates, accurate to a page on either side of each of up to a few dozen runs. Runs have
    // whole pages, with an index and a filter.
    assert!(read <= most + most / 8 + (64 << 10), "{job:?} reads {read} of {most} bytes");
    let written = bed.written_bytes() - before;
    assert!(written <= 2 * most + (256 << 10), "{job:?} writes {written} of {most} bytes");
    counts.largest = counts.largest.max(read);
    *counts.kinds.entry(job.what).or_default() += 1;
    jobs.push(InFlight { scope: job.scope, what: job.what, prepared });
    counts.most = counts.most.max(jobs.len());
    true
}

/// Installs one of the jobs.
fn end(bed: &mut Bed, jobs: &mut Vec<InFlight>, at: usize, counts: &mut Counts) -> bool {
    let job = jobs.swap_remove(at);
    let Some(edit) = bed.tree.install(&bed.work, job.prepared).unwrap() else {
        counts.overtaken += 1;
        return false;
    };
    bed.publish(edit);
    counts.beside_others += u64::from(!jobs.is_empty());
    assert!(!job.what.is_empty());
    true
}

fn at_random(random: &mut SplitMix, count: usize) -> usize {
    usize::try_from(random.below(u64_of(count))).unwrap()
}

/// Runs up to four jobs at once, with updates in between in `updates_percent` of the rounds.
fn random_jobs(seed: u64, options: BeTreeOptions, bytes_max: u64, updates_percent: u8) -> Counts {
    let mut random = SplitMix::new(seed);
    let mut bed = Bed::new(options);
    // In half of the runs, the leaves have a compaction buffer.
    bed.work.data.set_retained_percent(if seed.is_multiple_of(2) { 0 } else { 100 });
    bed.apply((0..RECORDS).map(|n| (key(n), value(0))).collect());
    for round in 1..60 {
        bed.apply_only((0..120).map(|_| (key(random.below(RECORDS)), value(round))).collect());
    }
    let (mut jobs, mut counts) = (Vec::new(), Counts::default());
    for round in 0..400 {
        while jobs.len() < JOBS_MAX && begin(&mut bed, &mut jobs, random.percent(70), bytes_max, &mut counts)
        {
        }
        if round < 250 && random.percent(updates_percent) {
            let (first, count) = (random.below(RECORDS), 1 + random.below(60));
            let value = value(round).filter(|_| round % 50 < 30);
            let is_local = random.percent(50);
            let mut number = |n: u64| if is_local { n % RECORDS } else { random.below(RECORDS) };
            let batch = (first..first + count).map(|n| (key(number(n)), value.clone())).collect();
            match random.percent(10) {
                true => bed.apply_on_top(batch),
                false => bed.apply_only(batch),
            }
        }
        if !jobs.is_empty() {
            let at = at_random(&mut random, jobs.len());
            end(&mut bed, &mut jobs, at, &mut counts);
            bed.tree.check_invariants(round % 4 == 0).unwrap();
        }
        if random.percent(3) {
            jobs.pop();
        }
        if round % 20 == 0 {
            bed.check(&mut random);
            bed.tree.check_retained().unwrap();
        }
    }
    jobs.clear();
    bed.run_jobs();
    bed.check(&mut random);
    bed.reopen();
    bed.check(&mut random);
    counts
}

#[test]
fn jobs_of_disjoint_scopes_are_all_installed_in_any_order() {
    for seed in some_of(0..4, 4, 0) {
        for options in [turtle(4 << 10, 4), splinter(4 << 10, 4), turtle(8 << 10, 16), splinter(8 << 10, 16)]
        {
            let counts = random_jobs(seed, options, 64 << 10, 0);
            println!("{options:?} {counts:?}");
            // A node that others split or joined is the only reason.
            assert!(counts.overtaken * 20 <= counts.beside_others, "{options:?}: {counts:?}");
            let (most, beside) = if options.compacts_later() { (JOBS_MAX, 20) } else { (2, 3) };
            assert!(counts.most >= most && counts.beside_others > beside, "{options:?}: {counts:?}");
        }
    }
}

#[test]
fn several_jobs_and_updates_match_a_map() {
    for seed in some_of(10..14, 4, 0) {
        for options in [turtle(4 << 10, 4), splinter(4 << 10, 4), turtle(8 << 10, 16), splinter(8 << 10, 16)]
        {
            let counts = random_jobs(seed, options, 32 << 10, 60);
            println!("{options:?} {counts:?}");
            if options.compacts_later() {
                assert!(counts.most == JOBS_MAX && counts.beside_others > 60, "{options:?}: {counts:?}");
            }
        }
    }
}
