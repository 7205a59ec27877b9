//! Files of tests that run against a bug in code that no layer reaches: the command line, or a bound that
//! only the crate itself can make small.
//!
//! The catalogue lists them by path: `tools/cli/tests/verbs/formats.rs` is the module `formats` of the test
//! target `verbs`; `engine/db/src/tests/long_merges.rs` is a module of unit tests, and so is
//! `trees/betree/src/tree/tests/reclaiming.rs`.
//!
//! **Invariants**
//! - The path alone determines the target to build and the tests to run.

/// A file of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TestFile<'a> {
    /// The directory of the package.
    pub(crate) package: &'a str,
    /// Name of the test target; `None` for the unit tests of the library.
    target: Option<&'a str>,
    /// Path of its module within the target; empty for the root file of the target.
    module: &'a str,
}

impl<'a> TestFile<'a> {
    /// Parses a path in the checkout; `None` if it is not a Rust file with tests.
    pub(crate) fn at(path: &'a str) -> Option<Self> {
        let path = path.strip_suffix(".rs")?;
        if let Some((package, module)) = path.split_once("/src/") {
            let is_of_tests = module.split('/').any(|name| name == "tests");
            return is_of_tests.then_some(Self { package, target: None, module });
        }
        let (package, file) = path.split_once("/tests/")?;
        let (target, module) = file.split_once('/').unwrap_or((file, ""));
        Some(Self { package, target: Some(target), module })
    }

    /// Whether its tests are unit tests of the library.
    pub(crate) fn is_of_library(&self) -> bool {
        self.target.is_none()
    }

    /// Name of the target, shared by the builder and the runner of tests.
    pub(crate) fn target_id(&self) -> String {
        match self.target {
            Some(target) => format!("{}/tests/{target}", self.package),
            None => format!("{}/src", self.package),
        }
    }

    /// Filter for the tests in this file; empty for all tests of the target.
    pub(crate) fn filter(&self) -> String {
        if self.module.is_empty() { String::new() } else { self.module.replace('/', "::") + "::" }
    }
}

#[cfg(test)]
mod tests;
