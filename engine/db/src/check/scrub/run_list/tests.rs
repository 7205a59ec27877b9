use super::*;

const BATCH: usize = 32;
const RUNS: u64 = 10_000;

/// A store of runs whose listing is counted, by run visited.
struct Runs {
    live: Vec<Arc<u64>>,
    visits: usize,
}

impl Runs {
    fn new() -> Self {
        // In no particular order, as trees list them.
        Self { live: (0..RUNS).map(|number| Arc::new(number * 7919 % RUNS)).collect(), visits: 0 }
    }

    fn list(&mut self, from: u64) -> Vec<(RunId, OfKeyspace<u64>)> {
        self.visits += self.live.len();
        let listed = self.live.iter().filter(|run| ***run >= from);
        listed.map(|run| (RunId(**run), (Arc::clone(run), Arc::from("k")))).collect()
    }
}

/// Takes all runs in batches, and calls `between` before each batch; returns their ids.
fn pass(runs: &mut Runs, mut between: impl FnMut(&mut Runs, u64)) -> Vec<u64> {
    let (mut list, mut taken, mut next) = (RunList::new(), Vec::new(), 0);
    loop {
        between(runs, next);
        let batch = list.take(BATCH, || runs.list(next));
        let Some((last, _)) = batch.last() else { return taken };
        assert!(batch.len() <= BATCH);
        next = **last + 1;
        taken.extend(batch.iter().map(|(run, _)| **run));
    }
}

#[test]
fn scrub_of_an_idle_store_lists_each_run_twice() {
    let mut runs = Runs::new();
    let taken = pass(&mut runs, |_, _| {});
    assert!(taken.iter().copied().eq(0..RUNS));
    assert_eq!(runs.visits, 2 * runs.live.len());
}

#[test]
fn scrub_pins_one_batch_of_runs() {
    let mut runs = Runs::new();
    pass(&mut runs, |runs, next| {
        let pinned = runs.live.iter().filter(|run| Arc::strong_count(run) > 1);
        assert_eq!(pinned.count(), 0, "between two batches, before run {next}");
    });
}

/// A change of a keyspace's tree opens its runs again, a merge removes some: neither hides the others.
#[test]
fn scrub_reads_runs_that_were_opened_again_and_skips_merged_ones() {
    let mut runs = Runs::new();
    let taken = pass(&mut runs, |runs, next| {
        if next == 3_200 {
            runs.live.retain(|run| !(5_000..6_000).contains(&**run));
            runs.live.iter_mut().for_each(|run| *run = Arc::new(**run));
        }
    });
    assert!(taken.iter().copied().eq((0..5_000).chain(6_000..RUNS)));
    assert_eq!(runs.visits, usize::try_from(RUNS).unwrap() + 2 * runs.live.len());
}
