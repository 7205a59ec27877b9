use std::collections::BTreeSet;

use super::*;
use crate::{Error, ErrorKind};

fn error_of(errno: Errno) -> Error {
    Error::io("a file", errno.into())
}

#[test]
fn each_number_stands_in_the_table_once() {
    let numbers: BTreeSet<i32> = TREATMENTS.iter().map(|(errno, _, _)| errno.raw_os_error()).collect();
    let names: BTreeSet<&str> = TREATMENTS.iter().map(|(_, name, _)| *name).collect();
    assert_eq!((numbers.len(), names.len()), (TREATMENTS.len(), TREATMENTS.len()));
}

#[test]
fn the_kind_of_an_error_follows_from_its_treatment() {
    for &(errno, name, treatment) in TREATMENTS {
        let error = error_of(errno);
        let is_space = matches!(name, "ENOSPC" | "EDQUOT" | "EFBIG");
        let kind = if is_space { ErrorKind::OutOfSpace } else { ErrorKind::Io };
        assert_eq!(error.kind(), kind, "{name}");
        let waits = matches!(treatment, Again | Wait);
        assert_eq!((error.is_transient(), error.is_retryable()), (waits, waits), "{name}");
        assert_eq!(error.is_shortage(), waits || treatment == Full, "{name}");
        assert!(error.to_string().contains("a file"), "{name}");
    }
}

#[test]
fn a_thread_that_cannot_be_started_is_no_lock() {
    assert_eq!(error_of(Errno::AGAIN).kind(), ErrorKind::Io);
}

#[test]
fn what_lasts_is_never_transient_and_says_the_same() {
    for &(errno, name, treatment) in TREATMENTS {
        let plain = io::Error::from(errno);
        let message = plain.to_string();
        let made = lasting(plain);
        assert!(!is_transient(&made), "{name}");
        assert_eq!(made.to_string(), message, "{name}");
        // A full device stays one: what follows depends on that.
        assert_eq!(treatment_of(&made) == Full, treatment == Full, "{name}");
        assert!(!error_of(errno).lasting("half was done").is_transient(), "{name}");
    }
}

#[test]
fn unknown_numbers_poison() {
    assert_eq!(treatment_of(&io::Error::from_raw_os_error(99_999)), Poison);
    assert_eq!(treatment_of(&io::Error::other("what?")), Poison);
}
