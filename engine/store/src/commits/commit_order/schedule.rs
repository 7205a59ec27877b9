//! Commits that enter, publish and leave under chosen schedules, and readers that wait for them.
//!
//! **Invariants**
//! - There are more commits than slots, so that entering has to wait too.

use testudo_base::{
    Seqno,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::{CommitOrder, SLOTS};

/// A reader that has waited for a seqno sees everything up to it published.
pub fn in_flight() {
    let in_flight = Arc::new(CommitOrder::default());
    let last = Arc::new(Mutex::new(0_u64));
    let published: Arc<Vec<AtomicU64>> = Arc::new((0..=2 * SLOTS).map(|_| AtomicU64::new(0)).collect());
    let commits = (0..=SLOTS).map(|_| {
        let (in_flight, last, published) =
            (Arc::clone(&in_flight), Arc::clone(&last), Arc::clone(&published));
        shuttle::thread::spawn(move || {
            let mut commit = last.lock();
            *commit += 1;
            let seqno = *commit;
            let underway = in_flight.enter(Seqno(seqno));
            drop(commit);
            published[usize::try_from(seqno).expect("few")].store(1, Relaxed);
            drop(underway);
        })
    });
    let commits: Vec<_> = commits.collect();
    let seqno = *last.lock();
    in_flight.wait_for(Seqno(seqno));
    for seqno in 1..=seqno {
        let is_published = published[usize::try_from(seqno).expect("few")].load(Relaxed);
        assert_eq!(is_published, 1, "commit {seqno} was not awaited");
    }
    for commit in commits {
        commit.join().expect("no panic");
    }
}
