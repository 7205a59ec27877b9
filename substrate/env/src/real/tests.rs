use super::*;

#[test]
fn a_lock_that_is_given_up_is_free_although_another_process_is_being_started() {
    let directory = tempfile::tempdir().unwrap();
    let (env, path) = (RealEnv::new(), directory.path().join("lock"));
    let guard = env.flock(&path, true, true).unwrap();
    // What a process that is being started has of it.
    let copy = guard.descriptor.try_clone().unwrap();
    assert!(env.flock(&path, false, true).is_err());
    drop(guard);
    env.flock(&path, false, true).unwrap();
    drop(copy);
}
