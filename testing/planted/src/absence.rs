//! Release programs contain no trace of the bugs that are planted to test the tests.

use std::{collections::BTreeSet, fs, io};

use crate::catalogue::BUGS;

/// The environment variable that activates a bug.
const SWITCH: &str = "TESTUDO_PLANTED";
/// Text contained in every program with a store: if it is missing, the search is broken.
const KNOWN: &str = "for reading in another process or handle";

/// Whether the program in this file, built as for users, contains none of the bugs.
pub(crate) fn check(program: &str) -> io::Result<bool> {
    let texts = BUGS.iter().map(|bug| bug.name).chain([SWITCH, KNOWN]);
    let mut found = texts_in(&fs::read(program)?, texts);
    if !found.remove(KNOWN) {
        return Err(io::Error::other(format!("{program}: there is no store in this program")));
    }
    for name in &found {
        println!("{program} contains the planted bug {name}");
    }
    if found.is_empty() {
        println!("{program} contains none of {} planted bugs", BUGS.len());
    }
    Ok(found.is_empty())
}

/// Returns the texts contained in `bytes`; in one pass, because programs are large.
fn texts_in<'a>(bytes: &[u8], texts: impl Iterator<Item = &'a str>) -> BTreeSet<&'a str> {
    let mut by_first = vec![Vec::new(); 256];
    texts.for_each(|text| by_first[usize::from(text.as_bytes()[0])].push(text));
    let mut found = BTreeSet::new();
    for (offset, byte) in bytes.iter().enumerate() {
        let here = by_first[usize::from(*byte)].iter();
        found.extend(here.filter(|text| bytes[offset..].starts_with(text.as_bytes())));
    }
    found
}

#[cfg(test)]
mod tests;
