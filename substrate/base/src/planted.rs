//! Deliberately planted bugs, to show that the tests still detect them.
//!
//! A location with a bug calls [`planted!`](crate::planted!) with its name. In a normal build the result is
//! the constant `false`: neither the bug nor its name is in the binary. With `--cfg testudo_planted` (or
//! `testudo_shuttle`) the one bug named by the environment variable `TESTUDO_PLANTED` is active.
//! `testing/planted` lists them all and runs the tests against each.
//!
//! **Invariants**
//! - At most one bug is active in a process, the same one for its whole lifetime.

/// Whether the bug of this name is active; `false` in a normal build.
#[cfg(not(any(testudo_planted, testudo_shuttle)))]
#[macro_export]
macro_rules! planted {
    ($name:literal) => {
        false
    };
}

/// Whether the bug of this name is active.
#[cfg(any(testudo_planted, testudo_shuttle))]
#[macro_export]
macro_rules! planted {
    ($name:literal) => {{
        static IS_ACTIVE: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
        *IS_ACTIVE.get_or_init(|| $crate::planted::is_active($name))
    }};
}

/// Whether `TESTUDO_PLANTED` names this bug.
#[cfg(any(testudo_planted, testudo_shuttle))]
#[must_use]
pub fn is_active(name: &str) -> bool {
    std::env::var_os("TESTUDO_PLANTED").is_some_and(|wanted| wanted == name)
}
