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
fn nested_round_ends_when_outer_caller_runs_its_last_task() {
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
                                // By then the helper is waiting for this task.
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
