//! An input as a list of changes to the files of a store.
//!
//! **Invariants**
//! - Any bytes are a list of changes; most of them hit data in use.

use crate::{
    base_store::{StoredFile, is_page_head},
    input::Input,
    mutate::{BOUNDARIES, overwrite},
};

/// Maximum changes of one input.
const CHANGES_MAX: usize = 64;

/// Makes the changes that `input` describes, in those of `files` that `may_change` admits.
pub(crate) fn apply(files: &mut [StoredFile], input: &mut Input<'_>, may_change: impl Fn(&str) -> bool) {
    let chosen: Vec<usize> = (0..files.len())
        .filter(|&file| may_change(&files[file].name) && !files[file].chunks.is_empty())
        .collect();
    for _ in 0..CHANGES_MAX {
        if input.is_empty() || chosen.is_empty() {
            return;
        }
        let file = &mut files[chosen[input.below(chosen.len())]];
        change(file, input);
    }
}

/// Place of the next change: the first bytes of a page, or any data in use.
fn place(file: &StoredFile, input: &mut Input<'_>) -> usize {
    let mode = input.u8();
    let chunk = if mode & 0x40 == 0 {
        file.chunks[input.below(file.chunks.len())]
    } else {
        let heads: Vec<usize> = file.chunks.iter().copied().filter(|&at| is_page_head(at)).collect();
        heads.get(input.below(heads.len())).copied().unwrap_or(file.chunks[0])
    };
    chunk + usize::from(mode & 0x0f)
}

fn change(file: &mut StoredFile, input: &mut Input<'_>) {
    let at = place(file, input);
    match input.u8() % 9 {
        0 => {
            let mask = input.u8();
            if let Some(byte) = file.bytes.get_mut(at) {
                *byte ^= mask;
            }
        }
        1 => overwrite(&mut file.bytes, at, &[input.u8()]),
        2 | 3 => {
            let width = 1 << (input.u8() % 4);
            let number = BOUNDARIES[input.below(BOUNDARIES.len())].to_le_bytes();
            overwrite(&mut file.bytes, at, &number[..width]);
        }
        4 => {
            let delta = u32::from(input.u8()).wrapping_sub(128);
            if let Some(bytes) = file.bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>()) {
                *bytes = u32::from_le_bytes(*bytes).wrapping_add(delta).to_le_bytes();
            }
        }
        5 => {
            let length = usize::from(input.u8() % 32);
            overwrite(&mut file.bytes, at, input.take(length));
        }
        6 => {
            let from = place(file, input);
            let length = usize::from(input.u8());
            let end = (from + length).min(file.bytes.len());
            let copy = file.bytes.get(from..end).unwrap_or_default().to_vec();
            overwrite(&mut file.bytes, at, &copy);
        }
        7 => overwrite(&mut file.bytes, at, &input.u64().to_le_bytes()),
        _ => {
            // Truncations are rare, because they hide everything behind them.
            if input.u8().is_multiple_of(16) {
                file.bytes.truncate(at);
            }
        }
    }
}
