//! Parser of `Cargo.toml`: its package, its sections, and the names in them.
//!
//! Understands the plain style of this workspace's manifests, not all of TOML.

/// Line `key = value` of a manifest, with its section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setting<'a> {
    pub(crate) line: usize,
    pub(crate) section: &'a str,
    pub(crate) key: &'a str,
    pub(crate) value: &'a str,
}

/// All settings of a manifest, in order. A section for a single dependency counts as one setting.
pub(crate) fn settings(text: &str) -> Vec<Setting<'_>> {
    let mut section = "";
    let mut found = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.trim();
        if let Some(name) = content.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name;
            if let Some((section, key)) = name.split_once("dependencies.") {
                let section = &name[..section.len() + "dependencies".len()];
                found.push(Setting { line, section, key, value: "" });
            }
        } else if !content.starts_with('#')
            && let Some((key, value)) = content.split_once('=')
        {
            found.push(Setting { line, section, key: key.trim(), value: value.trim() });
        }
    }
    found
}

/// Name of the package.
pub(crate) fn package_name<'a>(settings: &[Setting<'a>]) -> Option<&'a str> {
    let name = settings.iter().find(|setting| setting.section == "package" && setting.key == "name")?;
    Some(name.value.trim_matches('"'))
}

/// Line and name of each dependency that a build of the package needs; excludes dev-dependencies.
pub(crate) fn dependencies<'a>(settings: &[Setting<'a>]) -> Vec<(usize, &'a str)> {
    let is_dependency = |section: &str| {
        let last = section.rsplit('.').next();
        matches!(last, Some("dependencies" | "build-dependencies")) && section != "workspace.dependencies"
    };
    let needed = settings.iter().filter(|setting| is_dependency(setting.section));
    needed.map(|setting| (setting.line, setting.key.split('.').next().unwrap_or(setting.key))).collect()
}
