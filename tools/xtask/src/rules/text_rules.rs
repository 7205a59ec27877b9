//! Rules for the contents of files: banned code, unsafe code outside the list, machine-specific paths.

use crate::{
    Finding,
    checkout::{
        lexer::{Literals, code_of},
        sources::Source,
    },
};

/// Files that may contain unsafe code, each with its reason. The compiler checks that all others are safe.
const UNSAFE_FILES: [(&str, &str); 19] = [
    ("substrate/env/src/real/uring.rs", "the kernel writes into buffers while requests are in flight"),
    ("substrate/env/src/real/uring/flight.rs", "as above, for batches"),
    ("substrate/env/src/mapped_file.rs", "a trait whose implementations promise valid memory"),
    ("substrate/env/src/memory/mapped_memory.rs", "implements that trait in memory"),
    (
        "substrate/env/src/real/mapped_file.rs",
        "the tail of the log is mapped, so that it survives the process",
    ),
    ("substrate/env/src/real/fork_page.rs", "a page that the kernel wipes in forked children"),
    ("substrate/storage/src/cache/pins.rs", "pages are read under a count and written under a claim"),
    ("substrate/memtable/src/arena.rs", "records are written into raw chunks and shared without a lock"),
    ("substrate/memtable/src/arena/held.rs", "parts of the index in those chunks"),
    ("substrate/memtable/src/index.rs", "ties an index to its arena"),
    ("substrate/base/src/large_slice.rs", "anonymous mappings of the system as slices"),
    ("substrate/base/src/prefetch.rs", "instructions that load cache lines ahead"),
    ("substrate/wal/src/append/buffer.rs", "writers copy into disjoint parts of one buffer at once"),
    ("testudo/tests/fork/child.rs", "forks; tests only"),
    ("testing/fuzz/src/counting_allocator.rs", "an allocator is an unsafe trait; tests only"),
    ("tools/bench-rivals/src/lmdb.rs", "a mapped file is unsafe to open; benchmarks of other stores only"),
    ("tools/bench-rivals/src/rocksdb/library.rs", "RocksDB's C interface; as above"),
    ("tools/bench-rivals/src/rocksdb/options.rs", "as above"),
    ("tools/bench-rivals/src/rocksdb/store.rs", "as above"),
];

/// Banned code, with its replacement.
const BANNED_CODE: [(&str, &str); 5] = [
    ("todo!", "implement it, or omit the item"),
    ("unimplemented!", "implement it, or return an error of kind Unsupported"),
    ("#[ignore", "a test that never runs proves nothing"),
    ("#[allow(", "write #[expect(lint, reason = \"…\")]"),
    ("#![allow(", "write #![expect(lint, reason = \"…\")]"),
];

/// Folder that exists only on the authors' machines.
const MACHINE_PATH: &str = concat!("/", "work", "/");

pub(crate) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = machine_paths(source);
    if source.is_rust() {
        let code = code_of(&source.text, Literals::Blank);
        findings.extend(banned_code(source, &code));
        findings.extend(unsafe_code(source, &code));
    }
    findings
}

/// Findings for listed files that do not exist.
pub(crate) fn check_list(sources: &[Source]) -> Vec<Finding> {
    let is_gone = |path: &str| !sources.iter().any(|source| source.path == path);
    let gone = UNSAFE_FILES.iter().filter(|(path, _)| is_gone(path));
    gone.map(|(path, _)| Finding::new(path, 1, "is on the list of unsafe files but does not exist")).collect()
}

fn banned_code(source: &Source, code: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (line, content) in (1..).zip(code.lines()) {
        for (banned, instead) in BANNED_CODE {
            if content.match_indices(banned).any(|(at, _)| !ends_in_word(&content[..at], banned)) {
                findings.push(Finding::new(&source.path, line, format!("`{banned}` is banned: {instead}")));
            }
        }
    }
    findings
}

/// Whether `banned` is only the suffix of a longer word.
fn ends_in_word(before: &str, banned: &str) -> bool {
    banned.starts_with(char::is_alphabetic) && before.ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

fn unsafe_code(source: &Source, code: &str) -> Option<Finding> {
    let is_unsafe =
        |line: &str| line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == "unsafe");
    let first = code.lines().position(is_unsafe).map(|at| at + 1);
    let is_listed = UNSAFE_FILES.iter().any(|(path, _)| *path == source.path);
    let message = match (first, is_listed) {
        (Some(_), false) => {
            "unsafe code in a file that is not on the list of tools/xtask/src/rules/text_rules.rs"
        }
        (None, true) => {
            "no longer has unsafe code: remove it from the list of tools/xtask/src/rules/text_rules.rs"
        }
        (Some(_), true) if !code.contains("#![expect(unsafe_code") => {
            "lacks #![expect(unsafe_code, reason = …)]"
        }
        _ => return None,
    };
    Some(Finding::new(&source.path, first.unwrap_or(1), message))
}

fn machine_paths(source: &Source) -> Vec<Finding> {
    let begins_here = |before: &str| !before.ends_with(|c: char| c.is_alphanumeric() || "_-.}".contains(c));
    let mut findings = Vec::new();
    for (line, content) in (1..).zip(source.text.lines()) {
        if content.match_indices(MACHINE_PATH).any(|(at, _)| begins_here(&content[..at])) {
            findings.push(Finding::new(&source.path, line, "names a machine-specific path"));
        }
    }
    findings
}

#[cfg(test)]
mod tests;
