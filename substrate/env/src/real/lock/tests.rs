use super::*;

#[test]
fn released_lock_is_free_despite_a_copied_descriptor() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lock");
    let guard = FlockGuard::lock_file(None, &path, true, true).unwrap();
    // The copy that a process being started has.
    let copy = guard.descriptor.lock().as_ref().unwrap().try_clone().unwrap();
    assert!(FlockGuard::lock_file(None, &path, false, true).is_err());
    drop(guard);
    FlockGuard::lock_file(None, &path, false, true).unwrap();
    drop(copy);
}

#[test]
fn owner_state_distinguishes_here_elsewhere_gone_and_inherited() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lock");
    let guard = FlockGuard::lock_file(None, &path, true, true).unwrap();
    let state = |process| owner_state(anchor::place(None, &path), process);
    let own = std::process::id();
    assert_eq!(state(own), OwnerState::Here);
    assert_eq!(state(1), OwnerState::Elsewhere, "process 1 always runs");
    // No process has such a large id.
    assert_eq!(state(i32::MAX as u32), OwnerState::Inherited);
    drop(guard);
    assert_eq!(state(i32::MAX as u32), OwnerState::Gone);
    // As in another container, whose owner has the same id.
    assert_eq!(state(own), OwnerState::Elsewhere);
}
