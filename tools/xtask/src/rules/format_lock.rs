//! Locks format code to FORMAT.md, which contains a hash of each file that defines on-disk bytes.
//!
//! The hash covers the code without comments, white space and imports: moving a module does not change the
//! on-disk format. A line of the lock is ``- `path` hash``.
//!
//! **Invariants**
//! - Every file of the store named `*_format.rs`, and every listed file, has its line; no other file has one.

use crate::{
    Finding,
    checkout::{
        lexer::{Literals, code_of},
        sources::Source,
    },
};

const DOCUMENT: &str = "docs/FORMAT.md";
/// Files with format code under other names.
const OTHER_FORMAT_FILES: [&str; 14] = [
    "substrate/base/src/value_reference.rs",
    "substrate/filter/src/partition.rs",
    "substrate/run/src/format/block.rs",
    "substrate/run/src/format/builder.rs",
    "substrate/run/src/format/footer.rs",
    "substrate/run/src/format/key_ends.rs",
    "substrate/run/src/format/long_separators.rs",
    "substrate/run/src/format/map_page.rs",
    "substrate/run/src/format/map_ref.rs",
    "substrate/run/src/format/replaced_pages.rs",
    "substrate/run/src/format/run_ref.rs",
    "substrate/storage/src/manifest/superblock.rs",
    "substrate/storage/src/manifest/watermark.rs",
    "substrate/values/src/dead_values.rs",
];

pub(crate) fn check(sources: &[Source]) -> Vec<Finding> {
    let Some(document) = sources.iter().find(|source| source.path == DOCUMENT) else {
        return vec![Finding::new(DOCUMENT, 1, "is missing")];
    };
    let locked: Vec<(usize, &str, &str)> =
        (1..).zip(document.text.lines()).filter_map(|(line, text)| lock_line(line, text)).collect();
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| is_format_file(source)) {
        let hash = hash_of(&source.text);
        let paste = format!("describe the change here, then write: - `{}` {hash}", source.path);
        match locked.iter().find(|(_, path, _)| *path == source.path) {
            Some((_, _, found)) if *found == hash => {}
            Some((line, _, _)) => {
                let message = format!("format code changed; {paste}");
                findings.push(Finding::new(DOCUMENT, *line, message));
            }
            None => {
                let line = document.text.lines().count().max(1);
                findings.push(Finding::new(DOCUMENT, line, format!("format code is not covered; {paste}")));
            }
        }
    }
    for (line, path, _) in locked {
        if !sources.iter().any(|source| source.path == path && is_format_file(source)) {
            let message = format!("`{path}` is not a file with format code");
            findings.push(Finding::new(DOCUMENT, line, message));
        }
    }
    findings
}

fn is_format_file(source: &Source) -> bool {
    let in_store = ["substrate/", "trees/", "engine/", "maintenance/"]
        .iter()
        .any(|folder| source.path.starts_with(folder));
    let is_named = source.path.ends_with("_format.rs") || OTHER_FORMAT_FILES.contains(&source.path.as_str());
    in_store && is_named
}

fn lock_line(line: usize, text: &str) -> Option<(usize, &str, &str)> {
    let (path, hash) = text.strip_prefix("- `")?.split_once("` ")?;
    let is_hash = hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_hash && path.ends_with(".rs")).then_some((line, path, hash))
}

/// FNV-1a hash of the code without its imports.
fn hash_of(text: &str) -> String {
    let code = without_imports(&code_of(text, Literals::Keep));
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in code.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    format!("{hash:016x}")
}

/// Removes `use` items at the start of a line.
fn without_imports(code: &str) -> String {
    let mut kept = String::with_capacity(code.len());
    let mut in_import = false;
    for line in code.split_inclusive('\n') {
        let item = line.strip_prefix("pub(crate) ").or_else(|| line.strip_prefix("pub ")).unwrap_or(line);
        in_import |= item.starts_with("use ");
        if !in_import {
            kept.push_str(line);
        }
        in_import &= !line.trim_end().ends_with(';');
    }
    kept
}

#[cfg(test)]
mod tests;
