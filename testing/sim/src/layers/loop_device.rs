//! A real, full file system: an ext4 image on a loop device, filled by a store until a write is refused. Then
//! other files free space, or the store has to free space by removals alone (`emptying.rs`).
//!
//! Needs Linux, root, `mkfs.ext4` and `mount`; if one is missing, the report says that nothing was run.
//!
//! **Invariants**
//! - The image is unmounted and removed however a run ends.
//! - Refusals are `OutOfSpace`; acknowledged writes are read back, whether the device is full or not, before
//!   and after a reopen.

mod emptying;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use testudo::{Db, ErrorKind, Keyspace, VerifyLevel};
use testudo_env::{Env, OpenMode, OpenOptions, RealEnv, SplitMix};
use testudo_testkit::{
    configuration::{Configuration, crash_configurations},
    engine_store::EngineOpener,
};

use crate::{
    LayerReport, Limits,
    sweep::{Outcome, chosen_by_size, counted, judge},
};

pub(crate) const NAME: &str = "loop-device";

/// Size of the image.
const IMAGE_BYTES: u64 = 64 << 20;
/// Space that another file takes, and frees when the device is full: a checkpoint of such a small store may
/// rewrite all of it next to the existing data.
const BALLAST_BYTES: u64 = 28 << 20;
/// Writes that must have filled a device of that size.
const WRITES_MAX: u32 = 200_000;
/// Writes once there is room; few enough to fit together with the data that waits to be flushed.
const WRITES_AGAIN: u32 = 200;
/// Large enough for a log that far exceeds the write buffers while they cannot be flushed.
const MEMORY_BYTES: u64 = 16 << 20;
/// Maximum time until a store notices that there is room again.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs the layer.
pub fn run(limits: &Limits) -> Outcome {
    let mut report = LayerReport::default();
    let emptied = emptying::selected(limits);
    let is_one_of_those = limits.configuration.is_some() && !emptied.is_empty();
    let freed =
        if is_one_of_those { Vec::new() } else { chosen_by_size(NAME, limits, crash_configurations())? };
    for emptying in emptied {
        let outcome =
            judge(NAME, Some(&emptying.name), None, || match Device::mount(emptying.image_bytes()) {
                Ok(device) => emptying.run(&device),
                Err(reason) => Ok(LayerReport { not_run: Some(reason), ..LayerReport::default() }),
            })?;
        limits.tick(1);
        report.merge(outcome);
        if report.not_run.is_some() {
            return Ok(report);
        }
    }
    for configuration in limits.some_of(freed, 7) {
        let outcome = judge(NAME, Some(&configuration.name), None, || match Device::mount(IMAGE_BYTES) {
            Ok(device) => fill_and_free(&configuration, &device.directory()),
            Err(reason) => Ok(LayerReport { not_run: Some(reason), ..LayerReport::default() }),
        })?;
        limits.tick(1);
        report.merge(outcome);
        if report.not_run.is_some() {
            break;
        }
    }
    Ok(report)
}

/// A small file system of its own.
struct Device {
    place: tempfile::TempDir,
}

impl Device {
    /// Creates and mounts it; the error says what is missing.
    fn mount(image_bytes: u64) -> Result<Self, String> {
        if run_tool("id", &["-u"])?.trim() != "0" {
            return Err("mounting a loop device requires root".into());
        }
        let place = tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
        let (image, directory) = (place.path().join("image"), place.path().join("mounted"));
        let env = RealEnv::new();
        let options = OpenOptions { mode: OpenMode::CreateNew, direct: false };
        let sized = env.open(&image, options).and_then(|file| file.set_len(image_bytes));
        sized.and_then(|()| env.create_dir(&directory)).map_err(|error| format!("no image: {error}"))?;
        let (image, directory) = (image.display().to_string(), directory.display().to_string());
        run_tool("mkfs.ext4", &["-q", "-F", "-m", "0", &image])?;
        run_tool("mount", &["-o", "loop", &image, &directory])?;
        Ok(Self { place })
    }

    fn directory(&self) -> PathBuf {
        self.place.path().join("mounted")
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let directory = self.directory().display().to_string();
        if let Err(error) = run_tool("umount", &[&directory]) {
            eprintln!("{directory} stays mounted: {error}");
        }
    }
}

/// Runs a system program; returns its output, or the reason that it cannot be used.
fn run_tool(name: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(name)
        .args(arguments)
        .output()
        .map_err(|error| format!("{name} cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{name} failed: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// Expected content of the store.
type Expected = BTreeMap<Vec<u8>, Vec<u8>>;

fn fill_and_free(configuration: &Configuration, device: &Path) -> Result<LayerReport, String> {
    let ballast = device.join("ballast");
    write_ballast(&ballast)?;
    let mut expected = Expected::new();
    let (db, keyspace) = open(configuration, device)?;
    let written = fill(&keyspace, &mut expected)?;
    check(&keyspace, &expected, "on the full device")?;
    // Removals continue; their keys are gone.
    let removed: Vec<_> = expected.keys().step_by(5).take(200).cloned().collect();
    let (mut taken, mut refusal) = (0, None);
    for key in &removed {
        match keyspace.remove(key) {
            Ok(()) => taken += usize::from(expected.remove(key).is_some()),
            // The write buffers are full as well.
            Err(error) if error.kind() == ErrorKind::OutOfSpace => {
                refusal = Some(error);
                break;
            }
            Err(error) => return Err(format!("a removal failed, not for want of space: {error:?}")),
        }
    }
    if taken == 0 {
        return Err(format!("no removal is accepted on the full device: {refusal:?}, {:?}", db.stats()));
    }
    check(&keyspace, &expected, "after removals")?;
    close(db, keyspace, "on the full device")?;
    let (db, keyspace) = open(configuration, device)?;
    check(&keyspace, &expected, "reopened on the full device")?;
    RealEnv::new()
        .remove_file(&ballast)
        .map_err(|error| format!("the ballast cannot be removed: {error}"))?;
    write_again(&db, &keyspace, &mut expected)?;
    check(&keyspace, &expected, "once there is room")?;
    close(db, keyspace, "once there is room")?;
    let (db, keyspace) = open(configuration, device)?;
    check(&keyspace, &expected, "at the end")?;
    let found = db.verify(VerifyLevel::Full).map_err(|error| format!("verify: {error:?}"))?;
    if let Some(finding) = found.findings.first() {
        return Err(format!("verify: {finding}"));
    }
    close(db, keyspace, "at the end")?;
    let mut report = counted("devices filled", 1);
    report.add("writes until full", u64::from(written));
    report.add("removals while full", testudo_base::num::u64_of(taken));
    Ok(report)
}

fn write_ballast(path: &Path) -> Result<(), String> {
    let options = OpenOptions { mode: OpenMode::CreateNew, direct: false };
    let file = RealEnv::new().open(path, options).map_err(|error| format!("no ballast: {error}"))?;
    file.allocate(0, BALLAST_BYTES).and_then(|()| file.sync()).map_err(|error| format!("no ballast: {error}"))
}

fn open(configuration: &Configuration, device: &Path) -> Result<(Db, Keyspace), String> {
    let failed = |error| format!("open: {error:?}");
    let opener = EngineOpener { memory_bytes: MEMORY_BYTES, ..configuration.opener.clone() };
    let db = opener.open_db(RealEnv::new(), &device.join("db")).map_err(failed)?;
    let keyspace = db.keyspace("k", || configuration.opener.options).map_err(failed)?;
    Ok((db, keyspace))
}

fn close(db: Db, keyspace: Keyspace, when: &str) -> Result<(), String> {
    drop(keyspace);
    db.close().map_err(|error| format!("close {when}: {error:?}"))
}

fn pair(number: u32) -> (Vec<u8>, Vec<u8>) {
    let mut value = vec![0; 1500];
    SplitMix::new(number.into()).fill(&mut value);
    (number.wrapping_mul(0x9e37_79b9).to_be_bytes().to_vec(), value)
}

/// Writes until a write is refused, which must happen; returns the number of accepted writes.
fn fill(keyspace: &Keyspace, expected: &mut Expected) -> Result<u32, String> {
    for number in 0..WRITES_MAX {
        let (key, value) = pair(number);
        match keyspace.insert(&key, &value) {
            Ok(()) => drop(expected.insert(key, value)),
            Err(error) if error.kind() == ErrorKind::OutOfSpace => return Ok(number),
            Err(error) => return Err(format!("write {number} failed, not for want of space: {error:?}")),
        }
    }
    Err(format!("{WRITES_MAX} writes did not fill the device"))
}

/// Writes until accepted again without intervention, within `PATIENCE`.
fn write_again(db: &Db, keyspace: &Keyspace, expected: &mut Expected) -> Result<(), String> {
    let env = RealEnv::new();
    let end = env.monotonic() + PATIENCE;
    for number in WRITES_MAX..WRITES_MAX + WRITES_AGAIN {
        let (key, value) = pair(number);
        loop {
            match keyspace.insert(&key, &value) {
                Ok(()) => break,
                Err(error) if error.kind() == ErrorKind::OutOfSpace && env.monotonic() < end => {
                    // Flushes data that waits for room, if there is room.
                    drop(db.flush());
                }
                Err(error) => {
                    return Err(format!("write {number}, once there is room: {error:?}, {:?}", db.stats()));
                }
            }
        }
        expected.insert(key, value);
    }
    Ok(())
}

fn check(keyspace: &Keyspace, expected: &Expected, when: &str) -> Result<(), String> {
    let entries = keyspace.iter().map_err(|error| format!("scan {when}: {error:?}"))?;
    let mut left = expected.iter();
    for entry in entries {
        let found =
            entry.and_then(testudo::Entry::into_pair).map_err(|error| format!("scan {when}: {error:?}"))?;
        if left.next().is_none_or(|(key, value)| *found.0 != **key || *found.1 != **value) {
            return Err(format!("scan {when}: an unexpected or wrong pair"));
        }
    }
    let missing = left.count();
    if missing > 0 { Err(format!("scan {when}: {missing} pairs are missing")) } else { Ok(()) }
}
