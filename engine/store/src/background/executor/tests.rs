use std::{
    sync::{Barrier, mpsc},
    time::Duration,
};

use testudo_env::RealEnv;

use super::*;

fn boxed(task: impl FnOnce() + Send + 'static) -> Task {
    Box::new(task)
}

#[test]
fn a_round_within_a_round_ends_when_its_last_task_was_done_by_the_caller_of_the_outer_one() {
    let env = RealEnv::new();
    let pool = Pool::start(&*env, 1).unwrap();
    let (done, is_done) = mpsc::channel();
    let outer = Arc::clone(&pool);
    let caller = env.spawn(
        "caller",
        Box::new(move || {
            let caller = std::thread::current().id();
            // The helper must be in one task while the caller is in the other.
            let both = Arc::new(Barrier::new(2));
            let nested = |both: Arc<Barrier>, pool: Arc<Pool>| {
                boxed(move || {
                    both.wait();
                    if std::thread::current().id() == caller {
                        return;
                    }
                    let meet = Arc::new(Barrier::new(2));
                    let inner = || {
                        let (meet, clock) = (Arc::clone(&meet), RealEnv::new());
                        boxed(move || {
                            meet.wait();
                            if std::thread::current().id() == caller {
                                // The helper is waiting for this one by then.
                                clock.sleep(Duration::from_millis(100));
                            }
                        })
                    };
                    pool.run_all(vec![inner(), inner()]);
                })
            };
            let tasks = vec![nested(Arc::clone(&both), Arc::clone(&outer)), nested(both, Arc::clone(&outer))];
            outer.run_all(tasks);
            done.send(()).unwrap();
        }),
    );
    is_done.recv_timeout(Duration::from_secs(20)).expect("the outer round has ended");
    caller.unwrap().join().unwrap();
    pool.close();
}
