use super::*;

#[test]
fn a_lock_that_is_given_up_is_free_although_another_process_is_being_started() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lock");
    let guard = FlockGuard::lock_file(None, &path, true, true).unwrap();
    // What a process that is being started has of it.
    let copy = guard.descriptor.lock().as_ref().unwrap().try_clone().unwrap();
    assert!(FlockGuard::lock_file(None, &path, false, true).is_err());
    drop(guard);
    FlockGuard::lock_file(None, &path, false, true).unwrap();
    drop(copy);
}

#[test]
fn an_owner_is_told_from_processes_that_are_gone_or_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lock");
    let guard = FlockGuard::lock_file(None, &path, true, true).unwrap();
    let state = |process| owner_state(anchor::place(None, &path), process);
    let own = std::process::id();
    assert_eq!(state(own), OwnerState::Here);
    assert_eq!(state(1), OwnerState::Elsewhere, "the first process always runs");
    // No process has a number that large.
    assert_eq!(state(i32::MAX as u32), OwnerState::Inherited);
    drop(guard);
    assert_eq!(state(i32::MAX as u32), OwnerState::Gone);
    // As in another container, whose owner has the same number.
    assert_eq!(state(own), OwnerState::Elsewhere);
}
