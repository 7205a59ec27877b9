//! Resolves the `pub use` declarations of a crate to the files that define the names.
//!
//! **Invariants**
//! - An item and a module may have the same name. The last part of a path is an item if there is one.

use std::collections::BTreeSet;

use crate::checkout::{manifest::settings, sources::Source};

use super::items::defined_names;

/// Maximum `use` declarations from an export to the definition.
const DEPTH_MAX: usize = 12;

/// Result of looking up a name.
#[derive(Clone, Debug)]
pub(super) enum Found<'s> {
    Module { folder: String, modules: Vec<String> },
    Item { source: &'s Source, folder: String, name: String },
}

/// A leaf of a `use` declaration.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) path: Vec<String>,
    /// The name that it declares.
    pub(super) name: String,
    pub(super) is_public: bool,
}

/// The crates of a checkout.
pub(super) struct Crates<'s> {
    sources: &'s [Source],
    /// Traits of the crates that are not public.
    hidden_traits: BTreeSet<String>,
    /// Name as in a path, and folder.
    folders: Vec<(String, String)>,
}

impl<'s> Crates<'s> {
    pub(super) fn of(sources: &'s [Source]) -> Self {
        let folder = |source: &Source| {
            let folder = source.path.strip_suffix("/Cargo.toml")?;
            let settings = settings(&source.text);
            let name = settings.iter().find(|s| s.section == "package" && s.key == "name")?;
            Some((name.value.trim_matches('"').replace('-', "_"), folder.to_owned()))
        };
        let folders = sources.iter().filter_map(folder).collect();
        Self { sources, hidden_traits: BTreeSet::new(), folders }
    }

    /// Hides all traits of the checkout except the exported ones.
    pub(super) fn hide_traits(&mut self, is_exported: impl Fn(&str) -> bool) {
        let names = self.sources.iter().filter(|source| source.is_rust()).flat_map(|source| {
            source.text.lines().filter_map(|line| {
                let (before, after) = line.split_once("trait ")?;
                let is_item = before.is_empty() || before.starts_with("pub");
                let name = after.split(|c: char| !c.is_alphanumeric()).next()?;
                (is_item && !is_exported(name)).then(|| name.to_owned())
            })
        });
        self.hidden_traits = names.collect();
    }

    pub(super) fn is_hidden_trait(&self, name: &str) -> bool {
        self.hidden_traits.contains(name)
    }

    /// Source files of the crate in `folder`, except tests.
    pub(super) fn files(&self, folder: &str) -> impl Iterator<Item = &'s Source> {
        let prefix = format!("{folder}/src/");
        let is_test = |path: &str| path.split('/').any(|part| part == "tests" || part == "tests.rs");
        let sources = self.sources.iter();
        sources.filter(move |s| s.is_rust() && s.path.starts_with(&prefix) && !is_test(&s.path))
    }

    /// The root module of the crate `name`.
    pub(super) fn root(&self, name: &str) -> Found<'s> {
        let known = self.folders.iter().find(|(known, _)| known == name);
        Found::Module { folder: known.map_or(name, |(_, folder)| folder).to_owned(), modules: Vec::new() }
    }

    fn file(&self, folder: &str, modules: &[String]) -> Option<&'s Source> {
        let name = if modules.is_empty() { "lib".to_owned() } else { modules.join("/") };
        let path = format!("{folder}/src/{name}.rs");
        self.sources.iter().find(|source| source.path == path)
    }

    /// Public names of a module, with their definitions.
    pub(super) fn exports(&self, module: &Found<'s>) -> Vec<(String, Found<'s>)> {
        let Found::Module { folder, modules } = module else { return Vec::new() };
        let Some(source) = self.file(folder, modules) else { return Vec::new() };
        let uses = uses(&source.text).into_iter().filter(|used| used.is_public).map(|used| used.name);
        let children =
            source.text.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
        let own = defined_names(&source.text).into_iter();
        let mut names: Vec<String> = uses.chain(children.map(str::to_owned)).chain(own).collect();
        names.sort();
        names.dedup();
        let find = |name: String| {
            self.find_item(folder, modules, &name, DEPTH_MAX)
                .or_else(|| self.find_module(folder, modules, &name, DEPTH_MAX))
                .map(|found| (name, found))
        };
        names.into_iter().filter_map(find).collect()
    }

    /// Finds the item `name` of a module: in its file, or through its `use` declarations.
    fn find_item(&self, folder: &str, modules: &[String], name: &str, depth: usize) -> Option<Found<'s>> {
        let source = self.file(folder, modules)?;
        if defined_names(&source.text).iter().any(|defined| defined == name) {
            return Some(Found::Item { source, folder: folder.to_owned(), name: name.to_owned() });
        }
        let used = uses(&source.text).into_iter().find(|used| used.name == name)?;
        self.follow(folder, modules, &used.path, depth.checked_sub(1)?)
    }

    /// Finds the module `name` of a module: its child, or through its `use` declarations.
    fn find_module(&self, folder: &str, modules: &[String], name: &str, depth: usize) -> Option<Found<'s>> {
        let source = self.file(folder, modules)?;
        let mut child = modules.to_vec();
        child.push(name.to_owned());
        let is_declared = |line: &str| line.ends_with(&format!("mod {name};"));
        if source.text.lines().any(is_declared) && self.file(folder, &child).is_some() {
            return Some(Found::Module { folder: folder.to_owned(), modules: child });
        }
        let used = uses(&source.text).into_iter().find(|used| used.name == name)?;
        self.follow(folder, modules, &used.path, depth.checked_sub(1)?)
    }

    /// Follows a path that begins in the module `modules` of the crate in `folder`.
    fn follow(&self, folder: &str, modules: &[String], path: &[String], depth: usize) -> Option<Found<'s>> {
        let (first, rest) = path.split_first()?;
        let module =
            |modules: &[String]| Found::Module { folder: folder.to_owned(), modules: modules.to_vec() };
        let is_crate = self.folders.iter().any(|(name, _)| name == first);
        let mut found = match first.as_str() {
            "crate" => module(&[]),
            "self" => module(modules),
            "super" => module(modules.split_last()?.1),
            _ if is_crate => self.root(first),
            _ => self.find_module(folder, modules, first, depth)?,
        };
        for (at, name) in rest.iter().enumerate() {
            let Found::Module { folder, modules } = &found else { return None };
            let item = (at + 1 == rest.len()).then(|| self.find_item(folder, modules, name, depth)).flatten();
            found = item.or_else(|| self.find_module(folder, modules, name, depth))?;
        }
        Some(found)
    }
}

/// All `use` declarations of a file that begin in the first column.
pub(super) fn uses(text: &str) -> Vec<Use> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let is_public = line.starts_with("pub use ");
        let is_use =
            is_public || line.starts_with("use ") || line.starts_with("pub(") && line.contains(") use ");
        let Some((_, tree)) = line.split_once("use ").filter(|_| is_use) else { continue };
        let mut tree = tree.to_owned();
        while !tree.contains(';') {
            let Some(next) = lines.next() else { return found };
            tree.push_str(next.trim());
        }
        leaves(&[], tree.trim_end_matches(';'), is_public, &mut found);
    }
    found
}

fn leaves(prefix: &[String], tree: &str, is_public: bool, into: &mut Vec<Use>) {
    let tree = tree.trim();
    if let Some((head, group)) = tree.split_once('{').filter(|(head, _)| !head.contains(',')) {
        let mut prefix = prefix.to_vec();
        prefix.extend(head.split("::").filter(|part| !part.is_empty()).map(str::to_owned));
        let group = group.strip_suffix('}').unwrap_or(group);
        for part in split_at_commas(group) {
            leaves(&prefix, part, is_public, into);
        }
        return;
    }
    let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(path, alias)| (path, Some(alias)));
    let mut path: Vec<String> = prefix.iter().cloned().chain(path.split("::").map(str::to_owned)).collect();
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    if let Some(name) =
        alias.map(str::to_owned).or_else(|| path.last().cloned()).filter(|name| !name.is_empty())
    {
        into.push(Use { path, name, is_public });
    }
}

/// Splits at the commas outside all brackets.
pub(super) fn split_at_commas(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_i32);
    for (at, character) in text.char_indices() {
        match character {
            '{' | '(' | '[' | '<' => depth += 1,
            '}' | ')' | ']' => depth -= 1,
            '>' if !text[..at].ends_with('-') => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}
