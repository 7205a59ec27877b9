//! rustc with one `--cfg` more, for the crates of the workspace alone: what others wrote is built once for
//! all special builds.
//!
//! Cargo calls the program that `RUSTC_WORKSPACE_WRAPPER` names in place of rustc, for the workspace's crates
//! only. That program is a copy of this one, which knows by its name that it is one, and by its folder which
//! `--cfg` it adds.
//!
//! **Invariants**
//! - Each `--cfg` has a copy at a path of its own: cargo tells the builds apart by the path.

use std::{
    env,
    env::consts::EXE_SUFFIX,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    process::{self, Command, ExitCode},
};

const NAME: &str = "rustc-with-cfg";

/// Puts a copy that adds `--cfg cfg` into the target directory; returns its path.
pub(crate) fn put_into(target: &Path, cfg: &str) -> io::Result<PathBuf> {
    let folder = target.join(cfg);
    fs::create_dir_all(&folder)?;
    // Another build may be running the copy that is there.
    let new = folder.join(format!("new-{}", process::id()));
    fs::copy(env::current_exe()?, &new)?;
    let copy = folder.join(format!("{NAME}{EXE_SUFFIX}"));
    fs::rename(&new, &copy)?;
    Ok(copy)
}

/// Runs rustc, if this process is a copy that cargo calls; its exit code.
pub fn rustc_with_cfg() -> Option<ExitCode> {
    let own = env::current_exe().ok()?;
    let cfg = cfg_of(&own)?;
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let (rustc, rest) = arguments.split_first()?;
    let status = Command::new(rustc).args(rest).arg("--cfg").arg(cfg).status();
    Some(match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("rustc could not be run: {error}");
            ExitCode::from(2)
        }
    })
}

/// What the copy at this path adds; `None` if it is no copy.
fn cfg_of(own: &Path) -> Option<OsString> {
    let is_copy = own.file_stem()? == NAME;
    is_copy.then(|| own.parent()?.file_name().map(OsString::from))?
}

#[cfg(test)]
mod tests;
