//! Reads the text files of the checkout into memory.
//!
//! **Invariants**
//! - Paths are relative to the root, with `/` between their parts, in sorted order.
//! - Build output and version control are never entered, and links are never followed.

use std::{fs, io, path::Path};

/// Text file of the checkout.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Source {
    #[cfg(test)]
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// File name without folders.
    pub(crate) fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// Endings of the files to read. The programs in `.ci` have no ending and are read as well.
const TEXT_ENDINGS: [&str; 8] = [".rs", ".md", ".toml", ".sh", ".yml", ".yaml", "justfile", "public-api.txt"];

/// Reads all text files below `root`.
pub(crate) fn read_sources(root: &Path) -> io::Result<Vec<Source>> {
    let mut sources = Vec::new();
    read_directory(root, "", &mut sources)?;
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

fn read_directory(directory: &Path, prefix: &str, sources: &mut Vec<Source>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = format!("{prefix}{name}");
        let file_type = entry.file_type()?;
        if file_type.is_dir() && name != ".git" && !name.starts_with("target") {
            read_directory(&entry.path(), &format!("{path}/"), sources)?;
        }
        let is_text = TEXT_ENDINGS.iter().any(|ending| name.ends_with(ending)) || prefix == ".ci/";
        if file_type.is_file() && is_text {
            sources.push(Source { path, text: fs::read_to_string(entry.path())? });
        }
    }
    Ok(())
}
