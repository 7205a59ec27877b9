//! Files of tests that are run against a bug where no layer drives what it is in: the command line, or a
//! bound that only the crate itself can make small.
//!
//! They stand in the catalogue by their path: `tools/cli/tests/verbs/formats.rs` is the module `formats` of
//! the test target `verbs`, `engine/src/write/long_merges/tests.rs` a module of unit tests,
//! and so is `trees/betree/src/tree/tests/reclaiming.rs`.
//!
//! **Invariants**
//! - The path says which target is built and which tests are run; nothing else does.

/// A file of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TestFile<'a> {
    /// The folder of the package.
    pub(crate) package: &'a str,
    /// What cargo builds: the name of a test target; `None` for the unit tests of the library.
    target: Option<&'a str>,
    /// The path of its module within the target; empty for the file that the target is named for.
    module: &'a str,
}

impl<'a> TestFile<'a> {
    /// Of a path in the checkout; `None` if this is no path of a Rust file with tests.
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

    /// The target as the builder and the runner of tests agree to call it.
    pub(crate) fn target_id(&self) -> String {
        match self.target {
            Some(target) => format!("{}/tests/{target}", self.package),
            None => format!("{}/src", self.package),
        }
    }

    /// Which tests of the target are in this file; empty for all.
    pub(crate) fn filter(&self) -> String {
        if self.module.is_empty() { String::new() } else { self.module.replace('/', "::") + "::" }
    }
}

#[cfg(test)]
mod tests;
