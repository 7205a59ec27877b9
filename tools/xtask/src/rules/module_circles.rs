//! Forbids import cycles between modules of the store, including indirect ones.
//!
//! A module and its submodules count as one: they may use each other. A re-export counts as its original
//! module, so that a path through `lib.rs` leads to the definition. Tests are exempt.
//!
//! **Invariants**
//! - Only paths that begin at the crate, at the module, or above it are followed; other crates are checked by
//!   `layers.rs`.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Finding,
    checkout::{
        lexer::{Literals, code_of},
        sources::Source,
    },
};

/// Folders whose crates must be free of cycles.
const FOLDERS: [&str; 4] = ["substrate/", "trees/", "engine/", "maintenance/"];
/// Maximum length of a chain of re-exports.
const EXPORTS_MAX: usize = 5;

/// Module names from the crate root; empty for the root.
type ModulePath = Vec<String>;

pub(crate) fn check(sources: &[Source]) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Vec<(ModulePath, &Source)>> = BTreeMap::new();
    for source in sources.iter().filter(|source| FOLDERS.iter().any(|folder| source.path.starts_with(folder)))
    {
        if let Some((root, module)) = module_of(&source.path) {
            crates.entry(root).or_default().push((module, source));
        }
    }
    crates.into_values().flat_map(|modules| circles_in(&modules)).collect()
}

/// Crate folder and module path of a file; `None` for tests and files outside `src`.
fn module_of(path: &str) -> Option<(&str, ModulePath)> {
    let (root, file) = path.split_once("/src/")?;
    let names = file.strip_suffix(".rs")?;
    let is_test = names.split('/').any(|name| name == "tests");
    let module = match names {
        "lib" | "main" => Vec::new(),
        _ => names.split('/').map(str::to_owned).collect(),
    };
    (!is_test).then_some((root, module))
}

fn circles_in(modules: &[(ModulePath, &Source)]) -> Vec<Finding> {
    let graph = Graph::new(modules);
    let mut findings = Vec::new();
    for (module, source) in modules {
        let Some(targets) = graph.edges.get(module) else { continue };
        for target in targets.iter().filter(|target| graph.leads(target, module)) {
            let (target, module) = (target.join("::"), module.join("::"));
            let message = format!("`{module}` imports `{target}`, which leads back to `{module}`");
            findings.push(Finding::new(&source.path, 1, message));
        }
    }
    findings
}

/// Import graph of the modules.
struct Graph {
    edges: BTreeMap<ModulePath, BTreeSet<ModulePath>>,
}

impl Graph {
    fn new(modules: &[(ModulePath, &Source)]) -> Self {
        let codes: BTreeMap<&ModulePath, String> =
            modules.iter().map(|(module, source)| (module, code_of(&source.text, Literals::Blank))).collect();
        let mut exports = BTreeMap::new();
        for (module, code) in &codes {
            for (is_public, path) in imports(code) {
                let Some(name) = path.last().filter(|_| is_public) else { continue };
                let mut exported = (*module).clone();
                exported.push(name.clone());
                exports.extend(absolute(module, &path, &codes).map(|path| (exported, path)));
            }
        }
        let mut edges = BTreeMap::new();
        for (module, code) in &codes {
            let targets = paths_of(code)
                .into_iter()
                .filter_map(|path| absolute(module, &path, &codes))
                .map(|path| resolve(path, &codes, &exports))
                .filter(|target| !target.starts_with(module) && !module.starts_with(target));
            edges.insert((*module).clone(), targets.collect());
        }
        Self { edges }
    }

    /// Whether imports lead from one module to another, directly or indirectly.
    fn leads(&self, from: &ModulePath, to: &ModulePath) -> bool {
        let mut seen = BTreeSet::from([from]);
        let mut open = vec![from];
        while let Some(module) = open.pop() {
            if module == to {
                return true;
            }
            let next = self.edges.get(module).into_iter().flatten();
            open.extend(next.filter(|next| seen.insert(*next)));
        }
        false
    }
}

/// Path from the crate root; `None` if it leads out of the crate.
fn absolute(module: &[String], path: &[String], codes: &BTreeMap<&ModulePath, String>) -> Option<ModulePath> {
    let mut base = module.to_vec();
    let rest = match path.first()?.as_str() {
        "crate" => {
            base.clear();
            &path[1..]
        }
        "self" => &path[1..],
        "super" => {
            let above = path.iter().take_while(|name| *name == "super").count();
            base.truncate(base.len().checked_sub(above)?);
            &path[above..]
        }
        name => {
            let child: ModulePath = base.iter().cloned().chain([name.to_owned()]).collect();
            codes.contains_key(&child).then_some(path)?
        }
    };
    base.extend_from_slice(rest);
    Some(base)
}

/// Module that a path leads to, after all re-exports.
fn resolve(
    mut path: ModulePath,
    codes: &BTreeMap<&ModulePath, String>,
    exports: &BTreeMap<ModulePath, ModulePath>,
) -> ModulePath {
    for _ in 0..EXPORTS_MAX {
        let length = (0..=path.len()).rev().find(|&length| codes.contains_key(&path[..length].to_vec()));
        let length = length.unwrap_or(0);
        let exported = path.get(..=length).and_then(|name| exports.get(name));
        match exported {
            Some(target) if *target != path[..=length] => {
                path = target.iter().chain(&path[length + 1..]).cloned().collect();
            }
            _ => {
                path.truncate(length);
                break;
            }
        }
    }
    path
}

/// Paths of all `use` items, with a flag for re-exports.
fn imports(code: &str) -> Vec<(bool, Vec<String>)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("use ") {
        let before = code[..at].trim_end_matches(' ');
        let is_public = before.ends_with("pub") || before.ends_with("pub(crate)");
        let starts_item = is_public || before.is_empty() || before.ends_with(['\n', ';', '{', '}', ']']);
        let Some(end) = code[at..].find(';').filter(|_| starts_item) else { continue };
        expand(&code[at + 4..at + end], &mut Vec::new(), &mut |path| found.push((is_public, path.to_vec())));
    }
    found
}

/// Calls `found` with every path that a tree of imports names.
fn expand(tree: &str, prefix: &mut Vec<String>, found: &mut impl FnMut(&[String])) {
    let tree = tree.trim();
    let (head, group) = match tree.split_once('{') {
        Some((head, group)) => (head, group.trim_end().strip_suffix('}')),
        None => (tree.split(" as ").next().unwrap_or(tree), None),
    };
    let names = head.split("::").map(str::trim).filter(|name| !name.is_empty() && *name != "*");
    let length = prefix.len();
    prefix.extend(names.map(str::to_owned));
    match group {
        None => found(prefix),
        Some(group) => split_list(group).into_iter().for_each(|part| expand(part, prefix, found)),
    }
    prefix.truncate(length);
}

/// Splits a list at the commas outside braces.
fn split_list(list: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0usize, 0, Vec::new());
    for (at, character) in list.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[start..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// All paths that a file imports or names. In a module within the file, `super` is the file's own module.
fn paths_of(code: &str) -> Vec<Vec<String>> {
    let (outer, inner) = split_inline_modules(code);
    let paths =
        |code: &str| imports(code).into_iter().map(|(_, path)| path).chain(inline_paths(code)).collect();
    let (mut all, mut of_inner): (Vec<Vec<String>>, Vec<Vec<String>>) = (paths(&outer), paths(&inner));
    of_inner.retain(|path| path.first().is_some_and(|name| name != "super"));
    all.append(&mut of_inner);
    all
}

/// The code without the modules that it contains, and these modules.
fn split_inline_modules(code: &str) -> (String, String) {
    let (mut outer, mut inner, mut rest) = (String::new(), String::new(), code);
    while let Some(at) = rest.find("mod ") {
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let after = rest[at + 4..].trim_start_matches(is_name).trim_start();
        let start = rest.len() - after.len();
        let end = start + if after.starts_with('{') { block_len(after) } else { 0 };
        outer.push_str(&rest[..start]);
        inner.push_str(&rest[start..end]);
        rest = &rest[end..];
    }
    outer.push_str(rest);
    (outer, inner)
}

/// Length of the block that begins with the first brace.
fn block_len(code: &str) -> usize {
    let mut depth = 0_usize;
    for (at, character) in code.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth <= 1 => return at + 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

/// Paths in code that begin with `crate::`, `self::` or `super::`.
fn inline_paths(code: &str) -> impl Iterator<Item = Vec<String>> {
    let is_path_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    code.split(move |c| !is_path_part(c))
        .filter(|word| ["crate::", "self::", "super::"].iter().any(|start| word.starts_with(start)))
        .map(|word| word.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests;
