//! Runs all rules on one checkout.

use std::{io, path::Path};

use crate::{
    Finding,
    checkout::sources::read_sources,
    rules::{
        code_map, columns, documents, errors_named, file_rules, format_lock, language, layers,
        module_circles, public_api, text_rules, untested,
    },
};

/// Checks the checkout at `root` and returns all findings, sorted by file and line.
///
/// Errors: a file or directory cannot be read, or a text file is not UTF-8.
pub fn tidy(root: &Path) -> io::Result<Vec<Finding>> {
    let sources = read_sources(root)?;
    let mut findings = layers::check(&sources);
    findings.extend(documents::check(&sources));
    findings.extend(code_map::check(&sources));
    findings.extend(public_api::check(&sources));
    findings.extend(module_circles::check(&sources));
    findings.extend(format_lock::check(&sources));
    findings.extend(text_rules::check_list(&sources));
    findings.extend(untested::check(&sources));
    for source in &sources {
        findings.extend(file_rules::check(source));
        findings.extend(text_rules::check(source));
        findings.extend(columns::check(source));
        findings.extend(language::check(source));
        findings.extend(errors_named::check(source));
    }
    findings.sort();
    Ok(findings)
}

/// Writes the code map of the checkout at `root`. Returns `true`.
///
/// Errors: a file cannot be read or written.
pub fn write_code_map(root: &Path) -> io::Result<bool> {
    let text = code_map::code_map(&read_sources(root)?);
    std::fs::write(root.join(code_map::CODE_MAP), text)?;
    Ok(true)
}

/// Writes the list of the public API of the checkout at `root`. Returns `true`.
///
/// Errors: a file cannot be read or written.
pub fn write_public_api(root: &Path) -> io::Result<bool> {
    let text = public_api::public_api(&read_sources(root)?);
    std::fs::write(root.join(public_api::PUBLIC_API), text)?;
    Ok(true)
}
