use super::*;

#[test]
fn current_process_is_current_with_either_mark() {
    assert!(Process::current().is_current());
    assert!(Process::current_by_id().is_current());
    assert!(Process::current().check().is_ok());
}

#[test]
fn forked_child_is_another_process_and_names_its_parent() {
    // As after a fork: the page is wiped, and the child has obtained its own number.
    let present = Arc::new(AtomicU64::new(1));
    let parent = Process::simulated(&present);
    present.store(2, Relaxed);
    let child = Process::simulated(&present);
    assert!(!parent.is_current() && child.is_current());
    let error = parent.check().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
}

#[test]
fn process_numbers_are_unique_along_a_line_of_descent() {
    let word = AtomicU64::new(0);
    let parent = number_in(&word);
    assert_eq!(number_in(&word), parent);
    word.store(0, Relaxed);
    assert!(number_in(&word) > parent, "a child has a number that no ancestor had");
}
