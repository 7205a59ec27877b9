use std::collections::BTreeSet;

use super::*;
use crate::{Error, ErrorKind};

fn error_of(errno: Errno) -> Error {
    Error::io("a file", errno.into())
}

#[test]
fn each_number_is_listed_once() {
    let numbers: BTreeSet<i32> = TREATMENTS.iter().map(|(errno, _, _)| errno.raw_os_error()).collect();
    let names: BTreeSet<&str> = TREATMENTS.iter().map(|(_, name, _)| *name).collect();
    assert_eq!((numbers.len(), names.len()), (TREATMENTS.len(), TREATMENTS.len()));
}

#[test]
fn error_kind_follows_from_treatment() {
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
fn eagain_is_not_reported_as_locked() {
    assert_eq!(error_of(Errno::AGAIN).kind(), ErrorKind::Io);
}

#[test]
fn lasting_errors_are_not_transient_and_keep_their_message() {
    for &(errno, name, treatment) in TREATMENTS {
        let plain = io::Error::from(errno);
        let message = plain.to_string();
        let made = lasting(plain);
        assert!(!is_transient(&made), "{name}");
        assert_eq!(made.to_string(), message, "{name}");
        // A full device stays one: later handling depends on it.
        assert_eq!(treatment_of(&made) == Full, treatment == Full, "{name}");
        assert!(!error_of(errno).lasting("half was done").is_transient(), "{name}");
    }
}

#[test]
fn unknown_numbers_poison() {
    assert_eq!(treatment_of(&io::Error::from_raw_os_error(99_999)), Poison);
    assert_eq!(treatment_of(&io::Error::other("what?")), Poison);
}
