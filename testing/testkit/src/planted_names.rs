//! Names of the bugs planted in the store and the command line, extracted from their source.

use std::{collections::BTreeSet, fs, io, path::Path};

/// Returns all names that Rust files of the store and the command line refer to; `root` is the checkout.
pub fn planted_names(root: &Path) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for folder in ["substrate", "trees", "engine", "maintenance", "tools/cli"] {
        collect(&root.join(folder), &mut names)?;
    }
    Ok(names)
}

fn collect(folder: &Path, names: &mut BTreeSet<String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, names)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path)?;
            let found = text.split("planted!(\"").skip(1).filter_map(|rest| rest.split('"').next());
            names.extend(found.map(str::to_owned));
        }
    }
    Ok(())
}
