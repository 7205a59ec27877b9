//! Key sets: generated ones, real ones that ship with the program, and files.
//!
//! **Invariants**
//! - Keys are in order of arrival. The generated ones are the same in every run.

use std::{fs, io::Read as _, path::Path};

use ruzstd::decoding::StreamingDecoder;
use testudo::{Error, Result};

use super::experiment::Experiment;
use crate::GIT_TRACE;

/// Keys, in order of arrival.
pub struct KeySet {
    /// Name in tables and charts.
    pub name: String,
    /// The keys.
    pub keys: Vec<Vec<u8>>,
}

/// Loads uniform keys of eight bytes, the paths of the git trace in order of arrival, and those of `--keys`.
///
/// # Errors
/// If a file of `--keys` cannot be read or has an unknown format.
pub fn key_sets(experiment: &Experiment<'_>) -> Result<Vec<KeySet>> {
    let count: u64 = experiment.scaled(3_000, 300_000, 3_000_000);
    let uniform = (0..count).map(|at| scattered(at).to_be_bytes().to_vec()).collect();
    let mut sets = vec![
        KeySet { name: "uniform".to_owned(), keys: uniform },
        KeySet { name: "paths".to_owned(), keys: paths(experiment.scaled(5_000, usize::MAX, usize::MAX))? },
    ];
    for file in &experiment.args.keys {
        sets.push(read(file)?);
    }
    Ok(sets)
}

/// Permutes the integers (Stafford's mix 13).
pub(crate) fn scattered(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Returns the keys put by the git trace.
fn paths(most: usize) -> Result<Vec<Vec<u8>>> {
    let text = decompressed(GIT_TRACE, "git trace")?;
    let key = |line: &[u8]| -> Option<Vec<u8>> {
        let rest = line.strip_prefix(b"P ")?;
        let space = rest.iter().position(|byte| *byte == b' ')?;
        Some(rest[space + 1..].to_vec())
    };
    Ok(text.split(|byte| *byte == b'\n').filter_map(key).take(most).collect())
}

fn decompressed(bytes: &[u8], name: &str) -> Result<Vec<u8>> {
    let damaged = |error: String| Error::invalid(format!("{name}: {error}"));
    let mut decoder = StreamingDecoder::new(bytes).map_err(|error| damaged(error.to_string()))?;
    let mut all = Vec::new();
    decoder.read_to_end(&mut all).map_err(|error| damaged(error.to_string()))?;
    Ok(all)
}

fn read(path: &Path) -> Result<KeySet> {
    let shown = path.display().to_string();
    let bytes = fs::read(path).map_err(|error| Error::io(&shown, error))?;
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (plain, bytes) = match file.strip_suffix(".zst") {
        Some(plain) => (plain, decompressed(&bytes, &shown)?),
        None => (file.as_str(), bytes),
    };
    if let Some(name) = plain.strip_suffix(".u64") {
        if !bytes.len().is_multiple_of(8) {
            return Err(Error::invalid(format!("{shown}: is not a sequence of eight-byte integers")));
        }
        return Ok(KeySet { name: name.to_owned(), keys: bytes.chunks(8).map(<[u8]>::to_vec).collect() });
    }
    if let Some(name) = plain.strip_suffix(".txt") {
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        return Ok(KeySet { name: name.to_owned(), keys: lines.map(<[u8]>::to_vec).collect() });
    }
    Err(Error::invalid(format!("{shown}: key files are NAME.u64, NAME.txt, or either with .zst")))
}
