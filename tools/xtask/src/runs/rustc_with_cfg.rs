//! Wrapper of rustc that adds one `--cfg`, for the workspace crates only: external crates are built once for
//! all special builds.
//!
//! Cargo runs the program in `RUSTC_WORKSPACE_WRAPPER` instead of rustc, for workspace crates only. That
//! program is a copy of this one: its file name identifies it as a wrapper, and its folder names the `--cfg`
//! to add.
//!
//! **Invariants**
//! - Each `--cfg` has a copy at its own path: cargo distinguishes the builds by the path.

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
    // Another build may be running the existing copy.
    let new = folder.join(format!("new-{}", process::id()));
    fs::copy(env::current_exe()?, &new)?;
    let copy = folder.join(format!("{NAME}{EXE_SUFFIX}"));
    fs::rename(&new, &copy)?;
    Ok(copy)
}

/// Runs rustc if this process is a wrapper called by cargo; returns its exit code.
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
            eprintln!("cannot run rustc: {error}");
            ExitCode::from(2)
        }
    })
}

/// Cfg that the copy at this path adds; `None` if it is not a wrapper.
fn cfg_of(own: &Path) -> Option<OsString> {
    let is_copy = own.file_stem()? == NAME;
    is_copy.then(|| own.parent()?.file_name().map(OsString::from))?
}

#[cfg(test)]
mod tests;
