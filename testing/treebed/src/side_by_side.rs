//! Several jobs of a tree in flight at once, with disjoint scopes, installed in any order.
//!
//! **Invariants**
//! - Each job is prepared on the state that it was picked from.

use testudo_contract::Scope;
use testudo_env::SplitMix;

use crate::{Bed, Family, bed::JobInFlight};

/// Counts of [`Bed::run_jobs_side_by_side`].
#[derive(Clone, Copy, Debug, Default)]
pub struct SideBySide {
    /// Jobs that were installed.
    pub installed: u64,
    /// Those of them that another job was installed before, after they were prepared.
    pub after_others: u64,
    /// Jobs whose input had changed when they were to be installed.
    pub overtaken: u64,
    /// Maximum number of jobs in flight.
    pub in_flight_max: usize,
}

impl<F: Family> Bed<F> {
    /// Keeps up to `jobs_max` jobs in flight, in `rounds` rounds: each begins a job, or installs one of those
    /// in flight, in random order. Calls `between` after each round; it may update the tree. At the end all
    /// are installed.
    pub fn run_jobs_side_by_side(
        &mut self,
        rounds: u64,
        jobs_max: usize,
        random: &mut SplitMix,
        mut between: impl FnMut(&mut Self, &mut SplitMix),
    ) -> SideBySide {
        let mut counts = SideBySide::default();
        // Each with the number of jobs installed before it was prepared.
        let mut in_flight: Vec<(JobInFlight, u64)> = Vec::new();
        let mut round = 0;
        while round < rounds || !in_flight.is_empty() {
            let busy: Vec<Scope> = in_flight.iter().map(|(job, _)| job.scope.clone()).collect();
            let begins = round < rounds && in_flight.len() < jobs_max && random.percent(65);
            let next = begins.then(|| self.pick_job_outside(random.percent(40), &busy)).flatten();
            if let Some(job) = next {
                let is_free = busy.iter().all(|busy| !busy.overlaps(&job.scope));
                assert!(is_free, "{job:?} touches a job in flight: {busy:?}");
                in_flight.push((self.prepare(&job, self.options.job_bytes()), counts.installed));
                counts.in_flight_max = counts.in_flight_max.max(in_flight.len());
            } else if !in_flight.is_empty() {
                let count = u64::try_from(in_flight.len()).unwrap();
                let at = usize::try_from(random.below(count)).unwrap();
                let (job, installed_before) = in_flight.swap_remove(at);
                let is_after_others = counts.installed > installed_before;
                if self.install(job) {
                    counts.installed += 1;
                    counts.after_others += u64::from(is_after_others);
                } else {
                    counts.overtaken += 1;
                }
                self.tree.check_invariants(true).unwrap();
                self.tree.check_retained().unwrap();
            }
            if round < rounds {
                between(self, random);
            }
            round += 1;
        }
        counts
    }
}
